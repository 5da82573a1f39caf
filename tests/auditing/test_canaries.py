"""Canaries come in as records do, and by as much as they may."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.support.audits import on_axes, outlined

from gossamer.auditing import canaries
from gossamer.auditing.trainings import NoLedger
from gossamer.kernels.noise import Stream
from gossamer.mechanism.reader import Records


@pytest.mark.parametrize("operator", ["forward", "backward", "douglas-rachford", "peaceman-rachford"])
def test_canaries_of_noised_iterates_move_them_by_the_bound_that_the_paper_assumes(operator: str) -> None:
    """‖T(x) − x‖ ≤ B = γ · clip.bound is an assumption of the claim: a record beyond it would refute nothing."""
    o = outlined("dp-dkm/truncated", mode="paper", algorithm__operator=operator, algorithm__gamma=0.3)
    parts = on_axes(o)
    grad = parts.reader(NoLedger(), Stream.seeded(0))
    x = torch.zeros_like(parts.x0)
    moved = parts.plan.algorithm.mapping(x, grad) - x
    torch.testing.assert_close(moved.norm(dim=1), torch.full((len(x),), 0.3))


def test_a_canary_comes_in_through_the_records() -> None:
    base = Records(torch.arange(6.0)[:, None], torch.tensor([0, 0, 1, 1, 1, 0]), [2, 4])
    canary = canaries.Canary(torch.tensor([99.0]), torch.tensor(1), "")
    assert canaries.home_of(canary, base.y, base.sizes) == 1
    for replace_one, expected in ((False, [2.0, 3.0, 4.0, 5.0, 99.0]), (True, [2.0, 3.0, 4.0, 99.0])):
        both = canaries.with_and_without(base, canary, 1, np.array([True, False]), replace_one=replace_one)
        rows = [both.x[s : s + n, 0].tolist() for s, n in zip(both._starts.tolist(), both.sizes, strict=True)]
        assert rows == [[0.0, 1.0], [0.0, 1.0], expected, [2.0, 3.0, 4.0, 5.0]]
