"""What all releases have in common, the registry of their kinds, and the events of a ledger."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

from gossamer.accounting.observers import EVERYONE, Observer
from gossamer.accounting.pairs import Pair
from gossamer.accounting.profiles import Noise
from gossamer.accounting.secrets import Edge
from gossamer.errors import UserError

IN_PASSES = ("one-pass", "balls-and-bins")  # disjoint lots: a record is in one lot of each pass
SAMPLINGS = ("poisson", "fixed-size", "full", *IN_PASSES)
ADJACENCIES = ("add-remove", "replace-one")
CLIPPED_LOT = "lot"
WITHOUT_NOISE = "a value was released without noise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(ABC):
    """What all kinds have in common: everything but the noise and when it happened.

    sensitivity  the largest norm one record's contribution can have (the clip); replace-one doubles it,
                 and the accountant does that, not the release. `inf` if nothing bounds it
    rate         probability that a given record is in the lot (fixed-size: lot / J; full: 1)
    adjacency    the relation the run declared; the accountants can price either
    pass_number  which pass over the data a lot of one belongs to; None is the first of one-pass lots
    lot_number   which lot of its pass, where every record draws its lot by itself
    clipped      "lot" where the sum was clipped as a whole: the sensitivity is then the radius of the ball that it ends
                 up in, and every change of a lot may cross that ball, under either relation
    """

    kind: ClassVar[str]  # its name in the ledger

    sensitivity: float
    sampling: str
    rate: float
    adjacency: str
    pass_number: int | None = None
    lot_number: int | None = None
    clipped: str | None = None

    def __post_init__(self) -> None:
        if self.clipped is not None and (self.clipped != CLIPPED_LOT or self.in_passes):
            raise UserError(
                f"event clipped = {self.clipped!r} can only be {CLIPPED_LOT!r}, of lots that are not in passes"
            )
        if self.sampling not in SAMPLINGS:
            raise UserError(not_one_of("sampling", self.sampling, SAMPLINGS))
        if self.adjacency not in ADJACENCIES:
            raise UserError(not_one_of("adjacency", self.adjacency, ADJACENCIES))
        if not 0.0 < self.rate <= 1.0:
            raise UserError(f"event rate = {self.rate!r} must lie in (0, 1]")
        if not self.sensitivity > 0.0:
            raise UserError(f"event sensitivity = {self.sensitivity!r} must be positive (inf if unbounded)")

    @property
    def planned_for(self) -> Observer:
        """Whom it was planned to hold against: that is whom a figure is about if nobody says otherwise."""
        return EVERYONE

    @property
    def alone(self) -> "Release":
        """With its node's own noise only, where others' noise would help to hide it."""
        return self

    @property
    def most_colluders(self) -> int | None:
        """Of how many nodes at most an observer may know the shared noise; None if every node draws its own."""
        return None

    @property
    def listed_secrets(self) -> tuple[Edge, ...] | None:
        """The graph of secrets behind its noise, where a reader of the ledger could not know it."""
        return None

    def seen_by(self, observer: Observer = EVERYONE) -> "Release":
        """What this release is to an observer. Noise that each node draws for itself is the same to all of them."""
        return self

    @abstractmethod
    def unpriceable(self, adjacency: str) -> str | None:
        """Why nothing can be proven about this release, or None if something can."""

    def pair(self, adjacency: str) -> float | Pair:
        """The dominating pair, or for a Gaussian at rate 1 just its μ; only of what is not `unpriceable`."""
        raise ValueError(f"a release of kind {self.kind!r} has no dominating pair")

    @property
    def pair_count(self) -> int:
        """How many of its pairs are composed: one, or one for each coordinate."""
        return 1

    def by_norm(self, adjacency: str) -> "ByNorm | None":
        """The price of a vector by the ℓ₂ norm of the whole change; None where there is no such price."""
        return None

    @property
    def family(self) -> object:
        """Lots of one pass and one family differ in the amount of noise only, and less noise is worse."""
        return self

    @property
    def density(self) -> Noise | None:
        """The noise in one coordinate, if it has a density that does not depend on the records."""
        return None

    @property
    def noise_multiplier(self) -> float:
        """The scale of the noise in units of the sensitivity."""
        return 0.0

    def scaled(self, factor: float) -> Self:
        """The same release with its noise multiplied by `factor`."""
        return self

    def shift(self, adjacency: str) -> float:
        """How far the released sum can move: twice the sensitivity if a record is exchanged for another.

        Or if the lot was clipped as a whole: one record may turn it to the opposite side.
        """
        swap = adjacency == "replace-one" or self.sampling == "fixed-size" or self.clipped == CLIPPED_LOT
        return self.sensitivity * (2 if swap else 1)

    @property
    def amplifying_rate(self) -> float:
        """The rate as far as sampling hides who took part: a record is in some lot of a pass for sure."""
        return 1.0 if self.sampling == "full" or self.in_passes else self.rate

    @property
    def in_passes(self) -> bool:
        return self.sampling in IN_PASSES


@dataclass(frozen=True)
class ByNorm:
    """A vector of independent noises as what it was before truncation, and what is to be added for that.

    tail      the mass that truncation took from one coordinate
    crossing  probability that noise, moved by one record, lands beyond its bound; ∞: not known
    rho       concentrated differential privacy of a Laplace vector
    gaussian  the Gaussian that a truncated one was
    """

    tail: float = 0.0
    crossing: float = 0.0
    rho: float = 0.0
    gaussian: "Release | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noised(Release):
    """With noise of scale `sigma` on the released *sum*, before division by the public lot size.

    The standard deviation of a Gaussian, b of a Laplace density exp(−|z|/b), σ of a generalised Gaussian
    exp(−(|z|/σ)^shape); of a truncated density the scale before truncation.
    """

    sigma: float

    def __post_init__(self) -> None:
        Release.__post_init__(self)
        if not 0.0 <= self.sigma < math.inf:
            raise UserError(f"event sigma = {self.sigma!r} must be a finite number, at least 0")

    def unpriceable(self, adjacency: str) -> str | None:
        if self.sigma == 0:
            return WITHOUT_NOISE
        if math.isinf(self.sensitivity):
            return "nothing bounds how far one record can move the released value"
        return None

    @property
    def noise_multiplier(self) -> float:
        return self.sigma / self.sensitivity

    def scaled(self, factor: float) -> Self:
        return replace(self, sigma=self.sigma * factor)


_AnyRelease = TypeVar("_AnyRelease", bound=type[Release])
KINDS: dict[str, type[Release]] = {}


def registered(cls: _AnyRelease) -> _AnyRelease:
    KINDS[cls.kind] = cls
    return cls


def not_one_of(key: str, value: object, known: Iterable[str]) -> str:
    return f"event {key} = {value!r} is not one of {', '.join(known)}"


_FIRST = ("sigma", "sensitivity", "sampling", "rate", "adjacency")  # on a line of the ledger
_LAST = {"pass_number": "pass", "lot_number": "lot", "clipped": "clipped"}  # and their keys


def _number(value: Any) -> float:
    """JSON has no infinity: that one is text, and no other number is."""
    if isinstance(value, str) and value not in ("inf", "-inf"):
        raise ValueError(f"{value!r} is text where a number stands")
    return float(value)


_READ: dict[object, Callable[[Any], Any]] = {
    float: _number, int: int, str: str, int | None: int, str | None: str,
}  # fmt: skip


FIRST_DRAW = -1000  # releases before the first draw (preprocessing) have numbers from here to −1


@dataclass(frozen=True, slots=True)
class Event:
    """One release of one node, in its draw 0, 1, 2, …; numbers below 0 are preprocessing."""

    draw: int
    release: Release

    def to_json(self) -> str:
        """One line of strict JSON; floats are written so that they read back exactly."""
        values = ((key, getattr(self.release, name)) for name, key, _ in _columns(self.release.kind))
        written = "".join(f',"{key}":{_text(value)}' for key, value in values if value is not None)
        return f'{{"draw":{self.draw},"kind":"{self.release.kind}"{written}}}'

    @classmethod
    def from_json(cls, line: str | Mapping[str, Any]) -> "Event":
        """Read what `to_json` wrote; a key that no such event has is refused: nobody could price what it says."""
        data = json.loads(line) if isinstance(line, str) else line
        kind = data["kind"]
        columns = _columns(kind)
        if unknown := data.keys() - {"draw", "kind", *(key for _, key, _ in columns)}:
            raise ValueError(f"an event of kind {kind!r} has no {min(unknown)!r}")
        values = {name: read(data[key]) for name, key, read in columns if key in data}
        return cls(int(data["draw"]), _make(kind, values))


def release(
    kind: str,
    *,
    sigma: float = 0.0,
    sensitivity: float,
    sampling: str,
    rate: float,
    adjacency: str,
    pass_number: int | None = None,
    lot_number: int | None = None,
    **constants: float,
) -> Release:
    """A release by the name of its kind; `sigma` is left out of kinds that have no noise."""
    readers = {name: read for name, _, read in _columns(kind)}
    for name, value in constants.items():
        if name not in readers:
            raise UserError(f"event {name} = {value!r} is no constant of a release of kind '{kind}'")
    common = {
        "sensitivity": sensitivity,
        "sampling": sampling,
        "rate": rate,
        "adjacency": adjacency,
        "pass_number": pass_number,
        "lot_number": lot_number,
    }
    own = {"sigma": sigma, **constants} if "sigma" in readers else constants
    return _make(kind, {**common, **{name: readers[name](value) for name, value in own.items()}})


def constants_of(kind: str) -> tuple[str, ...]:
    """The names of what a kind has beyond σ and what all releases have: bound, shape, dimensions."""
    common = (*_FIRST, *_LAST)
    return tuple(name for name, _, _ in _columns(kind) if name not in common)


def collate(items: Iterable[Event | Release]) -> list[tuple[Release, int]]:
    """Equal releases counted, in order of first appearance."""
    counts: dict[Release, int] = {}
    for item in items:
        one = item.release if isinstance(item, Event) else item
        counts[one] = counts.get(one, 0) + 1
    return list(counts.items())


def of_several_runs(runs: Iterable[Sequence[Event]]) -> list[Event]:
    """The events of runs on the same records: a pass of one run is no pass of another, so they are numbered apart."""
    together: list[Event] = []
    first = 0
    for events in runs:
        for event in events:
            one = event.release
            apart = one.pass_number
            if one.sampling == "one-pass" or (one.in_passes and apart is not None):
                apart = first + (apart or 0)
            together.append(replace(event, release=replace(one, pass_number=apart)))
        first += 1 + max((event.release.pass_number or 0 for event in events), default=0)
    return together


def on_several_nodes(events: Sequence[Event], nodes: int) -> list[Event]:
    """The events of so many nodes that do the same with copies of one record, draw by draw.

    Each node draws its lots for itself: a pass of one is no pass of another.
    """
    together: list[Event] = []
    for event in events:
        one = event.release
        for copy in range(nodes):
            apart = one.pass_number
            if one.sampling == "one-pass" or (one.in_passes and apart is not None):
                apart = nodes * (apart or 0) + copy
            together.append(replace(event, release=replace(one, pass_number=apart)))
    return together


def _make(kind: str, values: Mapping[str, Any]) -> Release:
    for name in _required(kind):
        if name not in values:
            raise UserError(f"event of kind '{kind}' lacks the constant '{name}'")
    return KINDS[kind](**values)


@cache
def _required(kind: str) -> tuple[str, ...]:
    return tuple(field.name for field in fields(KINDS[kind]) if field.default is MISSING)


@cache
def _columns(kind: str) -> list[tuple[str, str, Callable[[Any], Any]]]:
    """(field, its key in the ledger, how it is read) in the order of a line."""
    if kind not in KINDS:
        raise UserError(not_one_of("kind", kind, KINDS))
    types = {field.name: _READ[field.type] for field in fields(KINDS[kind])}
    middle = [name for name in types if name not in (*_FIRST, *_LAST)]
    order = [name for name in (*_FIRST, *middle, *_LAST) if name in types]
    return [(name, _LAST.get(name, name), types[name]) for name in order]


def _text(value: float | int | str) -> str:
    # JSON has no infinity; a string keeps the line strict, and float("inf") reads it back.
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else f'"{float(value)!r}"'
    return json.dumps(value)
