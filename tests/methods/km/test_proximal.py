"""Proximal maps against a search on a grid."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.linear_problems import penalty_value
from tests.support.refusals import expect_refusal

from gossamer.methods.km.proximal import L1, Box, SquaredL2, penalties, shrink
from gossamer.methods.km.proximal import ElasticNet as ElasticNetPenalty


@pytest.mark.parametrize(
    "penalty",
    [L1(weight=0.7), SquaredL2(weight=0.7), ElasticNetPenalty(weight=0.3, l2=0.9), Box(low=-0.5, high=0.2)],
)
def test_a_proximal_map_minimises_what_it_should(penalty: Any) -> None:
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    grid = torch.linspace(-3, 3, 60_001, dtype=torch.float64)[:, None]
    for point in x:
        costs = 0.8 * penalty_value(penalty, grid) + 0.5 * (grid - point).square().sum(-1)
        assert float(penalty(point, 0.8)) == pytest.approx(float(grid[costs.argmin()]), abs=2e-4)


def test_maps_are_firmly_nonexpansive() -> None:
    """‖P x − P z‖² ≤ ⟨P x − P z, x − z⟩ for every registered penalty."""
    options: dict[str, dict[str, float]] = {
        "none": {}, "l1": {"weight": 0.3}, "l2": {"weight": 0.3}, "elastic-net": {"weight": 0.3, "l2": 0.7},
        "box": {"low": -0.4, "high": 0.9},
    }  # fmt: skip
    assert set(options) == set(penalties)
    x, z = torch.randn(2, 50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for kind, given in options.items():
        penalty = penalties.parse({"kind": kind, **given})
        apart = penalty(x, 0.6) - penalty(z, 0.6)
        assert bool((apart.square().sum(1) <= (apart * (x - z)).sum(1) + 1e-12).all())


def test_shrinking_is_towards_zero_and_not_beyond() -> None:
    x = torch.tensor([-2.0, -0.3, 0.0, 0.2, 1.5])
    torch.testing.assert_close(shrink(x, 0.5), torch.tensor([-1.5, 0.0, 0.0, 0.0, 1.0]))


def test_a_box_that_is_empty_is_refused() -> None:
    with expect_refusal(key="penalty.low", value="1.0", names="penalty.high 0.0", remedy=True):
        penalties.parse({"kind": "box", "low": 1.0, "high": 0.0})
    penalties.parse({"kind": "box", "low": 1.0, "high": 1.0})
