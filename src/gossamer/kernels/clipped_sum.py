"""The weighted sum of per-sample gradients, for all nodes at once: the only thing training asks of a model.

Every way of clipping is a weight that depends on a record's gradient norm alone:
constant C is min(1, C/‖g‖), normalised is 1/(‖g‖ + γ), none is 1. So this kernel knows nothing about privacy. Where
records are clipped together, as those of a person are, the norm is that of the sum of their gradients, or of its mean.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from gossamer.errors import UserError
from gossamer.kernels import threads
from gossamer.kernels.bookkeeping import BookKeeping, NotSupportedError
from gossamer.kernels.dense import layers_of
from gossamer.kernels.layers import weighted_rows
from gossamer.kernels.memory import DEFAULT_MAX_BYTES, PRODUCTS_BYTES, TILE_BYTES, Slices, keep_freed_memory, slices
from gossamer.kernels.noise import Stream
from gossamer.kernels.oracle import Vmap, raising, refusal, why
from gossamer.kernels.persons import Class, Part, Persons, Units
from gossamer.kernels.random_layers import Numbers
from gossamer.kernels.rounding import NotFiniteError, even, most, norms_of, room
from gossamer.kernels.stack import ParameterStack
from gossamer.kernels.threads import full_precision, runs_compiled

logger = logging.getLogger("gossamer")
_warned: WeakSet[nn.Module] = WeakSet()  # modules that take the slow way: the warning comes once

EIGHT, FEW = 8, 32  # records
MANY = 1 << 20  # nodes
SIZES = (1e-6, 1.0, 1e6)
TOLERANCE = 1e-2  # of the norm: above float32 rounding in deep networks, below a forgotten layer
NOTHING = 1e-6  # what inputs of 1e6 may add to the norm of a gradient that vanishes, see `layers.gram_sum`

Weigh = Callable[[Tensor], Tensor]
"""Per-sample gradient norms (m, B) -> weights (m, B), elementwise."""

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs (N, ...) and targets (N, ...) -> one loss per record (N,)."""

Method = BookKeeping | Vmap


class Job(NamedTuple):
    """Nodes of a slice, records of each call; all nodes, or those whose lot is not longer than expected."""

    nodes: slice
    records: int
    all: bool


class ClippedSum:
    """The clipped-sum kernel of a module.

    method: "vmap" is the slow reference, "book-keeping" insists on the fast way, "auto" takes it where it is
    exact and logs a notice where it is not. Lots that need more than about `max_bytes` are done in slices, which are
    spread over the cores.

    Two nodes with three records each, every record's gradient scaled down to norm 1 before they are added:

    >>> import torch
    >>> from torch import nn
    >>> from gossamer.kernels.clipped_sum import ClippedSum
    >>> from gossamer.kernels.stack import ParameterStack
    >>> model = nn.Linear(4, 2)
    >>> kernel = ClippedSum(model, nn.CrossEntropyLoss(reduction="none"))
    >>> points = ParameterStack(model).flatten(model).repeat(2, 1)  # a model for each node
    >>> x, y = torch.randn(2, 3, 4), torch.tensor([[0, 1, 0], [1, 1, 0]])
    >>> everyone = torch.ones(2, 3, dtype=torch.bool)
    >>> sums, norms = kernel(points, x, y, everyone, lambda norms: (1 / norms).clamp_max(1))
    >>> sums.shape, norms.shape, bool((sums.norm(dim=1) <= 3).all())
    (torch.Size([2, 10]), torch.Size([2, 3]), True)
    """

    def __init__(
        self, module: nn.Module, loss: Loss, *, method: str = "auto", max_bytes: int = DEFAULT_MAX_BYTES
    ) -> None:
        if method not in {"auto", "vmap", "book-keeping"}:
            raise UserError(f'method = "{method}" is unknown; choose "auto", "book-keeping" or "vmap"')
        keep_freed_memory()
        self.module, self.loss, self.choice, self.max_bytes = module, loss, method, max_bytes
        self.method: Method | None = None
        self._suits: Any = None  # the modes, shapes and types that the method was chosen for
        self._idle: SimpleQueue[BookKeeping] = SimpleQueue()
        self._copies = 0
        self._numbers: Numbers | None = None
        self._room: int | None = None
        self._chunks: dict[tuple[int, int, int], tuple[int, int, int]] = {}
        self._varies = False

    def expect(self, lot: float, *, varies: bool) -> int:
        """The public expected number of records of a lot: from now on, lots are computed in pieces of one shape.

        Lots that are padded to a multiple of what is returned are not copied here.
        """
        self._room, self._varies = room(lot, varies=varies), varies
        return self._room

    def draw_from(self, stream: Stream, purpose: int, nodes: NDArray[np.int64], step: int) -> None:
        """Where random layers draw in the next call; without this, from a secret stream of their own."""
        self._numbers = Numbers(stream, purpose, nodes, step)

    @full_precision()
    def try_on(self, x: Tensor, y: Tensor) -> None:
        """Choose how to compute for records like x (m, B, …) and targets like y: a refusal comes now."""
        self._method(ParameterStack(self.module).flatten(self.module).unsqueeze(0), x, y)

    @full_precision()
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
        nodes, lot = mask.shape
        numbers, self._numbers = self._numbers or Numbers.secret(nodes), None
        if persons is not None and not persons.alone:
            return self._of_persons(Part(points, x, y, mask, unit=unit), weigh, persons, numbers)
        norms = points.new_zeros(nodes, lot)
        present = int(mask.sum())  # one question to the device for both answers
        if present == 0:
            return torch.zeros_like(points), norms
        ragged = present < mask.numel()
        method = self._method(points, x, y)
        whole = self._room or lot
        late = mask[:, whole:].any(1, keepdim=True)
        longer = late.flatten().tolist()
        plan = self._plan(method, nodes, whole, points, x, y, 1)
        in_pieces = lot > min(plan.records, plan.alone or lot)
        total = torch.empty_like(points, memory_format=torch.contiguous_format)
        if in_pieces:  # each is rounded once, and added up in double precision
            total = torch.zeros_like(total, dtype=torch.float64)

        def run(job: Job, worker: Method = method) -> None:
            rows = job.nodes
            for first in range(0, lot, job.records):
                part = rows, slice(first, first + job.records)
                there = mask[part] if job.all else mask[part] & ~late[rows]
                if in_pieces and not bool(there.any()):
                    continue
                slice_x, slice_y = x[part], y[part]
                if ragged:  # places must lie within their table; what numbers do, `add_finite` undoes
                    slice_y = blank_masked(slice_y, mask[part])
                    slice_x = slice_x if x.is_floating_point() else blank_masked(slice_x, mask[part])
                count = slice_x.shape[1]
                missing = 0 if self._room is None else job.records - count
                some = Part(
                    points[rows],
                    padded(slice_x, missing),
                    padded(slice_y, missing),
                    padded(there, missing),
                    numbers.draw(method.random, rows, range(first, first + count + missing), points),
                    unit=None if unit is None else unit[rows],
                    lot=lot if job.all and longer[rows.start] else whole,
                    most=0 if self._room is None else most(self._room),
                )
                into = torch.empty_like(points[rows]) if in_pieces else total[rows]
                norms[part] = add_finite(worker, some, weigh, into)[:, :count]
                if in_pieces:
                    total[rows] += into

        self._run_all(method, run, plan, longer)
        return total.to(points.dtype), norms

    def _of_persons(self, lots: Part, weigh: Weigh, persons: Persons, numbers: Numbers) -> tuple[Tensor, Tensor]:
        """Class by class, in calls of one shape each."""
        points, x, y, mask, unit = lots.points, lots.x, lots.y, lots.mask, lots.unit
        nodes, lot = mask.shape
        norms = points.new_zeros(persons.counts.shape)
        places = self._room or room(norms.shape[1], varies=False)
        total = torch.zeros_like(points, dtype=torch.float64)
        method = self._method(points, x, y)
        random = numbers.draw(method.random, slice(0, nodes), range(lot), points)
        late = persons.present(mask).sum(1, keepdim=True) > places
        longer = late.flatten().tolist()
        for alike in persons.classes(mask):
            plan = self._plan(method, nodes, max(1, places // alike.each), points, x, y, alike.each)

            def run(job: Job, worker: Method = method, alike: Class = alike) -> None:
                rows, step, whole = job.nodes, job.records, alike.padded(job.records)
                for first in range(0, whole.who.shape[1], step):
                    own = whole.part(rows, slice(first, first + step))
                    somebody = (own.who >= 0) if job.all else (own.who >= 0) & ~late[rows]
                    if not bool(somebody.any()):
                        continue
                    units = persons.units(own)
                    values = [own.take(part[rows]) for part in (x, y, *random)]
                    values = [blank_masked(part, units.records_of(somebody)) for part in values]
                    some = Part(
                        points[rows], values[0], values[1],
                        own.live.flatten(1) & units.records_of(somebody), values[2:], units,
                        None if unit is None else unit[rows],
                        norms.shape[1] if job.all and longer[rows.start] else places, most(places),
                    )  # fmt: skip
                    into = torch.empty_like(points[rows])
                    measured = add_finite(worker, some, weigh, into)
                    node, place = somebody.nonzero(as_tuple=True)
                    norms[node + rows.start, own.who[node, place]] = measured[node, place]
                    total[rows] += into

            self._run_all(method, run, plan, longer)
        return total.to(points.dtype), norms

    def _plan(self, method: Method, nodes: int, places: int, points: Tensor, x: Tensor, y: Tensor, each: int) -> Slices:
        """How many nodes and units every call takes, of `places` records, or persons of `each` records.

        Where the lot is expected, or of persons, a unit's gradient is the same in every place of such a call, and
        whichever nodes are hosted here.
        """
        spread = runs_compiled(points) and method.prefers_threads
        # A person's gradient may be written out: as if every person had one record.
        held = each * method.bytes_per_record + (0 if each == 1 else method.bytes_per_person)
        cores = threads.cores() if spread else 1
        tile = TILE_BYTES if method.prefers_threads else PRODUCTS_BYTES
        plan = slices(nodes, places, held, self.max_bytes, cores, method.bytes_per_node, tile)
        if self._room is None and each == 1:
            return plan
        key = nodes, fitting, _ = min(plan.nodes, nodes), plan.records, each
        if key not in self._chunks:
            units = next(n for n in range(min(fitting, places), 0, -1) if places % n == 0)
            # How many nodes share a call where many are hosted; the places of one alone do not depend on who is hosted.
            many = min(8, slices(MANY, places, held, self.max_bytes, cores, method.bytes_per_node, tile).nodes)
            wide = even(units, each)
            # Places are dear, calls are not; what `even` adds is dear for persons, sequences and lots of few.
            eight = many == 1 == each and self._varies and EIGHT <= fitting <= FEW and places > EIGHT
            sizes = dict.fromkeys((EIGHT if eight else units, wide))
            own = [n for n in sizes if steady(method, points, x, y, 1, n, each)] or [1]

            @cache
            def together(nodes: int, alone: int) -> int:
                shared = {alone, even(units, nodes * each) if alone == wide else alone}
                fits = (n for n in sorted(shared) if steady(method, points, x, y, nodes, n, each, alone))
                return next(fits, 0) if nodes > 1 < alone else 0

            alone = own[0] if many == 1 else next((n for n in own if together(many, n)), own[-1])
            shared = together(nodes, alone)
            self._chunks[key] = (nodes, shared, alone) if shared else (1, alone, alone)
            if alone == 1 < units:
                logger.warning("gradients are computed one record at a time, so that no record's depends on others")
        nodes, records, alone = self._chunks[key]
        return plan._replace(nodes=nodes, records=records, alone=alone)

    def _method(self, points: Tensor, x: Tensor, y: Tensor) -> Method:
        """The method of the module in its present mode, for records of this shape."""
        modes = tuple(layer.training for layer in self.module.modules())
        needed = modes, x.shape[2:], x.dtype, y.shape[2:], y.dtype
        if self.method is None or self._suits != needed:
            with torch.random.fork_rng(devices=[]):  # looking at a module that draws at random changes no run
                self.method, self._suits = self._choose(points, x, y), needed
            self._idle, self._copies = SimpleQueue(), 0
        return self.method

    def _choose(self, points: Tensor, x: Tensor, y: Tensor) -> Method:
        if self.choice == "vmap":
            return self._record_by_record(points, x, y)
        try:
            make = partial(BookKeeping, loss=self.loss, x=x, y=y)
            method = make(self.module)
            problem = disagreement(make, method, points, x, y)
            if problem is not None:
                raise NotSupportedError(problem)
            method.measure_bytes(points, x, y)
            method.layers = layers_of(method, x, y) if runs_compiled(points) else None
            if method.layers is not None and disagreement(make, method, points, x, y) is not None:
                method.layers = None
            return method
        except NotSupportedError as reason:
            if self.choice == "book-keeping":
                words = f'method = "book-keeping" does not fit this module: {reason}; use "auto"'
                raise UserError(words) from None
            slow = self._record_by_record(points, x, y)
            if self.module not in _warned:
                _warned.add(self.module)
                logger.warning("gradients come from vmap, record by record, which is slower: %s", reason)
            return slow

    def _record_by_record(self, points: Tensor, x: Tensor, y: Tensor) -> Vmap:
        make = partial(Vmap, loss=self.loss, x=x, y=y)
        method = make(self.module)
        problem = disagreement(make, method, points, x, y)
        if problem is not None:
            raise refusal("", type(self.module).__name__, f"traced, {problem}")
        return method

    def _run_all(self, method: Method, run: Callable[..., None], plan: Slices, longer: list[bool]) -> None:
        """All nodes' slices: side by side, with one copy of the module for every thread, where the plan says so.

        Nodes that no slice is full of are computed alone, and those whose lot is longer than expected: neither may show
        in the last digits of another node's sum.
        """
        nodes, size = len(longer), plan.nodes
        shared = range(0, nodes - nodes % size if plan.alone else nodes, size)
        alone = [i for i in range(nodes) if plan.alone and size > 1 and (longer[i] or i >= shared.stop)]
        everyone = size == 1 or not plan.alone or not any(longer)
        jobs = [Job(slice(i, min(i + size, nodes)), plan.records, everyone) for i in shared]
        for some in (jobs, [Job(slice(i, i + 1), plan.alone, True) for i in alone]):
            if not plan.parallel or isinstance(method, Vmap):
                for job in some:
                    run(job)
                continue
            while self._copies < threads.cores():
                self._idle.put(method.copy())
                self._copies += 1

            def one(job: Job) -> None:
                worker = self._idle.get()
                try:
                    run(job, worker)
                finally:
                    self._idle.put(worker)

            threads.run_all(one, some)


def disagreement(
    make: Callable[[nn.Module], Method], method: Method, points: Tensor, x: Tensor, y: Tensor
) -> str | None:
    """In what the method differs from plain gradients of its module, on made-up records; None if in nothing.

    That records are kept apart is decided elsewhere, on graphs (`apart`, `oracle`); a sample of records proves nothing.
    This finds a mistake in that: a trace that is not the module, a layer that is used past its rule. A module that
    draws at random (dropout) can only be compared in evaluation: the method is made once more for that.
    """
    if points.device.type == "meta":  # shapes only, nothing to compare
        return None
    try:
        if method.random:
            method = make(copy.deepcopy(method.original).eval())
        return None if method.random else _difference(method, points, x, y)
    except (UserError, NotSupportedError):
        raise
    except Exception as reason:  # an operation that vmap cannot do, or not for any record
        return why(reason)


def _difference(method: Method, points: Tensor, x: Tensor, y: Tensor) -> str | None:
    # Next to the first node's point: at 0, where some models start, many gradients vanish and prove nothing.
    away = 0.05 * torch.randn(1, points.shape[1], generator=torch.Generator().manual_seed(1))
    point, (records, targets) = points[:1] + away.to(points), _made_up(x, y)
    each = [(records[b : b + 1], targets[b : b + 1]) for b in range(len(records))]
    plain = [_gradient(method, point, *one) for one in each]
    finite = [b for b in range(len(plain)) if bool(plain[b].norm().isfinite())]
    exact = [b for b in finite if _is_exact(plain[b], _gradient(method, point, *each[b], double=True))]
    usable = exact or finite
    # All, then one by itself: a lot's size must not matter.
    for chosen in filter(None, (usable, usable[1:2] or usable[:1])):
        mask = torch.ones(1, len(chosen), dtype=torch.bool, device=x.device)
        lot, total = (records[None, chosen], targets[None, chosen]), torch.zeros_like(point)
        try:
            norms = method.weighted(Part(point, *lot, mask), torch.ones_like, total)
        except NotFiniteError:
            return "its gradients are not finite where those of the module are"
        sizes = torch.stack([plain[b].norm() for b in chosen])
        if not bool(((norms[0] - sizes).abs() <= TOLERANCE * sizes + NOTHING).all()):
            return "its per-sample norms differ from plain gradients"
        if not bool((total[0] - sum(plain[b] for b in chosen)).norm() <= TOLERANCE * sizes.sum() + NOTHING):
            return "its gradients differ from plain gradients"
    return None


def _is_exact(gradient: Tensor, in_double: Tensor) -> bool:
    """Is it the gradient, and not its rounding? A module that only computes in float32 is taken at its word.

    Attention before a LayerNorm multiplies inputs of 1e6 and subtracts them again: of what is left no digit is right,
    in whatever order it is computed, and two right methods differ.
    """
    if not bool(in_double.isfinite().all()):
        return True
    away = (gradient.double() - in_double).norm()
    return bool(away <= TOLERANCE / 4 * in_double.norm() + NOTHING)


def _gradient(method: Method, point: Tensor, x: Tensor, y: Tensor, *, double: bool = False) -> Tensor:
    """One record's by a copy of the module as its author wrote it; not a number where that fails, as on huge values."""
    module, x, point = (
        copy.deepcopy(method.original),
        x.clone(),
        point.to(torch.float64 if double else point.dtype, copy=True),
    )
    if double:
        module = module.double()
        x, y = (part.double() if part.is_floating_point() else part for part in (x, y))
    views = ParameterStack(method.original).views(point)
    own = {name: view[0].detach().requires_grad_() for name, view in views.items()}
    with torch.enable_grad(), raising(method.original):
        try:
            value = method.loss(functional_call(module, own, (x,)), y)
        except Exception:  # it takes numbers for places that are in no table, or is for float32 alone
            return torch.full_like(point[0], torch.nan)
        if not value.requires_grad:
            raise UserError(f"model: the loss depends on no parameter of {type(method.original).__name__}.")
        parts = torch.autograd.grad(value.sum(), list(own.values()), materialize_grads=True, allow_unused=True)
    return torch.cat([part.to_dense().flatten() for part in parts])


def _made_up(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Three records like those of x (m, B, …): normal values of three sizes, or the tokens 0 and 1; targets of 0."""
    shape, ones = (len(SIZES), *x.shape[2:]), [1] * (x.ndim - 2)
    if x.is_floating_point():
        values = torch.tensor(SIZES).view(-1, *ones) * torch.randn(shape, generator=torch.Generator().manual_seed(0))
    else:
        values = (torch.arange(len(SIZES)) % 2).view(-1, *ones).expand(shape)
    return values.to(x), y.new_zeros(len(SIZES), *y.shape[2:])


def failing(method: Method, part: Part) -> Tensor:
    """The records, or persons, on which the method fails: found by halves, node by node."""
    found = torch.zeros_like(part.mask)
    for i, usable in enumerate(part.mask):
        left = [usable.nonzero().flatten()] if bool(usable.any()) else []
        while left:
            records = left.pop()
            try:
                method.weighted(part.only(i, records), torch.ones_like, torch.empty_like(part.points))
            except NotFiniteError:
                continue  # is found again, with the others
            except Exception:  # whatever an operation raises
                if len(records) == 1:
                    found[i, records] = True
                else:
                    left += records.tensor_split(2)
    return part.units.any_of(found)


def add_finite(method: Method, part: Part, weigh: Weigh, target: Tensor) -> Tensor:
    """Put the sums of a part without the records, or persons, that have no finite norm; theirs is 0.

    Likewise without those on which the module fails, as where a record's values are places outside of a table or a
    matrix without an inverse: whether a run ends must not depend on a record.

    A weight of 0 does not undo a gradient that is not a number, be it such a record's or that of the padding. Where the
    sum shows one, all is done again with a usable record in every place that has none: in a call of the same shape,
    whose other records are where they were, so that they add what they would have added anyway.
    """
    stands_in = False
    while not stands_in or bool(part.mask.any()):
        try:
            norms = method.weighted(part, weigh, target)
        except NotFiniteError as error:
            part = part.without(error.records)
        except Exception:  # whatever an operation raises
            fails = failing(method, part)
            if stands_in and not bool(fails.any()):
                raise  # it is no record's fault
            part = part.without(fails)
        else:
            if stands_in:
                target[~part.mask.any(1)] = 0
            if method.wrote_finite(target):
                return norms
            if stands_in:  # no rule does this; if a new one did, nothing of it may be released
                raise FloatingPointError("a sum of clipped records is not finite")
        part, stands_in = part.with_stand_ins(), True
    target.zero_()
    return torch.zeros_like(part.units.any_of(part.mask), dtype=part.points.dtype)


def steady(
    method: Method, points: Tensor, x: Tensor, y: Tensor, nodes: int, number: int, each: int, alone: int = 0
) -> bool:
    """Are norms of gradients the same to the last bit wherever a record, or a person, stands in calls of this shape?

    And a node's sum the same as in a call of its own, of `alone` records? Which instructions a number goes through is a
    matter of shapes, not of values, so made-up records tell.
    """
    generator, lot = torch.Generator().manual_seed(2), (nodes, number, each)
    shape = *lot, *x.shape[2:]
    if x.is_floating_point():
        values = torch.randn(shape, generator=generator).to(x)
    else:
        values = torch.randint(2, shape, generator=generator).to(x)
    random = [torch.rand(*lot, *own, generator=generator).to(points) for own in method.random]
    targets, units = y.new_zeros(nodes, number * each, *y.shape[2:]), Units(each)
    mask = torch.ones(nodes, number * each, dtype=torch.bool, device=x.device)
    # One model for all, so that nodes may change places too; the same one in a run that is resumed.
    model = 0.05 * torch.randn(1, points.shape[1], generator=generator)
    own = model.to(points).expand(nodes, -1).contiguous()
    norms, places = list[Tensor](), torch.arange(number, device=x.device)
    for order in (places, places.flip(0), *(places.roll(number * k // 5 + 1) for k in range(5))):
        turned = len(norms) % 2 == 1
        given = [part[:, order].flip(0) if turned else part[:, order] for part in (values, *random)]
        given = [part.flatten(1, 2) for part in given]
        part = Part(own, given[0], targets, mask, given[1:], units)
        measured = add_finite(method, part, torch.zeros_like, torch.empty_like(own))
        measured = measured.flip(0) if turned else measured
        norms.append(torch.empty_like(measured).index_copy_(1, order, measured))
    if not all(torch.equal(norms[0], other) for other in norms[1:]):
        return False
    more = (alone - number) * each

    def sums_of(points: Tensor, some: slice, missing: int) -> Tensor:
        given = [padded(part[some].flatten(1, 2), missing) for part in (values, *random)]
        sums = torch.empty_like(points[some])
        labels, there = padded(targets[some], missing), padded(mask[some], missing)
        add_finite(method, Part(points[some], given[0], labels, there, given[1:], units), torch.ones_like, sums)
        return sums

    if nodes == 1:
        return True
    for models in (own, 4 * own):  # small weights leave activations nearly linear, and rounding shows less
        together = sums_of(models, slice(0, nodes), 0)
        if not all(
            torch.equal(together[i], sums_of(models, slice(i, i + 1), more)[0]) for i in {0, nodes // 2, nodes - 1}
        ):
            return False
    return True


def padded(values: Tensor, missing: int) -> Tensor:
    """(m, B, …) with zeros in so many more places."""
    if missing == 0:
        return values
    return torch.cat([values, values.new_zeros(len(values), missing, *values.shape[2:])], dim=1)


def blank_masked(values: Tensor, mask: Tensor) -> Tensor:
    """Zeros where masked: padding may hold anything, and 0 · NaN would not be 0."""
    return values.masked_fill(~mask.view(*mask.shape, *[1] * (values.ndim - 2)), 0)


class CentredSum:
    """A clipped sum over parameters (c, θ), c of the records' size p.

    While c is 0: Σ weigh(‖x‖) x in the place of c. Then: the inner sum at centred records in the place of θ. What is to
    be done follows from the point alone, so that a run that is resumed continues as it would have.
    """

    def __init__(self, inner: ClippedSum, size: int, centre: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._inner, self._size, self._centre = inner, size, centre
        self._last: tuple[Tensor, Tensor, Tensor] | None = None
        self.draw_from, self.expect = inner.draw_from, inner.expect

    def __call__(
        self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Weigh, *, unit: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        total, p = torch.zeros_like(points), self._size
        records, centre = x.flatten(2), points[:, None, :p]
        if not bool(centre.any()):
            norms = norms_of(records.flatten(0, 1)).view(mask.shape)
            mask = mask & norms.isfinite()
            norms = torch.where(mask, norms, 0.0)
            weights = torch.where(mask, weigh(norms if unit is None else norms / unit[:, None]), 0.0)
            records = records if bool(mask.all()) else blank_masked(records, mask)
            total[:, :p] = weighted_rows(weights, records, mask.shape[1])
            return total, norms
        # Full lots come again as the same tensor, and the mean moves no more: then centring them once is enough.
        if self._last is None or self._last[0] is not x or not torch.equal(self._last[1], centre):
            self._last = x, centre.clone(), self._centre(records, centre)
        total[:, p:], norms = self._inner(points[:, p:].contiguous(), self._last[2], y, mask, weigh, unit=unit)
        return total, norms

    def try_on(self, x: Tensor, y: Tensor) -> None:
        self._inner.try_on(x.flatten(2), y)
