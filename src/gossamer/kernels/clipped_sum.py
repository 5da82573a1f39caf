"""The weighted sum of per-sample gradients, for all nodes at once: the only thing training asks of a model.

Every way of clipping is a weight that depends on a record's gradient norm alone:
constant C is min(1, C/‖g‖), normalised is 1/(‖g‖ + γ), none is 1. So this kernel knows nothing about privacy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

import torch
from torch import Tensor, nn

from gossamer.errors import UserError
from gossamer.kernels import threads
from gossamer.kernels.bookkeeping import BookKeeping, NotSupportedError
from gossamer.kernels.finite import NotFiniteError
from gossamer.kernels.memory import keep_freed_memory
from gossamer.kernels.oracle import Vmap

logger = logging.getLogger("gossamer")

Weigh = Callable[[Tensor], Tensor]
"""Per-sample gradient norms (m, B) -> weights (m, B), elementwise."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs (N, ...) and targets (N, ...) -> one loss per record (N,)."""

DEFAULT_MAX_BYTES = 1 << 30
TILE_BYTES = 1 << 25  # working set of one slice: larger ones leave the cache, smaller ones are all overhead
PARALLEL_BYTES = 1 << 22  # below this the threads would only wait for each other


class ClippedSum(Protocol):
    def __call__(
        self,
        points: Tensor,
        x: Tensor,
        y: Tensor,
        mask: Tensor,
        weigh: Weigh,
        *,
        unit: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Σ_b mask · weigh(‖g_ib‖) · g_ib for every node i, (m, d), and the norms (m, B), 0 where masked.

        points (m, d), x (m, B, *features), y (m, B, ...), mask bool (m, B). What masked rows of x and y hold
        does not matter. B may be 0. With `unit` (m,), node i weighs its norms in that unit, weigh(‖g_ib‖ / unit_i):
        how nodes have bounds of their own although `weigh` sees a slice of them at a time.
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
    keep_freed_memory()
    return _Engine(module, loss, method, max_bytes)


class _Engine:
    """Chooses the method at the first lot, then cuts lots into slices and spreads them over the cores."""

    def __init__(self, module: nn.Module, loss: Loss, method: str, max_bytes: int) -> None:
        self.module, self.loss, self.max_bytes = module, loss, max_bytes
        self.insist = method == "book-keeping"
        self.method: BookKeeping | Vmap | None = Vmap(module, loss) if method == "vmap" else None
        self.idle: SimpleQueue[BookKeeping] = SimpleQueue()
        self.copies = 0

    def __call__(
        self,
        points: Tensor,
        x: Tensor,
        y: Tensor,
        mask: Tensor,
        weigh: Weigh,
        *,
        unit: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        nodes, lot = mask.shape
        norms = points.new_zeros(nodes, lot)
        if not bool(mask.any()):
            return torch.zeros_like(points), norms
        ragged = not bool(mask.all())
        try:
            method = self.method = self.method or self._book_keeping(points, x, y, mask)
            total = torch.empty_like(points, memory_format=torch.contiguous_format)
            spread = (
                points.device.type == "cpu" and isinstance(method, BookKeeping) and method.prefers_threads
            )
            cores = threads.cores() if spread else 1
            plan = slices(nodes, lot, method.bytes_per_record, self.max_bytes, cores)

            def run(worker: BookKeeping | Vmap, rows: slice) -> None:
                own = weigh if unit is None else lambda norms: weigh(norms / unit[rows, None])
                for b in range(0, lot, plan.records):
                    part = rows, slice(b, b + plan.records)
                    slice_x, slice_y = x[part], y[part]
                    if ragged:
                        slice_x, slice_y = (
                            _blank_if_needed(slice_x, mask[part]),
                            blank_masked(slice_y, mask[part]),
                        )
                    norms[part] = _of_finite(
                        worker, points[rows], slice_x, slice_y, mask[part], own, target=total[rows], add=b > 0
                    )

            jobs = [slice(i, i + plan.nodes) for i in range(0, nodes, plan.nodes)]
            if plan.parallel and isinstance(method, BookKeeping):
                self._side_by_side(method, run, jobs)
            else:
                for rows in jobs:
                    run(method, rows)
        except NotSupportedError as reason:
            if self.insist:
                raise UserError(
                    f'method = "book-keeping" does not fit this module: {reason}; use "auto"'
                ) from None
            logger.warning("per-sample gradients come from vmap, which is slower: %s", reason)
            self.method = Vmap(self.module, self.loss)
            return self(points, x, y, mask, weigh, unit=unit)
        return total, norms

    def _side_by_side(
        self, method: BookKeeping, run: Callable[[BookKeeping, slice], None], jobs: list[slice]
    ) -> None:
        while self.copies < threads.cores():  # one copy of the module for every thread
            self.idle.put(method.copy())
            self.copies += 1

        def one(rows: slice) -> None:
            worker = self.idle.get()
            try:
                run(worker, rows)
            finally:
                self.idle.put(worker)

        threads.run_all(one, jobs)

    def _book_keeping(self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor) -> BookKeeping:
        method = BookKeeping(self.module, self.loss)
        method.check(points, x, y)
        return method


def _of_finite(
    worker: BookKeeping | Vmap,
    points: Tensor,
    x: Tensor,
    y: Tensor,
    mask: Tensor,
    weigh: Weigh,
    *,
    target: Tensor,
    add: bool,
) -> Tensor:
    """`worker.weighted` without the records that have no finite norm; theirs is 0, as if they were masked."""
    try:
        return worker.weighted(points, x, y, mask, weigh, target=target, add=add)
    except NotFiniteError as found:
        mask = mask & ~found.records
        x, y = blank_masked(x, mask), blank_masked(y, mask)
        return _of_finite(worker, points, x, y, mask, weigh, target=target, add=add)


@dataclass(frozen=True)
class Slices:
    """How many nodes and how many of their records go into one slice; whether slices run side by side."""

    nodes: int
    records: int
    parallel: bool


def slices(nodes: int, lot: int, bytes_per_record: int, max_bytes: int, cores: int) -> Slices:
    """The cost model. It looks at sizes only, never at a clock, so that equal runs give equal numbers."""
    size = max(1, bytes_per_record)
    fits = max(1, min(max_bytes // cores, TILE_BYTES) // size)
    if fits < lot:  # one node at a time, its lot whole if memory allows
        return Slices(1, min(lot, max(1, max_bytes // cores // size)), cores > 1 and nodes > 1)
    rows = min(nodes, fits // lot)
    if cores == 1 or nodes == 1 or nodes * lot * size < PARALLEL_BYTES:
        return Slices(rows, lot, parallel=False)
    rounds = -(-nodes // (rows * cores))  # equally many slices for every core
    return Slices(-(-nodes // (rounds * cores)), lot, parallel=True)


def _blank_if_needed(values: Tensor, mask: Tensor) -> Tensor:
    """The copy of a full lot, every round, would take longer than its gradients: padding may be blank already."""
    return blank_masked(values, mask) if bool((values[~mask] != 0).any()) else values


def blank_masked(values: Tensor, mask: Tensor) -> Tensor:
    """Zeros where masked: padding may hold anything, and 0 · NaN would not be 0."""
    return values.masked_fill(~mask.view(*mask.shape, *[1] * (values.ndim - 2)), 0)
