"""The effect of one record on the sums of a run: lots with and without it, as training gives them to the run's vector.

A scene fixes everything else: how many nodes share the batch, their points and lots, the clip of a draw. The record
joins a lot in one of three ways, for a lot may have room for it or not:

    in place   its place was padding before: the same shapes with and without it
    grown      the lot is one record longer with it, and the other nodes are padded
    swapped    it takes the place of an ordinary record: no padding at all, and twice the bound may move

Three figures are compared: its own node's sum may move by one bound; another node's sum may not move, since nodes
share a batch but never a statistic; a later sum may not move, since a module with memory would release a record twice.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from gossamer.auditing.sensitivity import Figure, OddRecord, OddRecords, RecordError
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.kernels.stack import ParameterStack
from gossamer.mechanism.clipping import ClipStep
from gossamer.mechanism.noise.base import RANDOM_LAYERS
from gossamer.mechanism.reader import Vector
from gossamer.training.assemble import Parts

OWN, OTHER, LATER = "its own node's sum", "another node's sum", "a later sum"
How = Literal["in place", "grown", "swapped"]
_MOST_FLOATS = 1 << 24  # of all points of a scene: with large models not every node is in it
_MOST_ROUNDING = 1e-3  # of a bound: more is no excuse
_UNIT = 2.0**-24  # the relative error of one float32 operation

# nodes in the batch (0: all), records in a lot, which records, distance of the points from the start, how it joins
_PLAN: tuple[tuple[int, int, str, float, How], ...] = (
    (0, 2, "ordinary", 0.05, "in place"),
    (1, 3, "ordinary", 0.05, "swapped"),
    (1, 0, "ordinary", 0.05, "grown"),
    (0, 1, "ordinary", 0.0, "in place"),
    (0, 3, "tiny", 0.05, "grown"),
    (1, 2, "ordinary", 1.0, "grown"),
    (0, 4, "normal", 1.0, "swapped"),
    (1, 4, "alike", 0.05, "in place"),
    (2, 2, "tiny", 0.05, "swapped"),
    (0, 8, "ordinary", 0.05, "grown"),
    (1, 7, "ordinary", 0.0, "swapped"),
    (0, 0, "ordinary", 1.0, "in place"),
)


class Lots(NamedTuple):
    x: Tensor  # (h, B, …)
    y: Tensor  # (h, B)
    mask: Tensor  # (h, B)

    def padded(self) -> Lots:
        """One place longer."""
        return Lots(*(torch.cat([part, part.new_zeros(len(part), 1, *part.shape[2:])], 1) for part in self))


@dataclass(frozen=True)
class LotScene:
    lots: Lots  # without the record
    next: Lots  # of the release after
    start: Tensor  # (h, d) where training starts
    spread: float  # of the points around it
    clip: ClipStep
    draw: str  # which clip that is
    victim: int  # whose record it is
    place: int  # where it comes in
    how: How
    records: str  # of which records the lots are
    number: int  # also the seed of points and of the module's own randomness
    nudge: float = 0.0  # how far each coordinate of the points is moved, relative to its size

    @property
    def points(self) -> Tensor:
        """(h, d); computed on demand, since those of large models are large."""
        chance = torch.Generator().manual_seed(self.number)
        points = self.start + self.spread * torch.randn(self.start.shape, generator=chance).to(self.start)
        if self.nudge:
            signs = 2.0 * torch.randint(2, points.shape, generator=chance).to(points) - 1
            points = (points.double() * (1 + 2 * self.nudge * signs.double())).to(points)
        return points

    @property
    def priced(self) -> float:
        """The bounds that the victim's sum may move: swapping takes one record out and puts one in.

        A lot clipped as a whole may come out on the opposite side of its ball.
        """
        return 2.0 if self.how == "swapped" or self.clip.of_lot else 1.0

    @property
    def description(self) -> str:
        size, hosted = int(self.lots.mask[self.victim].sum()), len(self.start)
        return f"{self.how}, lot of {size} {self.records}, {hosted} node{'s' * (hosted > 1)}, {self.draw}"

    def with_room(self) -> Lots:
        """The lots without the record, in the shapes they have with it."""
        return self.lots.padded() if self.how == "grown" else self.lots

    def with_record(self, record: OddRecord) -> Lots:
        room = self.with_room()
        x, y, mask = room.x.clone(), room.y.clone(), room.mask.clone()
        x[self.victim, self.place], y[self.victim, self.place] = record.x.to(x), record.y.to(y)
        mask[self.victim, self.place] = True
        return Lots(x, y, mask)

    def sums(self, vector: Vector, lots: Lots) -> Tensor:
        """The vector's sums (h, d) in double precision, as the reader asks for them.

        The module's own randomness is the same every time: it does not depend on records, so a difference that it
        makes is no leak.
        """
        points = self.points
        if hasattr(vector, "draw_from"):
            vector.draw_from(Stream.seeded(self.number), RANDOM_LAYERS, np.arange(len(points)), 0)
        with _randomness(self.number):
            sums, _ = self.clip.sums(vector, points, lots.x.clone(), lots.y.clone(), lots.mask.clone())
        return sums.double()

    def in_bounds(self, a: Tensor, b: Tensor) -> Tensor:
        """(h,) distances of rows in units of what the noise is scaled to.

        ∞ where one alone is finite, 0 where neither is: then nothing can be compared.
        """
        finite_a, finite_b = a.isfinite().all(1), b.isfinite().all(1)
        apart = torch.linalg.vector_norm(torch.nan_to_num(a) - torch.nan_to_num(b), dim=1)
        apart = apart.where(finite_a & finite_b, 0.0).where(~(finite_a ^ finite_b), math.inf)
        moved: Tensor = apart / self.clip.reference[: len(self.start)].double()
        return moved


def scenes(parts: Parts, seed: int) -> list[LotScene]:
    """Lots of the run's own records; clips from all of its schedule; only swaps where a record is replaced."""
    chance = torch.Generator().manual_seed(seed)
    most = max(1, min(len(parts.nodes), _MOST_FLOATS // max(1, parts.plan.stack.dim)))
    swaps = parts.plan.privacy.adjacency == "replace-one"
    clips = _clips(parts)
    scenes = []
    for number, (nodes, size, records, spread, how) in enumerate(_PLAN):
        draw, clip = clips[number % len(clips)]
        hosted = min(nodes or most, most)
        joins: How = "swapped" if swaps else how
        lots = _lots(parts, hosted, size if joins == "grown" else size + 1, records, chance)
        victim = number % hosted
        place = size if joins == "grown" else int(torch.randint(size + 1, (), generator=chance))
        if joins == "in place":
            lots.mask[victim, place] = False
        following, start = _lots(parts, hosted, 2, "ordinary", chance), parts.x0[:hosted]
        about = (victim, place, joins, records, number)
        scenes.append(LotScene(lots, following, start, spread, clip, draw, *about))
    return scenes


def _lots(parts: Parts, hosted: int, size: int, records: str, chance: torch.Generator) -> Lots:
    held = torch.tensor(parts.records.sizes)
    if len(held) != len(parts.nodes):  # one pool of all records
        held = held.new_tensor([len(parts.records.x)] * len(parts.nodes))
    rows = (torch.rand(len(held), size, generator=chance) * held[:, None]).long()
    mask = (held > 0)[:, None].expand_as(rows).clone()
    x, y = (part[:hosted].clone() for part in parts.records.rows(rows))
    if size and records == "alike":
        x, y = x[:, :1].expand_as(x).clone(), y[:, :1].expand_as(y).clone()
    elif x.is_floating_point() and records == "tiny":
        x = x / x.abs().max().clamp_min(1e-30) / 2
    elif x.is_floating_point() and records == "normal":
        x = torch.randn(x.shape, generator=chance).to(x)
    return Lots(x, y, mask[:hosted])


def _clips(parts: Parts) -> list[tuple[str, ClipStep]]:
    """Of the first and last draw, the loosest and tightest between them, and the extremes of an adaptive clip."""
    clip, nodes = parts.clip(), len(parts.nodes)
    last = max(0, parts.plan.privacy.draws - 1)
    some = sorted({0, last // 2, last, *np.linspace(0, last, num=min(last + 1, 1000), dtype=int).tolist()})
    bounds = {k: float(clip.at(k, nodes).reference[0]) for k in some}
    chosen = {0, last, min(some, key=lambda k: bounds[k]), max(some, key=lambda k: bounds[k])}
    steps = [(f"clip of draw {k}", clip.at(k, nodes)) for k in sorted(chosen)]
    if not clip.scale_is_public:  # it depends on records, which may move it far
        for factor in (1e-12, 1e12):
            moved = parts.clip()
            moved.restore({key: value * factor for key, value in moved.state().items()})
            steps.append((f"clip times {factor:.0e}", moved.at(last, nodes)))
    return steps


@contextmanager
def _randomness(seed: int) -> Iterator[None]:
    """Seed the global randomness of Python, numpy and torch, and restore it afterwards."""
    plain, numpy_state = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(plain)
        np.random.set_state(numpy_state)


def bounds_records(parts: Parts) -> bool:
    return not parts.noise_on_messages and parts.clip().at(0, len(parts.nodes)).enforced


class SumProbe:
    """Measures what one record does to the sums of a run.

    With one vector from beginning to end, as a run has one: if it remembers a record, a later sum shows it.
    """

    improvable = True

    def __init__(self, parts: Parts) -> None:
        o = parts.plan
        if not bounds_records(parts):
            what = f"privacy.clip.kind = {o.config.privacy.clip.kind!r} bounds no record here"
            remedy = 'a search for a broken bound needs a clip that is enforced, for example mode = "sound"'
            raise UserError(f"{what}; {remedy}.")
        self._parts, self._module = parts, o.module
        self._vector: Any = None
        # By scene: sums without the record, later sums, and the rounding of both.
        self._baselines: dict[int, tuple[Tensor, Tensor, Tensor, Tensor]] = {}

    def trials(self, odd_records: OddRecords, seed: int) -> Iterator[tuple[LotScene, OddRecord]]:
        """All pairs, every record once before any comes twice, with the scenes in turn."""
        records, all_scenes = self._parts.records, scenes(self._parts, seed)
        odd = odd_records(records.x, records.y, self._parts.plan.classes, seed)
        for turn in range(len(all_scenes)):
            for n, record in enumerate(odd):
                yield all_scenes[(n + turn) % len(all_scenes)], record

    def measure(self, scene: LotScene, record: OddRecord) -> list[Figure]:
        now_without, later_without, rounding, rounding_later = self._baseline(scene)
        try:
            now, later = self._sums(scene, scene.with_record(record))
        except Exception as error:
            raise RecordError(_first_line(error)) from error
        moved, after = scene.in_bounds(now, now_without), scene.in_bounds(later, later_without)
        latest = int((after - rounding_later).argmax())
        figures = [
            (OWN, float(moved[scene.victim]), scene.priced, float(rounding[scene.victim])),
            (LATER, float(after[latest]), 0.0, float(rounding_later[latest])),
        ]
        others = [i for i in range(len(moved)) if i != scene.victim]
        if others:
            worst = max(others, key=lambda i: float(moved[i] - rounding[i]))
            figures.append((OTHER, float(moved[worst]), 0.0, float(rounding[worst])))
        return figures

    def slope(self, scene: LotScene, record: OddRecord) -> Tensor | None:
        """The derivative of all other records' losses by this record: None where they do not depend on it.

        A guide only: whether the run's sums depend on it is for the sums to say.
        """
        lots = scene.with_record(record)
        place = scene.victim * lots.mask.shape[1] + scene.place
        x = lots.x.flatten(0, 1).clone().requires_grad_()
        own = copy.deepcopy(self._module)
        point = scene.points[scene.victim : scene.victim + 1]
        values = {name: view[0] for name, view in ParameterStack(own).views(point).items()}
        try:
            with torch.enable_grad():
                outputs = functional_call(own, values, (x,))
                losses = self._parts.plan.loss(outputs, lots.y.flatten(0, 1))
                others = torch.ones_like(losses)
                others[place] = 0
                (slope,) = torch.autograd.grad((losses * others).sum(), x, allow_unused=True)
        except Exception:  # data-dependent code, in-place changes: then there is no derivative to follow
            return None
        if slope is None or not bool(slope[place].isfinite().all()) or not bool(slope[place].any()):
            return None
        return slope[place].detach()

    def _baseline(self, scene: LotScene) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if scene.number in self._baselines:
            return self._baselines[scene.number]
        try:
            if not self._baselines:
                self._refuse_unrepeatable(scene)
            now, later = self._sums(scene, scene.lots)
            self._baselines[scene.number] = now, later, *self._rounding(scene, now, later)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"the module stops on ordinary records: {_first_line(error)}") from error
        return self._baselines[scene.number]

    def _rounding(self, scene: LotScene, now: Tensor, later: Tensor) -> tuple[Tensor, Tensor]:
        """(h,) each, in bounds: how far rounding alone can put two sums over these lots, and over the next, apart.

        A number goes through n additions in float32, of unit roundoff u: along the rows of every weight, back along
        its columns, and over a record's places. k records of at most one bound each then give a sum to within
        u (n + k) k, and n additions move it as far as n roundings of the weights would, which is measured: large inputs
        or a deep network amplify them. Measured too is a lot that is longer by padding alone, since a convolution adds
        in another order for another shape. None of it depends on the record.
        """
        additions = math.prod(scene.lots.x.shape[2:])
        additions += sum(p[0].numel() + len(p) for p in self._module.parameters() if p.dim() > 1)
        rounded = self._sums(replace(scene, nudge=_UNIT), scene.lots)
        longer = self._sums(scene, scene.with_room())[0] if scene.how == "grown" else now
        measured = additions * scene.in_bounds(rounded[0], now)
        measured = torch.maximum(measured, scene.in_bounds(longer, now))
        measured_later = additions * scene.in_bounds(rounded[1], later)

        def in_all(measured: Tensor, records: int) -> Tensor:
            return (2 * (measured + _UNIT * (additions + records) * records)).clamp_max(_MOST_ROUNDING)

        size, size_later = scene.lots.mask.shape[1] + 1, scene.next.mask.shape[1]
        return in_all(measured, size), in_all(measured_later, size_later)

    def _new_vector(self, module: nn.Module) -> Vector:
        o = self._parts.plan
        return o.method.vector(o.algorithm, module, o.classes)

    def _sums(self, scene: LotScene, lots: Lots) -> tuple[Tensor, Tensor]:
        """The sums of these lots and of the next ones."""
        if self._vector is None:
            self._vector = self._new_vector(copy.deepcopy(self._module))
        return scene.sums(self._vector, lots), scene.sums(self._vector, scene.next)

    def _refuse_unrepeatable(self, scene: LotScene) -> None:
        first, again = (self._sums(scene, scene.lots)[0] for _ in range(2))
        if bool((scene.in_bounds(first, again) > _MOST_ROUNDING).any()):
            what = "the module's sums over one lot differ, and torch, numpy and Python draw the same numbers"
            remedy = "seed its own generator, or draw with torch"
            raise UserError(f"{what}, so no search can tell what a record does; {remedy}.")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
