"""The weighted sum of per-sample gradients, for all nodes at once: the only thing training asks of a model.

Every way of clipping is a weight that depends on a record's gradient norm alone:
constant C is min(1, C/‖g‖), normalised is 1/(‖g‖ + γ), none is 1. So this kernel knows nothing about privacy. Where
records are clipped together, as those of a person are, the norm is that of the sum of their gradients, or of its mean.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gossamer.errors import UserError
from gossamer.kernels import threads
from gossamer.kernels.bookkeeping import BookKeeping, NotSupportedError
from gossamer.kernels.dense import Dense
from gossamer.kernels.finite import NotFiniteError
from gossamer.kernels.noise import Stream
from gossamer.kernels.norms import norms_of
from gossamer.kernels.oracle import Vmap, refusal, why
from gossamer.kernels.persons import Persons, stretches
from gossamer.kernels.probe import disagreement
from gossamer.kernels.random_layers import Numbers
from gossamer.kernels.stack import ParameterStack
from gossamer.kernels.threads import runs_compiled

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_KEPT = 1 << 25  # glibc's own limit for blocks on its heap


@functools.cache
def keep_freed_memory() -> bool:
    """Do so once, where the C library is glibc; say whether it was done."""
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return bool(
        library.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT) and library.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
    )


logger = logging.getLogger("gossamer")
_noticed: WeakSet[nn.Module] = WeakSet()  # that they take the slow way is said once

Weigh = Callable[[Tensor], Tensor]
"""Per-sample gradient norms (m, B) -> weights (m, B), elementwise."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs (N, ...) and targets (N, ...) -> one loss per record (N,)."""

DEFAULT_MAX_BYTES = 1 << 30
TILE_BYTES = 1 << 25  # working set of one slice: larger ones leave the cache, smaller ones are all overhead
PARALLEL_BYTES = 1 << 22  # below this the threads would only wait for each other


Spread = BookKeeping | Dense  # what can run side by side
Method = Spread | Vmap


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
        persons: Persons | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Σ_b mask · weigh(‖g_ib‖) · g_ib for every node i, (m, d), and the norms (m, B), 0 where masked.

        points (m, d), x (m, B, *features), y (m, B, ...), mask bool (m, B). What masked rows of x and y hold
        does not matter. B may be 0. With `unit` (m,), node i weighs its norms in that unit, weigh(‖g_ib‖ / unit_i):
        how nodes have bounds of their own although `weigh` sees a slice of them at a time.

        With `persons`, g_ip is the sum (or the mean) of all gradients of person p, and the norms are theirs, (m, P). A
        person of whom one record has no finite gradient is left out as a whole.
        """

    def draw_from(self, stream: Stream, purpose: int, nodes: NDArray[np.int64], step: int) -> None:
        """Where random layers draw in the next call; without this, from a secret stream of their own."""

    def try_on(self, x: Tensor, y: Tensor) -> None:
        """Choose how to compute for records like x (m, B, …) and targets like y: a refusal comes now."""


def clipped_sum(
    module: nn.Module, loss: Loss, *, method: str = "auto", max_bytes: int = DEFAULT_MAX_BYTES
) -> ClippedSum:
    """The clipped-sum kernel of a module.

    method: "vmap" is the slow reference, "book-keeping" insists on the fast way, "auto" takes it where it is
    exact and logs a notice where it is not. Lots that need more than about `max_bytes` are done in slices.

    Two nodes with three records each, every record's gradient scaled down to norm 1 before they are added:

    >>> import torch
    >>> from torch import nn
    >>> from gossamer.kernels.clipped_sum import clipped_sum
    >>> from gossamer.kernels.stack import ParameterStack
    >>> model = nn.Linear(4, 2)
    >>> kernel = clipped_sum(model, nn.CrossEntropyLoss(reduction="none"))
    >>> points = ParameterStack(model).flatten(model).repeat(2, 1)  # a model for each node
    >>> x, y = torch.randn(2, 3, 4), torch.tensor([[0, 1, 0], [1, 1, 0]])
    >>> everyone = torch.ones(2, 3, dtype=torch.bool)
    >>> sums, norms = kernel(points, x, y, everyone, lambda norms: (1 / norms).clamp_max(1))
    >>> sums.shape, norms.shape, bool((sums.norm(dim=1) <= 3).all())
    (torch.Size([2, 10]), torch.Size([2, 3]), True)
    """
    if method not in {"auto", "vmap", "book-keeping"}:
        raise UserError(f'method = "{method}" is unknown; choose "auto", "book-keeping" or "vmap"')
    keep_freed_memory()
    return _Engine(module, loss, method, max_bytes)


class _Engine:
    """Chooses the method at the first lot, then cuts lots into slices and spreads them over the cores."""

    def __init__(self, module: nn.Module, loss: Loss, method: str, max_bytes: int) -> None:
        self.module, self.loss, self.asked, self.max_bytes = module, loss, method, max_bytes
        self.method: Method | None = None
        self.made_for: Any = None
        self.idle: SimpleQueue[Spread] = SimpleQueue()
        self.copies = 0
        self.numbers: Numbers | None = None

    def draw_from(self, stream: Stream, purpose: int, nodes: NDArray[np.int64], step: int) -> None:
        self.numbers = Numbers(stream, purpose, nodes, step)

    def try_on(self, x: Tensor, y: Tensor) -> None:
        stack = ParameterStack(self.module)
        self._method(stack.flatten(self.module).unsqueeze(0), x, y)

    def __call__(
        self,
        points: Tensor,
        x: Tensor,
        y: Tensor,
        mask: Tensor,
        weigh: Weigh,
        *,
        unit: Tensor | None = None,
        persons: Persons | None = None,
    ) -> tuple[Tensor, Tensor]:
        nodes, lot = mask.shape
        numbers, self.numbers = self.numbers or Numbers.secret(nodes), None
        if persons is not None and persons.alone:
            persons = None  # the very same numbers as for records
        norms = points.new_zeros(nodes, lot if persons is None else persons.counts.shape[1])
        there = int(mask.sum())  # one question to the device for both answers
        if there == 0:
            return torch.zeros_like(points), norms
        ragged = there < mask.numel()
        method = self._method(points, x, y)
        total = torch.empty_like(points, memory_format=torch.contiguous_format)
        spread = runs_compiled(points) and isinstance(method, Spread) and method.prefers_threads
        cores = threads.cores() if spread else 1
        held = method.bytes_per_record
        if persons is not None:  # as if every person had one record: their gradients may be written out
            held += method.bytes_per_person
        plan = slices(nodes, lot, held, self.max_bytes, cores, method.bytes_per_node)

        def run(worker: Method, rows: slice) -> None:
            own_unit = None if unit is None else unit[rows]
            for records, whose in stretches(persons, rows, lot, plan.records):
                part = rows, records
                slice_x, slice_y = x[part], y[part]
                if ragged:  # places must lie within their table; what numbers do, `of_finite` undoes
                    slice_y = blank_masked(slice_y, mask[part])
                    slice_x = slice_x if x.is_floating_point() else blank_masked(slice_x, mask[part])
                norms[rows, whose] = of_finite(
                    worker,
                    points[rows],
                    slice_x,
                    slice_y,
                    mask[part],
                    weigh,
                    own_unit,
                    total[rows],
                    add=bool(records.start),
                    persons=None if persons is None else persons.part(rows, records, whose),
                    random=numbers.draw(method.random, rows, range(lot)[records], points),
                )

        jobs = [slice(i, i + plan.nodes) for i in range(0, nodes, plan.nodes)]
        if plan.parallel and isinstance(method, Spread):
            self._side_by_side(method, run, jobs, x, y)
        else:
            for rows in jobs:
                run(method, rows)
        return total, norms

    def _method(self, points: Tensor, x: Tensor, y: Tensor) -> Method:
        """The method of the module in its present mode, for records of this shape."""
        modes = tuple(layer.training for layer in self.module.modules())
        wanted = modes, x.shape[2:], x.dtype, y.shape[2:], y.dtype
        if self.method is None or self.made_for != wanted:
            with torch.random.fork_rng(devices=[]):  # looking at a module that draws at random changes no run
                self.method, self.made_for = self._chosen(points, x, y), wanted
            self.idle, self.copies = SimpleQueue(), 0
        return self.method

    def _chosen(self, points: Tensor, x: Tensor, y: Tensor) -> Method:
        if self.asked == "vmap":
            return self._record_by_record(points, x, y)
        try:
            make = partial(BookKeeping, loss=self.loss, x=x, y=y)
            method = make(self.module)
            found = _disagreement(make, method, points, x, y)
            if found is not None:
                raise NotSupportedError(found)
            method.measure_bytes(points, x, y)
            compiled = Dense.of(method, x, y) if runs_compiled(points) else None
            if compiled is not None and _disagreement(make, compiled, points, x, y) is None:
                return compiled
        except NotSupportedError as reason:
            if self.asked == "book-keeping":
                words = f'method = "book-keeping" does not fit this module: {reason}; use "auto"'
                raise UserError(words) from None
            slow = self._record_by_record(points, x, y)
            if self.module not in _noticed:
                _noticed.add(self.module)
                logger.warning("gradients come from vmap, record by record, which is slower: %s", reason)
            return slow
        return method

    def _record_by_record(self, points: Tensor, x: Tensor, y: Tensor) -> Vmap:
        method = Vmap(self.module, self.loss, x, y)
        found = _disagreement(lambda module: Vmap(module, self.loss, x, y), method, points, x, y)
        if found is not None:
            raise refusal("", type(self.module).__name__, f"traced, {found}")
        return method

    def _side_by_side(
        self,
        method: Spread,
        run: Callable[[Spread, slice], None],
        jobs: list[slice],
        x: Tensor,
        y: Tensor,
    ) -> None:
        while self.copies < threads.cores():  # one copy of the module for every thread
            self.idle.put(method.copy(x, y))
            self.copies += 1

        def one(rows: slice) -> None:
            worker = self.idle.get()
            try:
                run(worker, rows)
            finally:
                self.idle.put(worker)

        threads.run_all(one, jobs)


def _disagreement(
    make: Callable[[nn.Module], Method], method: Method, points: Tensor, x: Tensor, y: Tensor
) -> str | None:
    """`disagreement`, or why the method fails on made-up records on which the module does not."""
    try:
        return disagreement(make, method, points, x, y)
    except (UserError, NotSupportedError):
        raise
    except Exception as reason:  # an operation that vmap cannot do, or not for any record
        return why(reason)


def of_finite(
    worker: Method,
    points: Tensor,
    x: Tensor,
    y: Tensor,
    mask: Tensor,
    weigh: Weigh,
    unit: Tensor | None,
    target: Tensor,
    *,
    add: bool,
    persons: Persons | None = None,
    random: Sequence[Tensor] = (),
) -> Tensor:
    """`worker.weighted` without the records, or persons, that have no finite norm; theirs is 0, as if masked.

    Likewise without those on which the module fails, as where a record's values are places outside of a table or a
    matrix without an inverse: whether a run ends must not depend on a record.

    A weight of 0 does not undo a gradient that is not a number, be it such a record's or that of the padding. Where the
    sum shows one, every node is done by itself, with nothing but its usable records, and of these with the same random
    numbers: whether another record is usable must not change what a record adds.
    """
    before = target.clone() if add else None
    try:
        norms = worker.weighted(
            points, x, y, mask, _in_units(weigh, unit), target=target, add=add, persons=persons, random=random
        )
    except NotFiniteError as found:
        mask = mask & ~_records_of(found, persons)
    except Exception:  # whatever an operation raises; what is no record's fault is raised again below
        failing = _failing(worker, points, x, y, mask, random)
        if persons is not None:
            failing = persons.together(mask).any_of(failing)
        mask = mask & ~_records_of(NotFiniteError(failing), persons)
    else:
        if worker.wrote_finite(target):
            return norms
    _ = target.zero_() if before is None else target.copy_(before)
    norms = torch.zeros_like(mask if persons is None else persons.counts, dtype=points.dtype)
    for i in range(len(points)):
        own = slice(i, i + 1)
        weigh_own = _in_units(weigh, None if unit is None else unit[own])
        whose = None if persons is None else persons.part(own, slice(None), slice(None))
        norms[own] = _add_usable(
            worker, points[own], x[own], y[own], mask[own], weigh_own, target[own], whose,
            [numbers[own] for numbers in random],
        )  # fmt: skip
    return norms


def _failing(
    worker: Method, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, random: Sequence[Tensor]
) -> Tensor:
    """(m, B): the records that cannot be computed even by themselves."""
    failing, alone = torch.zeros_like(mask), torch.ones(1, 1, dtype=torch.bool, device=mask.device)
    for i, b in mask.nonzero().tolist():
        node, one = slice(i, i + 1), (slice(i, i + 1), slice(b, b + 1))
        point, scratch = points[node], torch.empty_like(points[node])
        try:
            worker.weighted(
                point, x[one], y[one], alone, torch.ones_like, target=scratch, add=False,
                random=[numbers[one] for numbers in random],
            )  # fmt: skip
        except NotFiniteError:
            pass  # is found again, with the others
        except Exception:
            failing[one] = True
    return failing


def _records_of(found: NotFiniteError, persons: Persons | None) -> Tensor:
    """(m, B): which records are left out."""
    return found.records if persons is None else persons.records_of(found.records)


def _in_units(weigh: Weigh, unit: Tensor | None) -> Weigh:
    return weigh if unit is None else lambda norms: weigh(norms / unit[:, None])


def _add_usable(
    worker: Method,
    point: Tensor,
    x: Tensor,
    y: Tensor,
    mask: Tensor,
    weigh: Weigh,
    target: Tensor,
    persons: Persons | None,
    random: Sequence[Tensor],
) -> Tensor:
    """Add one node's sum over its usable records, picked out of x (1, B, …), into `target`; the norms (1, B)."""
    usable = mask[0].clone()
    norms = torch.zeros_like(mask if persons is None else persons.counts, dtype=point.dtype)
    while bool(usable.any()):
        everyone = torch.ones(1, int(usable.sum()), dtype=torch.bool, device=mask.device)
        total = torch.empty_like(target)
        whose = None if persons is None else persons.kept(usable)
        try:
            found = worker.weighted(
                point, x[:, usable], y[:, usable], everyone, weigh, target=total, add=False, persons=whose,
                random=[numbers[:, usable] for numbers in random],
            )  # fmt: skip
        except NotFiniteError as bad:
            usable[usable.clone()] = ~_records_of(bad, whose)[0]
            continue
        if not worker.wrote_finite(
            total
        ):  # no rule does this; if a new one did, nothing of it may be released
            raise FloatingPointError("a sum of clipped records is not finite")
        target += total
        norms[:, usable if persons is None else slice(None)] = found
        break
    return norms


@dataclass(frozen=True)
class Slices:
    """How many nodes and how many of their records go into one slice; whether slices run side by side."""

    nodes: int
    records: int
    parallel: bool


def slices(
    nodes: int, lot: int, bytes_per_record: int, max_bytes: int, cores: int, bytes_per_node: int = 0
) -> Slices:
    """The cost model. It looks at sizes only, never at a clock, so that equal runs give equal numbers.

    `bytes_per_node` are read and written whatever the lot: no reason for smaller slices, but for more cores.
    """
    size = max(1, bytes_per_record)
    fits = max(1, min(max_bytes // cores, TILE_BYTES) // size)
    if fits < lot:  # one node at a time, its lot whole if memory allows
        return Slices(1, min(lot, max(1, max_bytes // cores // size)), cores > 1 and nodes > 1)
    rows = min(nodes, fits // lot)
    if cores == 1 or nodes == 1 or nodes * (lot * size + bytes_per_node) < PARALLEL_BYTES:
        return Slices(rows, lot, parallel=False)
    rounds = -(-nodes // (rows * cores))  # equally many slices for every core
    return Slices(-(-nodes // (rounds * cores)), lot, parallel=True)


def blank_masked(values: Tensor, mask: Tensor) -> Tensor:
    """Zeros where masked: padding may hold anything, and 0 · NaN would not be 0."""
    return values.masked_fill(~mask.view(*mask.shape, *[1] * (values.ndim - 2)), 0)


class CentredSum:
    """A clipped sum over parameters (c, θ), c of the records' size p.

    While c is 0: Σ weigh(‖x‖) x in the place of c. Then: the inner sum at centred records in the place of θ. What is to
    be done follows from the point alone, so that a run that is resumed goes on as it would have.
    """

    def __init__(self, inner: ClippedSum, size: int, centre: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._inner, self._size, self._centre = inner, size, centre
        self._kept: tuple[Tensor, Tensor, Tensor] | None = None

    def __call__(
        self,
        points: Tensor,
        x: Tensor,
        y: Tensor,
        mask: Tensor,
        weigh: Callable[[Tensor], Tensor],
        *,
        unit: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        total, p = torch.zeros_like(points), self._size
        records = x.flatten(2)
        if not bool(points[:, :p].any()):
            norms = norms_of(records.flatten(0, 1)).view(mask.shape)
            mask = mask & norms.isfinite()
            norms = norms.where(mask, torch.zeros_like(norms))
            weights = weigh(norms if unit is None else norms / unit[:, None]).where(
                mask, torch.zeros_like(norms)
            )
            records = records if bool(mask.all()) else blank_masked(records, mask)
            torch.bmm(weights[:, None], records, out=total[:, None, :p])
            return total, norms
        sums, norms = self._inner(
            points[:, p:].contiguous(),
            self._centred(x, records, points[:, None, :p]),
            y,
            mask,
            weigh,
            unit=unit,
        )
        total[:, p:] = sums
        return total, norms

    def draw_from(self, *where: Any) -> None:
        self._inner.draw_from(*where)

    def try_on(self, x: Tensor, y: Tensor) -> None:
        self._inner.try_on(x.flatten(2), y)

    def _centred(self, x: Tensor, records: Tensor, centre: Tensor) -> Tensor:
        """Full lots come again as the same tensor, and the mean moves no more: then once is enough."""
        if self._kept is None or self._kept[0] is not x or not torch.equal(self._kept[1], centre):
            self._kept = x, centre.clone(), self._centre(records, centre)
        return self._kept[2]
