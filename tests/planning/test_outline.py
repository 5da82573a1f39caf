"""What is known of a run without reading a record."""

from __future__ import annotations

import pytest
import torch
from tests.support.configurations import outlined

from gossamer.errors import UserError

SILENT = {"privacy__noise__schedule": {"kind": "none"}}  # nothing to calibrate


def test_a_rounds_bytes_are_four_for_every_number_over_every_link() -> None:
    """Push-sum sends its model and its weight; on the one-peer graph every node sends to one other a round."""
    made = outlined(rounds=3, **SILENT)
    d = made.stack.dim
    assert d == 64 * 10 + 10
    assert made.bytes_per_round == 4 * (d + 1) * 8
    assert outlined(rounds=3, **SILENT, baseline="no-communication").bytes_per_round == 0


def test_the_loss_is_that_of_the_configuration() -> None:
    outputs = torch.tensor([[2.0, -1.0] + [0.0] * 8])
    loss = outlined(rounds=3, **SILENT).loss(outputs, torch.tensor([0]))
    torch.testing.assert_close(loss, torch.logsumexp(outputs, 1) - 2.0)


def test_seeded_noise_is_said_to_be_so() -> None:
    assert not outlined(rounds=3, **SILENT).seeded
    assert outlined(rounds=3, **SILENT, privacy__noise__source="seeded").seeded


def test_a_baseline_runs_something_else_than_was_asked_for() -> None:
    central = outlined(rounds=3, **SILENT, baseline="central")
    assert (central.asked.nodes, central.config.nodes) == (8, 1)
    assert central.pool is not None
    assert central.pool.records == 1437
    assert len(central.plan.nodes) == 1
    assert outlined(rounds=3, **SILENT).pool is None


def test_a_checked_mistake_shows_before_anything_is_planned() -> None:
    with pytest.raises(UserError, match=r"privacy\.clip\.kind = 'none'"):
        outlined(rounds=3, privacy__clip={"kind": "none"})
