"""Proximal maps against a search on a grid."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gossamer.methods.km.proximal import L1, Box, SquaredL2
from gossamer.methods.km.proximal import ElasticNet as ElasticNetPenalty


@pytest.mark.parametrize(
    "penalty",
    [L1(weight=0.7), SquaredL2(weight=0.7), ElasticNetPenalty(weight=0.3, l2=0.9), Box(low=-0.5, high=0.2)],
)
def test_a_proximal_map_minimises_what_it_should(penalty: Any) -> None:
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    grid = torch.linspace(-3, 3, 60_001, dtype=torch.float64)[:, None]
    for point in x:
        costs = 0.8 * penalty.value(grid) + 0.5 * (grid - point).square().sum(-1)
        assert float(penalty(point, 0.8)) == pytest.approx(float(grid[costs.argmin()]), abs=2e-4)
