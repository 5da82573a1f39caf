"""The search for a record that moves a released figure by more than its price.

What is proven rests on one sentence: a record moves its node's release by at most its bound, and nothing else at all.
The search attacks that sentence. A probe measures what one record does in one scene: `SumProbe` with the run's own
vector, clip and module, or a probe that the method supplies. The search first tries records that are odd in ways known
to break things, over all scenes; then it improves the worst of them, along the module's own derivatives where there
are some, else along finite differences. If it finds nothing, nothing is proven; a record that it finds is a
reproduction, not an estimate.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from gossamer.results.rundir import finite

# Records tried, and seconds at most: fewer records are tried with large models.
QUICK, THOROUGH = (300, 40.0), (2500, 120.0)
_CLIMBS = 3  # how many of the worst records are improved
_CLIMB_SHARE = 0.3  # of all tries


class OddRecord(NamedTuple):
    x: Tensor  # of the shape of a record
    y: Tensor  # its target
    kind: str  # in words


Scene = Any  # everything that is fixed while one record comes and goes; it has a `description`
Figure = tuple[str, float, float, float]  # name; distance moved, price and rounding, all in bounds
OddRecords = Callable[[Tensor, Tensor, int | None, int], list[OddRecord]]


class RecordError(Exception):
    """The run stops at this record. That is visible, and no ε covers it: it is reported, but no bound is broken."""


class Probe(Protocol):
    improvable: bool  # is it worth improving records step by step?

    def trials(self, odd_records: OddRecords, seed: int) -> Iterator[tuple[Any, tuple[Tensor, Tensor, str]]]:
        """Pairs of a scene and a record, in the order to try them."""

    def measure(self, scene: Any, record: Any) -> list[Figure]:
        """Return how far the record moves each released figure; may raise `RecordError`."""

    def slope(self, scene: Any, record: Any) -> Tensor | None:
        """A direction in which the record may move the figures more, if there is one."""


@dataclass(frozen=True)
class Movement:
    """The distance that a record moved a figure, and the one it may, in bounds."""

    place: str
    moved: float  # ∞: the figure became infinite or NaN, or stopped being so
    priced: float
    record: str
    lot: str
    rounding: float = 0.0  # how far float32 alone can put two figures of this size apart

    @property
    def broken(self) -> bool:
        return not self.moved <= self.priced + self.rounding

    @property
    def excess(self) -> float:
        return self.moved - self.priced - self.rounding

    @property
    def rank(self) -> tuple[bool, float]:
        """The broken ones first, then those nearest to the price."""
        return self.broken, self.moved - self.priced


@dataclass
class Searched:
    """The result of a search: the worst movement of every figure."""

    worst: dict[str, Movement] = field(default_factory=dict)
    tried: int = 0
    seconds: float = 0.0
    in_time: bool = True
    stopped: str | None = None  # the record at which the run stops, if there is one, and the error

    @property
    def broken(self) -> bool:
        return any(movement.broken for movement in self.worst.values())

    def figures(self) -> dict[str, Any]:
        """For `--json`, certificate and page."""
        facts = {key: value for key, value in vars(self).items() if key != "worst"}
        worst = sorted(self.worst.values(), key=lambda one: one.rank, reverse=True)
        # `finite`: JSON has no ∞; None is a movement to or from a value that is not finite.
        movements = [finite({**asdict(one), "broken": one.broken}) for one in worst]
        return {"broken": self.broken, **facts, "movements": movements}

    def measure(self, probe: Probe, scene: Scene, record: OddRecord) -> float:
        """Measure one record, note its movements, and return how far the worst is above its price."""
        self.tried += 1
        try:
            figures = probe.measure(scene, record)
        except RecordError as error:
            self.stopped = f"{record.kind}: {error}"
            return -math.inf
        excess = -math.inf
        for place, moved, priced, rounding in figures:
            movement = Movement(place, moved, priced, record.kind, scene.description, rounding)
            if place not in self.worst or movement.rank > self.worst[place].rank:
                self.worst[place] = movement
            excess = max(excess, movement.excess)
        return excess


def search(
    probe: Probe,
    seed: int,
    *,
    tries: int = THOROUGH[0],
    seconds: float = THOROUGH[1],
    on_try: Callable[[int, int], None] = lambda done, of: None,
) -> Searched:
    """Try that many records, or for that long. Equal seeds try equal records."""
    start, result = time.perf_counter(), Searched()
    until = start + seconds
    as_they_are = tries * (1 - _CLIMB_SHARE) if probe.improvable else tries
    best: list[tuple[float, int, Scene, OddRecord]] = []
    for scene, trial in probe.trials(odd_records, seed):
        if result.tried >= as_they_are or time.perf_counter() > until:
            break
        record = OddRecord(*trial)
        excess = result.measure(probe, scene, record)
        best = sorted([*best, (excess, -result.tried, scene, record)], key=lambda one: one[:2])[-_CLIMBS:]
        on_try(result.tried, tries)
    for _, _, scene, record in reversed(best) if probe.improvable else ():
        _climb(result, probe, scene, record, (tries - result.tried) // _CLIMBS, seed, until)
        on_try(result.tried, tries)
    result.seconds = time.perf_counter() - start
    result.in_time = result.seconds <= seconds
    return result


def _climb(
    result: Searched, probe: Probe, scene: Scene, record: OddRecord, tries: int, seed: int, until: float
) -> None:
    """Move a record to where it moves the figures more: a step along a direction, or against it; steps adapt.

    Directions are the probe's slope, the record itself (a change of size), the same in all places, and random ones.
    """
    if not record.x.is_floating_point() or not bool(record.x.isfinite().all()):
        return
    chance = torch.Generator().manual_seed(seed)
    step, turn, stuck, before = 0.3, 0, 0, result.tried
    best, height = record, result.measure(probe, scene, record)
    while result.tried - before + 2 <= tries and stuck < 24 and time.perf_counter() < until:
        along, turn = _direction(probe, scene, best, turn, chance), turn + 1
        size = best.x.double().square().mean().sqrt().clamp(1e-30, 1e30)
        improved = False
        for sign in (1.0, -1.0):
            x = (best.x.double() + sign * step * float(size) * along.double()).to(best.x)
            candidate = OddRecord(x, record.y, f"{record.kind}, improved")
            reached = result.measure(probe, scene, candidate)
            if reached > height + 1e-9:
                best, height, improved = candidate, reached, True
                break
        step = min(step * 2, 10.0) if improved else max(step / 1.5, 1e-4)
        stuck = 0 if improved else stuck + 1


def _direction(probe: Probe, scene: Scene, record: OddRecord, turn: int, chance: torch.Generator) -> Tensor:
    """Of length √size, so that a step is in units of the record's own numbers."""
    if turn % 4 == 0 and (along := probe.slope(scene, record)) is not None:
        return along * (math.sqrt(along.numel()) / max(float(along.norm()), 1e-30))
    if turn % 4 == 1:
        return record.x / record.x.double().square().mean().sqrt().clamp_min(1e-30).to(record.x)
    if turn % 4 == 2:
        return torch.ones_like(record.x)
    return torch.randn(record.x.shape, generator=chance).to(record.x)


# --- odd records --------------------------------------------------------------------------------------------

_EVERY_DECADE = [10.0**k for k in range(-30, 31)]
_SOME_DECADES = [1e-30, 1e-23, 1e-12, 1e-6, 1e-3, 1.0, 1e2, 1e3, 1e5, 1e8, 1e12, 1e20, 1e30]
_CANCELLING = [1.0, 1e2, 1e3, 1e4, 1e6]
_LARGEST = torch.finfo(torch.float32).max


def odd_records(known_x: Tensor, known_y: Tensor, classes: int | None, seed: int) -> list[OddRecord]:
    """Extreme, degenerate, cancelling, not finite and ordinary records of the shape of the known ones (N, …).

    Features that are whole numbers are places of a table: only places that occur are tried. Labels are all classes in
    turn; targets that are numbers are tried from 1e-30 to 1e30 and not finite, like features. The order is fixed, and
    kinds and sizes alternate in it.
    """
    chance = torch.Generator().manual_seed(seed)
    features = list(_features(known_x, chance))
    order = torch.randperm(len(features), generator=chance).tolist()
    targets = _targets(known_y, classes)
    records = []
    for i, (y, target) in zip(order, itertools.cycle(targets), strict=False):
        x, kind = features[i]
        records.append(OddRecord(x, y, f"{kind}{target}"))
    if classes is None:  # an ordinary record with an odd target
        records += [OddRecord(known_x[0], y, f"an ordinary record{target}") for y, target in targets]
    return records


def _features(known: Tensor, chance: torch.Generator) -> Iterator[tuple[Tensor, str]]:
    shape, first = known.shape[1:], known[0]
    some = torch.randperm(len(known), generator=chance)[:8].tolist()
    for n in some:
        yield known[n].clone(), "an ordinary record"
    if not known.is_floating_point():
        for place in sorted(set(known.flatten().tolist()))[:16]:
            yield torch.full_like(first, place), f"a record at place {place}"
        return

    def normal() -> Tensor:
        return torch.randn(shape, generator=chance).to(known)

    for size in _EVERY_DECADE:
        yield normal() * size, f"normal numbers of size {size:.0e}"
    for size in _SOME_DECADES:
        yield torch.full_like(first, size), f"{size:.0e} everywhere"
        yield torch.full_like(first, -size), f"-{size:.0e} everywhere"
        yield _spike(torch.zeros_like(first), size, chance), f"{size:.0e} in one place, else 0"
        yield known[some[0]] * size, f"an ordinary record times {size:.0e}"
        yield _spike(known[some[-1]], size, chance), f"an ordinary record with {size:.0e} in one place"
    for size in _CANCELLING:
        for unlike in (1e-3, 1e-6):
            yield size * (1 + unlike * normal()), f"{size:.0e} nearly everywhere (1 ± {unlike:.0e})"
            yield _halves(normal() * size, -1, unlike, chance), f"halves that cancel, of size {size:.0e}"
            yield _halves(normal() * size, 1, unlike, chance), f"halves alike, of size {size:.0e}"
        yield _halves(normal() + size, -1, 1e-3, chance), f"halves that cancel, around {size:.0e}"
    for size in (1e-45, 1e-38, _LARGEST):
        yield torch.full_like(first, size), f"{size:.0e} everywhere"
    yield torch.zeros_like(first), "zeros"
    for bad in (float("nan"), float("inf"), float("-inf")):
        yield torch.full_like(first, bad), f"{bad} everywhere"
        yield _spike(torch.zeros_like(first), bad, chance), f"{bad} in one place, else 0"
        yield _spike(known[some[0]], bad, chance), f"an ordinary record with {bad} in one place"


def _spike(like: Tensor, size: float, chance: torch.Generator) -> Tensor:
    flat = like.clone().flatten()
    flat[int(torch.randint(flat.numel(), (), generator=chance))] = size
    return flat.view(like.shape)


def _halves(values: Tensor, sign: int, unlike: float, chance: torch.Generator) -> Tensor:
    """The second half of the first axis is the first one again, or its opposite, up to a relative `unlike`.

    Sums over positions then cancel to a small rest, in which every rounding shows.
    """
    if values.ndim == 0 or len(values) < 2:
        return values
    half = len(values) // 2
    noise = 1 + unlike * torch.randn(values[:half].shape, generator=chance).to(values)
    return torch.cat([values[:half], sign * values[:half] * noise, values[2 * half :]])


def _targets(known: Tensor, classes: int | None) -> list[tuple[Tensor, str]]:
    if classes is not None:
        return [(known.new_tensor(label), f", labelled {label}") for label in range(classes)]
    like = known[0]
    if not known.is_floating_point():
        return [(known.new_tensor(value), "") for value in sorted(set(known.flatten().tolist()))[:16]]
    sizes = [0.0, 1.0, -1.0, 1e-30, 1e-6, 1e3, -1e6, 1e12, -1e30]
    odd = [(torch.full_like(like, size), f", target {size:.0e}") for size in sizes]
    odd += [(torch.full_like(like, bad), f", target {bad}") for bad in (float("nan"), float("inf"))]
    return [(like.clone(), ""), *odd]
