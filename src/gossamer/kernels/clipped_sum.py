"""The weighted sum of per-sample gradients, for all nodes at once: the only thing training asks of a model.

Every way of clipping is a weight that depends on a record's gradient norm alone:
constant C is min(1, C/‖g‖), normalised is 1/(‖g‖ + γ), none is 1. So this kernel knows nothing about privacy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from gossamer.errors import UserError
from gossamer.kernels.oracle import VmapClippedSum

Weigh = Callable[[Tensor], Tensor]
"""Per-sample gradient norms (m, B) -> weights (m, B), elementwise."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs (N, ...) and targets (N, ...) -> one loss per record (N,)."""

DEFAULT_MAX_BYTES = 1 << 30


class ClippedSum(Protocol):
    def __call__(
        self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Weigh
    ) -> tuple[Tensor, Tensor]:
        """Σ_b mask · weigh(‖g_ib‖) · g_ib for every node i, (m, d), and the norms (m, B), 0 where masked.

        points (m, d), x (m, B, *features), y (m, B, ...), mask bool (m, B). What masked rows of x and y hold
        does not matter. B may be 0.
        """


class Method(Protocol):
    """One way to compute the sum for a slice that fits in memory."""

    def bytes_per_sample(self, x: Tensor) -> int: ...

    def weighted(
        self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Weigh
    ) -> tuple[Tensor, Tensor]: ...


def clipped_sum(
    module: nn.Module, loss: Loss, *, method: str = "auto", max_bytes: int = DEFAULT_MAX_BYTES
) -> ClippedSum:
    """The clipped-sum kernel of a module: "vmap" is the reference, "auto" the fastest that fits it."""
    if method not in {"auto", "vmap"}:
        raise UserError(f'method = "{method}" is unknown; choose "auto" or "vmap"')
    return Sliced(VmapClippedSum(module, loss), max_bytes)


class Sliced:
    """Runs a method slice by slice within a memory bound; sum and norms are those of the whole lot."""

    def __init__(self, method: Method, max_bytes: int) -> None:
        self.method, self.max_bytes = method, max_bytes

    def __call__(
        self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Weigh
    ) -> tuple[Tensor, Tensor]:
        nodes, lot = mask.shape
        total = torch.zeros_like(points)
        norms = points.new_zeros(nodes, lot)
        if nodes == 0 or lot == 0:
            return total, norms
        x, y = blank_masked(x, mask), blank_masked(y, mask)
        samples = max(1, self.max_bytes // max(1, self.method.bytes_per_sample(x)))
        rows, columns = max(1, samples // lot), min(lot, samples)
        for i in range(0, nodes, rows):
            for b in range(0, lot, columns):
                part = slice(i, i + rows), slice(b, b + columns)
                some, norms[part] = self.method.weighted(points[part[0]], x[part], y[part], mask[part], weigh)
                total[part[0]] += some
        return total, norms


def blank_masked(values: Tensor, mask: Tensor) -> Tensor:
    """Zeros where masked: padding may hold anything, and 0 · NaN would not be 0."""
    if bool(mask.all()):
        return values
    return values.masked_fill(~mask.view(*mask.shape, *[1] * (values.ndim - 2)), 0)
