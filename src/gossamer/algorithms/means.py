"""The mean over all nodes, exactly: in whole numbers by windows, or in double precision by a filter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gossamer.algorithms.base import Mix

if TYPE_CHECKING:
    from gossamer.topology.exact import Filter, Windows

FINER = 22  # bits by which the grid is finer than the noise of a mean: 2⁻²² of it is 2.4e-7
WITHOUT_NOISE = 2.0**-40
# What is larger is cut there: no float of that size has a place among whole numbers of 64 bits.
_MOST = 2.0**62


@dataclass(frozen=True)
class WindowMean:
    """Sums of multiples of a public power of two, as whole numbers modulo 2⁶⁴: the same on all nodes to the last bit.

    No order of additions matters then, and an overflow on the way neither: values that cancel may be of any size up to
    2⁶² grid steps, their sum over all nodes up to 2⁶³. Rounding comes after the noise, so it tells nothing more.
    """

    windows: Windows
    grid: float

    @property
    def exchanges(self) -> int:
        return self.windows.exchanges

    def __call__(self, rows: Tensor, mix: Mix) -> Tensor:
        steps = (rows.double() / self.grid).round_().nan_to_num_(nan=0.0).clamp_(-_MOST, _MOST)
        total: Tensor = self.windows.total(steps.to(torch.int64), mix)
        return total.double().mul_(self.grid).div_(self.windows.nodes).to(rows.dtype)

    def read(self, sent: Tensor) -> Tensor:
        """A node's own value in its first message."""
        return sent.double() * self.grid


@dataclass(frozen=True)
class FilterMean:
    """On a fixed undirected graph, in double precision: the same on all nodes up to `filter.error`, no better."""

    filter: Filter

    @property
    def exchanges(self) -> int:
        return self.filter.exchanges

    def __call__(self, rows: Tensor, mix: Mix) -> Tensor:
        mean: Tensor = self.filter.mean(rows.double(), mix)
        return mean.to(rows.dtype)

    def read(self, sent: Tensor) -> Tensor:
        """A node's own value in its first message."""
        return sent


def grid_of(deviation: float, nodes: int) -> float:
    """The grid for values whose noise has at least this deviation where no two nodes' noises cancel.

    Noises that cancel may be √n smaller before they are added up, so the grid is finer by that too.
    """
    if not 0 < deviation < math.inf:
        return WITHOUT_NOISE
    return float(2.0 ** (math.floor(math.log2(deviation)) - FINER - math.ceil(math.log2(nodes) / 2)))
