"""What was released is on disk before it is used, is given again after a crash, and is never drawn a second time."""

from __future__ import annotations

import pytest
import torch
from tests.support.consortium import Private
from tests.support.simulated_links import CrashError, MemoryStorage

from gossamer.consortium.journal import Journal
from gossamer.consortium.released import Replayed

POINT = torch.zeros(1, 2)


def private(ledger: list[int]) -> Private:
    """Every draw is another value, as noise from the system is."""
    return Private(0, lambda node, k, point: torch.rand(1, 2), ledger)


def test_a_restart_replays_and_goes_on_behind_it() -> None:
    disk, ledger = MemoryStorage(), []
    grad = Replayed(private(ledger), Journal(disk))
    first, second = grad(POINT), grad(POINT)
    again = Replayed(private(ledger), Journal(disk), paid=len(ledger))
    assert torch.equal(again(POINT + 1), first)  # at another point: what was released stays what it was
    assert torch.equal(again(POINT), second)
    assert ledger == [0, 1]
    third = again(POINT)
    assert ledger == [0, 1, 2]
    assert not torch.equal(third, second)
    assert again.draws == 3


def test_a_value_is_on_disk_before_anybody_has_it() -> None:
    disk, ledger = MemoryStorage(lambda n: 0.9 if n == 1 else None), []
    grad = Replayed(private(ledger), Journal(disk))
    with pytest.raises(CrashError):
        grad(POINT)
    again = Replayed(private(ledger), Journal(disk), paid=len(ledger))
    again(POINT)
    assert ledger == [0, 1]  # the first was paid for and is lost


def test_answers_of_earlier_rounds_are_not_given_again() -> None:
    disk, ledger = MemoryStorage(), []
    journal = Journal(disk)
    grad = Replayed(private(ledger), journal)
    values = [grad(POINT) for _ in range(3)]
    journal.snapshot({}, {}, uses=2)
    journal = Journal(disk)
    again = Replayed(private(ledger), journal, uses=2, paid=3)
    assert torch.equal(again(POINT), values[2])
    assert again.uses == 3
