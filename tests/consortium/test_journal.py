"""A journal gives back what was written last, whatever a crash left of it, and refuses what is damaged."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.consortium import Private
from tests.support.refusals import expect_refusal
from tests.support.simulated_links import CrashError, MemoryStorage

from gossamer.consortium.journal import FileStorage, Journal, JournaledGradient, Released


def snapshot(journal: Journal, number: int, uses: int = 0) -> None:
    journal.snapshot({"number": number}, {"x": torch.full((1, 3), float(number))}, uses=uses)


def released(use: int, value: float) -> Released:
    return Released(use, torch.full((1, 2), value), {"draws": torch.tensor(use + 1)})


def test_a_file_gives_back_the_last_snapshot_and_what_was_released_since(tmp_path: Path) -> None:
    path = tmp_path / "site" / "journal"
    journal = Journal(FileStorage(path))
    assert journal.contents.meta is None
    journal.release(released(0, 0.5))
    snapshot(journal, 1, uses=0)
    journal.release(released(1, 1.5))
    snapshot(journal, 2, uses=1)
    journal.close()
    held = Journal(FileStorage(path)).contents
    assert held.meta is not None
    assert held.meta["number"] == 2
    assert torch.equal(held.tensors["x"], torch.full((1, 3), 2.0))
    assert set(held.released) == {1}  # the first will not be asked for again
    assert torch.equal(held.released[1].value, torch.full((1, 2), 1.5))
    assert int(held.released[1].after["draws"]) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_processes_cannot_have_one_journal(tmp_path: Path) -> None:
    first = FileStorage(tmp_path / "journal")
    with expect_refusal(key="another", names="process"):
        FileStorage(tmp_path / "journal")
    first.close()
    FileStorage(tmp_path / "journal").close()


def test_a_file_does_not_grow_without_end_and_keeps_what_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal, large = Journal(FileStorage(path)), torch.zeros(100_000)
    for t in range(30):
        journal.release(released(t, float(t)))
        journal.snapshot({"number": t}, {"x": large}, uses=t)
        assert path.stat().st_size < 4 * 400_000 + (1 << 20) + 500_000
    journal.close()
    held = Journal(FileStorage(path)).contents
    assert held.meta is not None
    assert held.meta["number"] == 29
    assert 29 in held.released
    assert not (tmp_path / "journal.new").exists()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2000), st.booleans())
def test_a_torn_tail_is_cut_off_and_written_over(left: int, zeros: bool) -> None:
    storage = MemoryStorage()
    journal = Journal(storage)
    snapshot(journal, 1)
    whole = len(storage.data)
    snapshot(journal, 2)
    torn = storage.data[: whole + left % (len(storage.data) - whole)]
    if zeros:  # a length that reached the disk before its bytes
        torn = torn.ljust(len(storage.data), b"\0")
    again = MemoryStorage(data=torn)
    journal = Journal(again)
    assert journal.contents.meta is not None
    assert journal.contents.meta["number"] == 1
    snapshot(journal, 3)
    held = Journal(MemoryStorage(data=again.data)).contents
    assert held.meta is not None
    assert held.meta["number"] == 3


def test_damage_before_the_tail_is_refused() -> None:
    """Going on from an older snapshot would send again what others have."""
    storage = MemoryStorage()
    journal = Journal(storage)
    for number in range(3):
        snapshot(journal, number)
    for at in (0, 60, len(storage.data) // 2):
        spoilt = bytearray(storage.data)
        spoilt[at] ^= 1
        with expect_refusal(key="journal", names="byte"):
            Journal(MemoryStorage(data=bytes(spoilt)))


def test_a_crash_in_memory_leaves_a_part() -> None:
    storage = MemoryStorage(lambda n: 0.5 if n == 2 else None)
    storage.append(b"1234")
    with pytest.raises(CrashError):
        storage.append(b"5678")
    assert storage.data == b"123456"


POINT = torch.zeros(1, 2)


def private(ledger: list[int]) -> Private:
    """Every draw is another value, as noise from the system is."""
    return Private(0, lambda node, k, point: torch.rand(1, 2), ledger)


def test_a_restart_replays_and_goes_on_behind_it() -> None:
    disk, ledger = MemoryStorage(), []
    grad = JournaledGradient(private(ledger), Journal(disk))
    first, second = grad(POINT), grad(POINT)
    again = JournaledGradient(private(ledger), Journal(disk), paid=len(ledger))
    assert torch.equal(again(POINT + 1), first)  # at another point: what was released stays what it was
    assert torch.equal(again(POINT), second)
    assert ledger == [0, 1]
    third = again(POINT)
    assert ledger == [0, 1, 2]
    assert not torch.equal(third, second)
    assert again.draws == 3


def test_a_value_is_on_disk_before_anybody_has_it() -> None:
    disk, ledger = MemoryStorage(lambda n: 0.9 if n == 1 else None), []
    grad = JournaledGradient(private(ledger), Journal(disk))
    with pytest.raises(CrashError):
        grad(POINT)
    again = JournaledGradient(private(ledger), Journal(disk), paid=len(ledger))
    again(POINT)
    assert ledger == [0, 1]  # the first was paid for and is lost


def test_answers_of_earlier_rounds_are_not_given_again() -> None:
    disk, ledger = MemoryStorage(), []
    journal = Journal(disk)
    grad = JournaledGradient(private(ledger), journal)
    values = [grad(POINT) for _ in range(3)]
    journal.snapshot({}, {}, uses=2)
    journal = Journal(disk)
    again = JournaledGradient(private(ledger), journal, uses=2, paid=3)
    assert torch.equal(again(POINT), values[2])
    assert again.uses == 3
