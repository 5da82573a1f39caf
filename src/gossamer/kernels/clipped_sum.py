"""The weighted sum of per-sample gradients, for all nodes at once: the only thing training asks of a model.

Every way of clipping is a weight that depends on a record's gradient norm alone:
constant C is min(1, C/‖g‖), normalised is 1/(‖g‖ + γ), none is 1. So this kernel knows nothing about privacy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from gossamer.errors import UserError
from gossamer.kernels.bookkeeping import BookKeeping, NotSupportedError
from gossamer.kernels.oracle import Vmap

logger = logging.getLogger("gossamer")

Weigh = Callable[[Tensor], Tensor]
"""Per-sample gradient norms (m, B) -> weights (m, B), elementwise."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs (N, ...) and targets (N, ...) -> one loss per record (N,)."""

DEFAULT_MAX_BYTES = 1 << 30
TILE_BYTES = 1 << 24  # working set of one slice: larger ones leave the cache, smaller ones are all overhead


class ClippedSum(Protocol):
    def __call__(
        self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Weigh
    ) -> tuple[Tensor, Tensor]:
        """Σ_b mask · weigh(‖g_ib‖) · g_ib for every node i, (m, d), and the norms (m, B), 0 where masked.

        points (m, d), x (m, B, *features), y (m, B, ...), mask bool (m, B). What masked rows of x and y hold
        does not matter. B may be 0.
        """


def clipped_sum(
    module: nn.Module, loss: Loss, *, method: str = "auto", max_bytes: int = DEFAULT_MAX_BYTES
) -> ClippedSum:
    """The clipped-sum kernel of a module.

    method: "vmap" is the slow reference, "book-keeping" insists on the fast way, "auto" takes it where it is
    exact and logs a notice where it is not. Lots that need more than about `max_bytes` are done in slices.
    """
    if method not in {"auto", "vmap", "book-keeping"}:
        raise UserError(f'method = "{method}" is unknown; choose "auto", "book-keeping" or "vmap"')
    return _Engine(module, loss, method, max_bytes)


class _Engine:
    """Chooses the method at the first lot, then cuts lots into slices and spreads them over the cores."""

    def __init__(self, module: nn.Module, loss: Loss, method: str, max_bytes: int) -> None:
        self.module, self.loss, self.max_bytes = module, loss, max_bytes
        self.insist = method == "book-keeping"
        self.workers: list[BookKeeping] | list[Vmap] = []
        self.bytes_per_record = 0
        if method == "vmap":
            self._use_vmap()

    def __call__(
        self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Weigh
    ) -> tuple[Tensor, Tensor]:
        nodes, lot = mask.shape
        norms = points.new_zeros(nodes, lot)
        if not bool(mask.any()):
            return torch.zeros_like(points), norms
        full = bool(mask.all())
        x, y = (x, y) if full else (blank_masked(x, mask), blank_masked(y, mask))
        if not self.workers:
            self._choose(points, x, y, mask)
        total = torch.empty_like(points, memory_format=torch.contiguous_format)

        def run(worker: BookKeeping | Vmap, rows: slice) -> None:
            for b in range(0, lot, columns):
                part = rows, slice(b, b + columns)
                norms[part] = worker.weighted(
                    points[rows], x[part], y[part], mask[part], weigh, target=total[rows], add=b > 0
                )

        rows, columns = self._slice(nodes, lot)
        try:
            for i in range(0, nodes, rows):
                run(self.workers[0], slice(i, i + rows))
        except NotSupportedError as reason:
            if self.insist:
                raise UserError(
                    f'method = "book-keeping" does not fit this module: {reason}; use "auto"'
                ) from None
            self._fall_back(reason)
            return self(points, x, y, mask, weigh)
        return total, norms

    def _slice(self, nodes: int, lot: int) -> tuple[int, int]:
        """How many nodes and how many of their records go into one slice."""
        records = max(1, min(self.max_bytes, TILE_BYTES) // max(1, self.bytes_per_record))
        if records >= lot:
            return min(nodes, records // lot), lot
        return 1, min(lot, max(1, self.max_bytes // max(1, self.bytes_per_record)))

    def _choose(self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> None:
        try:
            worker = BookKeeping(self.module, self.loss)
            self.bytes_per_record = worker.check(points, x, y, mask)
            self.workers = [worker]
        except NotSupportedError as reason:
            if self.insist:
                raise UserError(
                    f'method = "book-keeping" does not fit this module: {reason}; use "auto"'
                ) from None
            self._fall_back(reason)

    def _fall_back(self, reason: Exception) -> None:
        logger.warning("per-sample gradients come from vmap, which is slower: %s", reason)
        self._use_vmap()

    def _use_vmap(self) -> None:
        worker = Vmap(self.module, self.loss)
        self.workers, self.bytes_per_record = [worker], worker.bytes_per_record


def blank_masked(values: Tensor, mask: Tensor) -> Tensor:
    """Zeros where masked: padding may hold anything, and 0 · NaN would not be 0."""
    return values.masked_fill(~mask.view(*mask.shape, *[1] * (values.ndim - 2)), 0)
