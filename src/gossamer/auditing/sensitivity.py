"""Is a record really bounded by its clip? A search for one that is not, on the very parts of the run.

What is proven rests on one sentence: a record moves its node's sum by at most the clip, and nothing else at all. That
is a statement about the user's module as much as about the kernels, so here it is attacked: the run's vector, clip,
module (in the mode it trains in) and records, with and without one record, and three figures compared:

    its own node's sum       may move by one bound
    another node's sum       may not move: nodes share a batch, never a statistic
    a later sum              may not move: a module that remembers would release the record twice

First records that are odd in ways known to break things, over lots of every kind; then from the worst of them uphill,
along the module's own derivatives where it has some, else along finite differences. A search that finds nothing proves
nothing; one that finds a record has a reproduction, not an estimate.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.auditing.climb import climb
from gossamer.auditing.odd_records import OddRecord, odd_records
from gossamer.auditing.scenes import Scene, scenes
from gossamer.errors import UserError
from gossamer.mechanism.reader import Vector
from gossamer.training.assemble import Parts

OWN, OTHER, LATER = "its own node's sum", "another node's sum", "a later sum"
QUICK, THOROUGH = 300, 2500  # records tried
QUICK_SECONDS, THOROUGH_SECONDS = 40.0, 120.0  # at most: of large models fewer are tried
_MOST_ROUNDING = 1e-3  # of a bound: what is more is no excuse
_UNIT = 2.0**-24  # the relative error of one float32 operation
_CLIMBS = 3  # how many of the worst records are improved
_CLIMB_SHARE = 0.3  # of all that is tried

MakeVector = Callable[[nn.Module], Vector]


@dataclass(frozen=True)
class Movement:
    """How far a record moved a figure, in bounds, and how far it may."""

    place: str
    moved: float  # ∞: it made the figure not finite, or no longer so
    priced: float
    record: str
    lot: str
    rounding: float = 0.0  # how far float32 alone can put two figures of this size apart, in bounds

    @property
    def broken(self) -> bool:
        return not self.moved <= self.priced + self.rounding

    @property
    def excess(self) -> float:
        return self.moved - self.priced - self.rounding

    @property
    def rank(self) -> tuple[bool, float]:
        """The broken ones first, then those nearest to what is allowed."""
        return self.broken, self.moved - self.priced


@dataclass
class Searched:
    """What a search found: the worst movement of every figure."""

    worst: dict[str, Movement] = field(default_factory=dict)
    tried: int = 0
    seconds: float = 0.0
    in_time: bool = True
    stopped: str | None = None  # what a record made the run stop with, if one did

    def note(self, found: Movement) -> None:
        before = self.worst.get(found.place)
        if before is None or found.rank > before.rank:
            self.worst[found.place] = found

    @property
    def broken(self) -> bool:
        return any(movement.broken for movement in self.worst.values())

    def figures(self) -> dict[str, Any]:
        """What `--json`, certificate and page have of it."""
        movements = sorted(self.worst.values(), key=lambda one: one.rank, reverse=True)
        return {
            "broken": self.broken,
            "tried": self.tried,
            "seconds": self.seconds,
            "in_time": self.in_time,
            "stopped": self.stopped,
            # As JSON has it: None is a movement to or from what is not finite.
            "movements": [
                {
                    **asdict(one),
                    "moved": one.moved if math.isfinite(one.moved) else None,
                    "broken": one.broken,
                }
                for one in movements
            ],
        }


def search(
    parts: Parts,
    *,
    tries: int = THOROUGH,
    seconds: float = THOROUGH_SECONDS,
    seed: int | None = None,
    make_vector: MakeVector | None = None,
    on_try: Callable[[int, int], None] = lambda done, of: None,
) -> Searched:
    """Try so many records, or for so long. Equal seeds try equal records; tests hand in a broken vector."""
    o = parts.plan
    refuse_unbounded(parts)
    seed = o.config.seed if seed is None else seed
    start = time.perf_counter()
    make = make_vector or (lambda module: o.method.vector(o.algorithm, module, o.classes))
    probe = Probe(o.module, make, Searched(), anew=make_vector is not None)
    found = probe.found
    records = odd_records(parts.records.x, parts.records.y, o.classes, seed)
    _try_all(probe, scenes(parts, seed), records, o.loss, tries, seed, start + seconds, on_try)
    found.seconds = time.perf_counter() - start
    found.in_time = found.seconds <= seconds
    return found


def _try_all(
    probe: Probe,
    made: list[Scene],
    records: list[OddRecord],
    loss: Any,
    tries: int,
    seed: int,
    until: float,
    on_try: Callable[[int, int], None],
) -> None:
    """The records as they are, then uphill from the worst."""
    found = probe.found
    probe.look_at(made[0])  # a module that is refused is refused now
    best: list[tuple[float, int, Scene, OddRecord]] = []
    for scene, record in _pairs(made, records):
        if found.tried >= tries * (1 - _CLIMB_SHARE) or time.perf_counter() > until:
            break
        probe.look_at(scene)
        excess = probe.excess(scene, record)
        best = sorted([*best, (excess, -found.tried, scene, record)], key=lambda one: one[:2])[-_CLIMBS:]
        on_try(found.tried, tries)
    for _, _, scene, record in reversed(best):
        share = (tries - found.tried) // _CLIMBS
        climb(probe, scene, record, loss, share, seed, until=until)
        on_try(found.tried, tries)


def bounds_records(parts: Parts) -> bool:
    return not parts.noise_on_messages and parts.clip().at(0, len(parts.nodes)).enforced


def refuse_unbounded(parts: Parts) -> None:
    clip = parts.plan.config.privacy.clip
    if not bounds_records(parts):
        raise UserError(
            f"privacy.clip.kind = {clip.kind!r} bounds no record here, so there is no bound to break; a search for "
            'one needs a clip that is enforced, for example mode = "sound".'
        )


def _pairs(made: list[Scene], records: list[OddRecord]) -> Iterator[tuple[Scene, OddRecord]]:
    """All pairs, every record once before any comes twice, with the scenes in turn."""
    for turn in range(len(made)):
        for n, record in enumerate(records):
            yield made[(n + turn) % len(made)], record


class Probe:
    """Measures what one record does in one scene.

    By one vector from beginning to end, as a run has one: what it remembers of a record shows in a later sum. With
    `anew`, by a vector and a module of its own for every measurement: then it also shows of which.
    """

    def __init__(
        self, module: nn.Module, make_vector: MakeVector, found: Searched, *, anew: bool = False
    ) -> None:
        self.module, self._make, self.found, self._anew = module, make_vector, found, anew
        self._vector: Any = None
        # Sums, later ones, and the rounding of both.
        self._without: dict[int, tuple[Tensor, Tensor, Tensor, Tensor]] = {}

    @property
    def tried(self) -> int:
        return self.found.tried

    def look_at(self, scene: Scene) -> None:
        """Its sums without the record, once."""
        if scene.number in self._without:
            return
        try:
            if not self._without:
                self._refuse_unrepeatable(scene)
            now, later = self._sums(scene, scene.batch)
            self._without[scene.number] = now, later, *self._rounding(scene, now, later)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"the module stops on ordinary records: {_told(error)}") from error

    def excess(self, scene: Scene, record: OddRecord) -> float:
        """How far the worst figure is above its price; noted."""
        movements = self.measure(scene, record)
        for movement in movements:
            self.found.note(movement)
        return max((one.excess for one in movements), default=-math.inf)

    def measure(self, scene: Scene, record: OddRecord) -> list[Movement]:
        self.found.tried += 1
        now_without, later_without, rounding, rounding_later = self._without[scene.number]
        try:
            now, later = self._sums(scene, scene.with_record(record))
        except (
            Exception
        ) as error:  # that a run stops is seen, and no ε covers it: told, but no bound is broken
            self.found.stopped = f"{record.kind}: {_told(error)}"
            return []
        moved = scene.in_bounds(distances(now, now_without))
        after = scene.in_bounds(distances(later, later_without))
        latest = int((after - rounding_later).argmax())
        figures = [
            (OWN, float(moved[scene.victim]), scene.priced, float(rounding[scene.victim])),
            (LATER, float(after[latest]), 0.0, float(rounding_later[latest])),
        ]
        others = [i for i in range(len(moved)) if i != scene.victim]
        if others:
            worst = max(others, key=lambda i: float(moved[i] - rounding[i]))
            figures.append((OTHER, float(moved[worst]), 0.0, float(rounding[worst])))
        return [
            Movement(place, size, priced, record.kind, scene.description, rounded)
            for place, size, priced, rounded in figures
        ]

    def _rounding(self, scene: Scene, now: Tensor, later: Tensor) -> tuple[Tensor, Tensor]:
        """(h,) each, in bounds: how far rounding alone can put two sums over these lots, and over the next, apart.

        A number goes through n additions in float32, of unit roundoff u: along the rows of every weight, back along
        its columns, and over a record's places. k records of at most one bound each then give a sum to within
        u (n + k) k, and n additions move it as far as n roundings of the weights would, which is measured: large inputs
        or a deep network amplify them. Measured too is a lot that is longer by padding alone, since a convolution adds
        in another order for another shape. None of it depends on the record.
        """
        additions = math.prod(scene.batch.x.shape[2:])
        additions += sum(p[0].numel() + len(p) for p in self.module.parameters() if p.dim() > 1)
        rounded = self._sums(scene.rounded(_UNIT), scene.batch)
        longer = self._sums(scene, scene.with_room())[0] if scene.how == "grown" else now
        measured = additions * scene.in_bounds(distances(rounded[0], now))
        measured = torch.maximum(measured, scene.in_bounds(distances(longer, now)))
        measured_later = additions * scene.in_bounds(distances(rounded[1], later))

        def in_all(measured: Tensor, records: int) -> Tensor:
            arithmetic = _UNIT * (additions + records) * records
            return (2 * (measured + arithmetic)).clamp_max(_MOST_ROUNDING)

        return in_all(measured, scene.batch.mask.shape[1] + 1), in_all(
            measured_later, scene.next.mask.shape[1]
        )

    def _sums(self, scene: Scene, batch: Any) -> tuple[Tensor, Tensor]:
        """Of these lots and of the next ones."""
        if self._vector is None or self._anew:
            self._vector = self._make(_copied(self.module))
        now, _ = scene.sums(self._vector, batch)
        later, _ = scene.sums(self._vector, scene.next)
        return now, later

    def _refuse_unrepeatable(self, scene: Scene) -> None:
        first, again = (self._sums(scene, scene.batch)[0] for _ in range(2))
        if bool((scene.in_bounds(distances(first, again)) > _MOST_ROUNDING).any()):
            raise UserError(
                "the module's sums over one lot differ from call to call although torch, numpy and Python draw the "
                "same numbers, so no search can tell what a record does; seed its own generator, or draw with torch."
            )


def distances(a: Tensor, b: Tensor) -> Tensor:
    """(h,) between rows; ∞ where one alone is finite, 0 where neither is: then nothing can be compared."""
    finite_a, finite_b = a.isfinite().all(1), b.isfinite().all(1)
    apart = torch.linalg.vector_norm(torch.nan_to_num(a) - torch.nan_to_num(b), dim=1)
    apart = torch.where(finite_a & finite_b, apart, 0.0)
    return torch.where(finite_a ^ finite_b, math.inf, apart)


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise UserError(
            f"the module cannot be copied ({_told(error)}), so nothing tells what it remembers; make it one that "
            "copy.deepcopy takes."
        ) from error


def _told(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
