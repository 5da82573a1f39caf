"""What is known of every column at once: its first two moments, or a histogram.

Values are taken to their declared range first, as u in [0, 1]: what lies outside counts as the end that it is beyond,
and what is no number counts as nothing. One record has a value in every column, so all p of them are one vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from gossamer.accounting.releases import Gaussian, OneSided
from gossamer.mechanism.summaries.base import BLOCK

# The largest c with u² + c² u² (1 − u)² ≤ 1 on [0, 1]: c² is the least of (1 + u) / (u² (1 − u)), at u² + u = 1, which
# is the fifth power of the golden ratio. A little below, for rounding.
WEIGHT = ((1 + math.sqrt(5)) / 2) ** 2.5 * (1 - 2.0**-40)


@dataclass(frozen=True)
class Columns:
    """Which columns of a record count, and where their values are declared to lie."""

    places: tuple[int, ...]
    low: float = 0.0
    high: float = 1.0

    def of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(J, p) u in [0, 1], and which of them are numbers."""
        rows = x.reshape(len(x), math.prod(x.shape[1:]))[:, list(self.places)].double().cpu()
        known = ~rows.isnan()
        u = (rows.clamp(self.low, self.high) - self.low) / (self.high - self.low)
        return torch.where(known, u.clamp(0, 1), 0.0), known


@dataclass(frozen=True)
class Moments:
    """(u, c u (1 − u)) / √p of every column: norm at most 1, met where all are at the upper end.

    The plain (u, u²) would need √2 times the noise on the first and, c being 3.33, 4.7 times on what is left of the
    second; u² is the difference of the two.
    """

    released_as: ClassVar[type[Gaussian]] = OneSided

    columns: Columns

    @property
    def size(self) -> int:
        return 2 * len(self.columns.places)

    def total(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        found = torch.zeros(2, len(self.columns.places), dtype=torch.float64)
        for start in range(0, len(x), BLOCK):
            u, _ = self.columns.of(x[start : start + BLOCK])
            own = weights[start : start + BLOCK]
            found[0] += own @ u
            found[1] += own @ (WEIGHT * u * (1 - u))
        return found.flatten() / math.sqrt(len(self.columns.places))

    def read(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        """(p,) mean and variance of u, as they are said with noise."""
        first, rest = mean.double().reshape(2, -1) * math.sqrt(len(self.columns.places))
        return first, first * (1 - first) - rest / WEIGHT


@dataclass(frozen=True)
class Histogram:
    """A 1/√p in every column's bin: norm at most 1. `edges` of [0, 1], ascending, 0 and 1 among them."""

    released_as: ClassVar[type[Gaussian]] = OneSided

    columns: Columns
    edges: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.columns.places) * self.bins

    @property
    def bins(self) -> int:
        return len(self.edges) - 1

    @cached_property
    def _inner(self) -> Tensor:
        return torch.tensor(self.edges[1:-1], dtype=torch.float64)

    def total(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        width = len(self.columns.places)
        found = torch.zeros(width * self.bins, dtype=torch.float64)
        for start in range(0, len(x), BLOCK):
            u, known = self.columns.of(x[start : start + BLOCK])
            bins = torch.bucketize(u, self._inner, right=True) + self.bins * torch.arange(width)
            own = weights[start : start + BLOCK, None].expand_as(u)
            found.index_add_(0, bins[known], own[known])
        return found / math.sqrt(width)

    def read(self, mean: Tensor) -> Tensor:
        """(p, bins) the share of every bin, as it is said with noise."""
        width = len(self.columns.places)
        return mean.double().reshape(width, self.bins) * math.sqrt(width)


def dyadic_edges(levels: int, steps: int) -> tuple[float, ...]:
    """Equal steps, and bins that halve towards both ends and the middle: where values crowd in too wide a range.

    A range that begins at 0, or ends there, or is symmetric around it, has small values in such a place.
    """
    halves = [2.0**-k for k in range(1, levels + 1)]
    found = {i / steps for i in range(steps + 1)}
    for h in halves:
        found |= {h, 1 - h, 0.5 - h / 2, 0.5 + h / 2}
    return tuple(sorted(found))


def quantiles(shares: Tensor, edges: Sequence[float], wanted: Sequence[float]) -> Tensor:
    """(p, len(wanted)) where so much of every column lies below, straight lines within bins: post-processing."""
    at = torch.tensor(edges, dtype=torch.float64)
    below = torch.cat([torch.zeros(len(shares), 1, dtype=torch.float64), shares.cumsum(1)], 1)
    whole = below[:, -1:].clamp_min(1e-12)
    below = (below / whole).clamp(0, 1).cummax(1).values
    found = []
    for share in wanted:
        # The first edge with at least so much below it; the bin before is the one it is in.
        over = (below >= share).double().argmax(1).clamp_min(1)
        left, right = below.gather(1, over[:, None] - 1)[:, 0], below.gather(1, over[:, None])[:, 0]
        part = ((share - left) / (right - left).clamp_min(1e-12)).clamp(0, 1)
        found.append(at[over - 1] + part * (at[over] - at[over - 1]))
    return torch.stack(found, 1)
