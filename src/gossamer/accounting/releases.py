"""Releases, a class for each kind, and the events of a ledger.

A release answers what accountants ask: why nothing can be proven about it (`unpriceable`), its dominating `pair` and
how many of them it counts as, how it is priced `by_norm` if it is a vector. `seen_by` gives what it is to an observer:
noise that each node draws for itself is the same to all, noise that nodes share is not.

A new kind is one registered class; a new field of a release is one line of its class: ledgers read and write the fields
as they are declared.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

from gossamer.accounting.observers import EVERYONE, Observer, colluders
from gossamer.accounting.pairs import GaussianPair, NoisePair, Pair
from gossamer.accounting.profiles import Noise, gaussian, laplace
from gossamer.accounting.secrets import MOST_RATIO, Edge, Secrets, checked_edges, known, remember
from gossamer.errors import UserError

IN_PASSES = ("one-pass", "balls-and-bins")  # disjoint lots: a record is in one lot of each pass
SAMPLINGS = ("poisson", "fixed-size", "full", *IN_PASSES)
ADJACENCIES = ("add-remove", "replace-one")
CLIPPED_LOT = "lot"
WITHOUT_NOISE = "a value was released without noise"
UNKNOWN = "the graph of secrets behind its noise is not at hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(ABC):
    """The fields of all kinds: everything but the noise and when it happened.

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
        for key, allowed in (("sampling", SAMPLINGS), ("adjacency", ADJACENCIES)):
            value = getattr(self, key)
            _require(key, value, value in allowed, f"be one of {', '.join(allowed)}")
        _require("rate", self.rate, 0.0 < self.rate <= 1.0, "lie in (0, 1]")
        _require("sensitivity", self.sensitivity, self.sensitivity > 0.0, "be positive (inf if unbounded)")
        whole = self.clipped is None or (self.clipped == CLIPPED_LOT and not self.in_passes)
        _require("clipped", self.clipped, whole, f"be {CLIPPED_LOT!r} or absent, and absent in passes")

    @property
    def planned_for(self) -> Observer:
        """The observer it was planned to hold against, which a figure is about unless another one is given."""
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
        """Return this release as an observer sees it: a node's own noise is the same to all of them."""
        return self

    @abstractmethod
    def unpriceable(self, adjacency: str) -> str | None:
        """Why nothing can be proven about this release, or None if something can."""

    def pair(self, adjacency: str) -> float | Pair:
        """The dominating pair, or for a Gaussian at rate 1 just its μ; only of what is not `unpriceable`."""
        raise ValueError(f"a release of kind {self.kind!r} has no dominating pair")

    @property
    def pair_count(self) -> int:
        """The number of its pairs that are composed: one, or one for each coordinate."""
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
        """Return how far the released sum can move: twice the sensitivity if a record is exchanged for another.

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

    @property
    def in_numbered_pass(self) -> bool:
        """Balls-and-bins lots without a number are in no pass, and count each."""
        return self.sampling == "one-pass" or (self.in_passes and self.pass_number is not None)

    def renumbered(self, first: int, times: int = 1) -> Self:
        """In pass first + times · its own number, if it is in one."""
        if not self.in_numbered_pass:
            return self
        return replace(self, pass_number=first + times * (self.pass_number or 0))


Counted = tuple[Release, int]  # a release, and how often it happens


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
    gaussian: Release | None = None


def _require(key: str, value: object, valid: bool, rule: str) -> None:
    if not valid:
        raise UserError(f"event {key} = {value!r} must {rule}")


_AnyRelease = TypeVar("_AnyRelease", bound=type[Release])
KINDS: dict[str, type[Release]] = {}


@dataclass_transform(frozen_default=True, kw_only_default=True)
def registered(cls: _AnyRelease) -> _AnyRelease:
    """Make the class a dataclass, and known to ledgers by its kind."""
    kind: _AnyRelease = dataclass(frozen=True, slots=True, kw_only=True)(cls)  # type: ignore[assignment]
    KINDS[kind.kind] = kind
    return kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Noised(Release):
    """With noise of scale `sigma` on the released *sum*, before division by the public lot size.

    The standard deviation of a Gaussian, b of a Laplace density exp(−|z|/b), σ of a generalised Gaussian
    exp(−(|z|/σ)^shape); of a truncated density the scale before truncation.
    """

    sigma: float

    def __post_init__(self) -> None:
        Release.__post_init__(self)
        _require("sigma", self.sigma, 0.0 <= self.sigma < math.inf, "be a finite number, at least 0")

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

    def as_gaussian(self) -> "Gaussian":
        """Plain Gaussian noise of the same σ on the same lot, of the same pass."""
        return Gaussian(**{field.name: getattr(self, field.name) for field in fields(Gaussian)})


@registered
class Gaussian(Noised):
    kind: ClassVar[str] = "gaussian"

    def pair(self, adjacency: str) -> float | Pair:
        replace_one, rate = adjacency == "replace-one", self.amplifying_rate
        if rate < 1 and self.sampling == "poisson" and replace_one and self.clipped is None:
            return GaussianPair(self.sensitivity / self.sigma, rate, "two-sided")
        mu = self.shift(adjacency) / self.sigma
        if rate == 1:
            return mu
        return GaussianPair(mu, rate, "symmetrised" if replace_one else "one-sided")

    @property
    def family(self) -> object:
        return self.kind

    @property
    def density(self) -> Noise:
        return gaussian(self.sigma)


@registered
class OneSided(Gaussian):
    """Of vectors that are at no obtuse angle to each other, as those without a negative entry are (counts, squares).

    One more or less moves the sum by the sensitivity as ever; one in the place of another by √2 times that, not 2:
    ‖v − w‖² = ‖v‖² + ‖w‖² − 2⟨v, w⟩. Of a sampled lot, or one that was clipped as a whole, it is priced as any other.
    """

    kind: ClassVar[str] = "one-sided"

    def shift(self, adjacency: str) -> float:
        alone = self.sampling == "full" and self.clipped is None
        if alone and adjacency == "replace-one":
            return self.sensitivity * math.sqrt(2)
        return Gaussian.shift(self, adjacency)


@registered
class Pairwise(Noised):
    """`sigma` is the node's own noise; masks of `ratio` times its variance, which cancel, go with each of its secrets.

    What hides a record is more than σ, and depends on who looks: see `accounting.secrets`. An observer who does not
    say whose secrets it holds is taken for one with `colluders` nodes, as planned. After whitening, a sum that one
    record moves is a Gaussian of σ_eff in one direction, whatever lots it is drawn from: the pairs are a Gaussian's.
    """

    kind: ClassVar[str] = "pairwise"

    nodes: int
    colluders: int
    ratio: float
    secrets: str  # the digest of the graph

    def __post_init__(self) -> None:
        Noised.__post_init__(self)
        _require("nodes", self.nodes, 1 <= self.nodes <= 1_000_000, "be a number of nodes, at least 1")
        _require("colluders", self.colluders, 0 <= self.colluders < self.nodes, "be from 0 to below nodes")
        _require("ratio", self.ratio, 0.0 <= self.ratio <= MOST_RATIO, f"be from 0 to {MOST_RATIO:g}")
        digest = isinstance(self.secrets, str) and len(self.secrets) == 32
        _require("secrets", self.secrets, digest, "be a digest of 32 characters")

    @property
    def planned_for(self) -> Observer:
        return colluders(self.colluders)

    @property
    def most_colluders(self) -> int | None:
        return self.nodes - 1

    @property
    def listed_secrets(self) -> tuple[Edge, ...] | None:
        return None if self._graph is None else self._graph.listed

    def seen_by(self, observer: Observer = EVERYONE) -> Release:
        """The Gaussian that this release is to an observer."""
        graph = self._graph
        if graph is None:
            return self
        if observer.members:
            remaining = graph.effective_noise_against(observer.members, self.ratio)
        else:
            count = self.colluders if observer.colluders is None else observer.colluders
            remaining = graph.effective_noise(min(count, self.nodes - 1), self.ratio)
        return self.as_gaussian().scaled(remaining)

    @property
    def alone(self) -> Gaussian:
        return self.as_gaussian()

    def unpriceable(self, adjacency: str) -> str | None:
        return UNKNOWN if self._graph is None else Noised.unpriceable(self, adjacency)

    def pair(self, adjacency: str) -> float | Pair:
        return Noised.pair(self, adjacency) if self._graph is None else self.seen_by().pair(adjacency)

    @property
    def noise_multiplier(self) -> float:
        return 0.0 if self._graph is None else self.seen_by().noise_multiplier

    @property
    def family(self) -> object:
        return self.kind, self.nodes, self.colluders, self.ratio, self.secrets

    @property
    def density(self) -> Noise | None:
        return None if self._graph is None else self.seen_by().density

    @property
    def _graph(self) -> Secrets | None:
        return known(self.secrets, self.nodes)


def remember_listed(listed: Any, releases: Sequence[Release]) -> None:
    """Remember the pairs that a file lists for these releases; ValueError says what is wrong with them."""
    nodes = next((one.nodes for one in releases if isinstance(one, Pairwise)), None)
    if listed is not None and nodes is not None:
        remember(Secrets.of(nodes, checked_edges(listed, nodes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Independent(Noised):
    """Not Gaussian: noise of its own in each of the `dimensions`, each priced at the whole sensitivity."""

    dimensions: int = 1

    def unpriceable(self, adjacency: str) -> str | None:
        if reason := Noised.unpriceable(self, adjacency):
            return reason
        if self.density.shape < 1:
            return "noise of shape below 1 is not log-concave: the largest change need not be the worst one"
        if 2 * self.density.bound <= self.shift(adjacency):
            return "the noise is narrower than the change it should hide: each release identifies a record"
        return None

    def pair(self, adjacency: str) -> float | Pair:
        # Without amplification in several dimensions: an upper bound for any direction of the change.
        rate = self.amplifying_rate if self.dimensions == 1 else 1.0
        kind = "symmetrised" if adjacency == "replace-one" and rate < 1 else "one-sided"
        return NoisePair(self.density, self.shift(adjacency), rate, kind)

    @property
    def pair_count(self) -> int:
        return self.dimensions

    @property
    @abstractmethod
    def density(self) -> Noise: ...

    def _laplace_rho(self, adjacency: str) -> float:
        # A coordinate that moves by v is v/b-DP, hence ½(v/b)²-zCDP (Bun and Steinke 2016); the squares add up to
        # the norm's.
        return (self.shift(adjacency) / self.sigma) ** 2 / 2


@registered
class Laplace(Independent):
    kind: ClassVar[str] = "laplace"

    @property
    def density(self) -> Noise:
        return laplace(self.sigma)

    @property
    def family(self) -> object:
        return self.kind, self.dimensions

    def by_norm(self, adjacency: str) -> ByNorm | None:
        return None if self.dimensions == 1 else ByNorm(rho=self._laplace_rho(adjacency))


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated(Independent):
    """Noise that ends at ±`bound`."""

    bound: float

    def scaled(self, factor: float) -> Self:
        return replace(self, sigma=self.sigma * factor, bound=self.bound * factor)

    def _cut(self, adjacency: str) -> tuple[float, float]:
        """(mass cut off, bound on the mass that one record carries beyond), of one coordinate and of the vector.

        Σ_j P(z_j > A − |v_j|) ≤ Σ_j |v_j| f(A − Δ) ≤ √d Δ f(A − Δ), for a density f that falls and ‖v‖ ≤ Δ < A. Of
        sampled releases not known: there the other data set's noise is not the same noise moved.
        """
        shift, tail = self.shift(adjacency), self.density.cut_off
        if self.rate < 1 or self.bound <= shift:
            return tail, math.inf
        beyond = self.density.untruncated(self.bound - shift)
        return tail, math.sqrt(self.dimensions) * shift * beyond / (1 - tail)


@registered
class TruncatedLaplace(Truncated):
    kind: ClassVar[str] = "truncated-laplace"

    @property
    def density(self) -> Noise:
        return laplace(self.sigma, self.bound)

    def by_norm(self, adjacency: str) -> ByNorm | None:
        return None if self.dimensions == 1 else ByNorm(*self._cut(adjacency), rho=self._laplace_rho(adjacency))


@registered
class TruncatedGaussian(Truncated):
    kind: ClassVar[str] = "truncated-gaussian"

    @property
    def density(self) -> Noise:
        return gaussian(self.sigma, self.bound)

    def by_norm(self, adjacency: str) -> ByNorm | None:
        # Lots of different passes hold the same records: `as_gaussian` keeps which pass it was.
        return None if self.dimensions == 1 else ByNorm(*self._cut(adjacency), gaussian=self.as_gaussian())


@registered
class GeneralisedGaussian(Truncated):
    kind: ClassVar[str] = "generalised-gaussian"

    shape: float
    bound: float = math.inf

    @property
    def density(self) -> Noise:
        return Noise(self.sigma, self.shape, self.bound)


@registered
class OwnNormGaussian(Noised):
    """Gaussian noise of σ times the norm of the very sum that it should hide."""

    kind: ClassVar[str] = "own-norm-gaussian"

    def unpriceable(self, adjacency: str) -> str | None:
        return "the noise is scaled by the record's own gradient norm, so its size reveals the record"


@registered
class RawDecision(Release):
    """The choice of the node that writes, made on losses without noise."""

    kind: ClassVar[str] = "raw-decision"

    def unpriceable(self, adjacency: str) -> str | None:
        return "who writes the shared model when is decided on raw losses, and everyone sees it"


@registered
class Unnoised(Release):
    """A value as it is."""

    kind: ClassVar[str] = "none"

    def unpriceable(self, adjacency: str) -> str | None:
        return WITHOUT_NOISE


def _number(value: Any) -> float:
    """JSON has no infinity: that one is text, and no other number is."""
    if isinstance(value, str) and value not in ("inf", "-inf"):
        raise ValueError(f"{value!r} is text where a number stands")
    return float(value)


_READ: dict[object, Callable[[Any], Any]] = {
    float: _number, int: int, str: str, int | None: int, str | None: str,
}  # fmt: skip


@cache
def _columns(kind: str) -> dict[str, tuple[str, Callable[[Any], Any], bool]]:
    """key in the ledger → (field, how it is read, whether it must be there), in the order of a line."""
    _require("kind", kind, kind in KINDS, f"be one of {', '.join(KINDS)}")
    ordered = sorted(fields(KINDS[kind]), key=lambda field: field.name != "sigma")
    return {
        field.name.removesuffix("_number"): (field.name, _READ[field.type], field.default is MISSING)
        for field in ordered
    }


FIRST_DRAW = -1000  # releases before the first draw (preprocessing) have numbers from here to −1


@dataclass(frozen=True, slots=True)
class Event:
    """One release of one node, in its draw 0, 1, 2, …; numbers below 0 are preprocessing."""

    draw: int
    release: Release

    def to_json(self) -> str:
        """One line of strict JSON; floats are written so that they read back exactly."""
        line: dict[str, Any] = {"draw": self.draw, "kind": self.release.kind}
        for key, (name, _, _) in _columns(self.release.kind).items():
            if (value := getattr(self.release, name)) is not None:
                # JSON has no infinity; text keeps the line strict, and `_number` reads it back.
                line[key] = str(value) if value in (math.inf, -math.inf) else value
        return json.dumps(line, allow_nan=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str | Mapping[str, Any]) -> "Event":
        """Read what `to_json` wrote; an unknown key is refused, as its meaning could not be priced."""
        data = json.loads(line) if isinstance(line, str) else line
        kind = data["kind"]
        columns = _columns(kind)
        if unknown := data.keys() - {"draw", "kind", *columns}:
            raise ValueError(f"an event of kind {kind!r} has no {min(unknown)!r}")
        values = {name: read(data[key]) for key, (name, read, _) in columns.items() if key in data}
        return cls(int(data["draw"]), release(kind, **values))


def release(kind: str, **values: Any) -> Release:
    """Make a release by the name of its kind; `sigma` is left out of kinds that have no noise."""
    columns = {name: (read, required) for name, read, required in _columns(kind).values()}
    if "sigma" not in columns:
        values.pop("sigma", None)
    for name, (_, required) in columns.items():
        if required and name not in values:
            raise UserError(f"event of kind '{kind}' lacks the constant '{name}'")
    for name, value in values.items():
        if name not in columns:
            raise UserError(f"event {name} = {value!r} is no constant of a release of kind '{kind}'")
    return KINDS[kind](**values)


def collate(items: Iterable[Event | Release]) -> list[Counted]:
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
        together += [replace(event, release=event.release.renumbered(first)) for event in events]
        first += 1 + max((event.release.pass_number or 0 for event in events), default=0)
    return together


def on_several_nodes(events: Sequence[Event], nodes: int) -> list[Event]:
    """The events of so many nodes that do the same with copies of one record, draw by draw.

    Each node draws its lots for itself: a pass of one is no pass of another.
    """
    copies = range(nodes)
    return [replace(one, release=one.release.renumbered(copy, nodes)) for one in events for copy in copies]
