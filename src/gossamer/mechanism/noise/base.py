"""Noise mechanisms: objects that add noise to sums, and state in the ledger's terms what they released.

A *kind* is what a configuration names, before it has a size; `make` gives the mechanism of a run. `add` gets the sums
of all hosted nodes at once, so that noise may be correlated over nodes; independent noise is the case in which it is
not. `release` says what one node's sum is worth to an observer. No other part knows which noise it is.

A *schedule* (`privacy.noise.schedule`) says how the noise goes over a run: public constants, known before the start.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.observers import EVERYONE, Observer
from gossamer.accounting.releases import Release
from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.clipping import Constant, Geometric, Quotient, Schedule, Stretches
from gossamer.options import types
from gossamer.options.registry import Registry

# Purpose fields of the stream: no two uses ever share a counter.
NOISE, SAMPLING, COUNT, COINS, MASK, SUMMARY, JUDGED, RANDOM_LAYERS = range(8)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Participation:
    """The part of records in a draw: the fields that all releases have besides their noise."""

    sampling: str
    rate: float
    adjacency: str
    pass_number: int | None = None  # which pass over the data a lot belongs to
    lot_number: int | None = None  # which lot of the pass, where that is priced
    clipped: str | None = None  # "lot" where the sum was clipped as a whole, and no record by itself


@dataclass(frozen=True)
class Levels:
    """Noise multipliers, std over sensitivity, of the hosted nodes: factor_i · shape(k)."""

    factor: Tensor  # (m,)
    shape: Schedule

    def __call__(self, k: int) -> Tensor:
        return self.factor * self.shape(k)

    def repeated(self, times: int) -> Levels:
        """Every node `times` over, as an audit's many runs side by side need it."""
        return Levels(self.factor.repeat_interleave(times), self.shape)


class Place(NamedTuple):
    """The place of a draw's noise in the secret stream."""

    stream: Stream
    nodes: Indices
    draw: int


@dataclass(frozen=True)
class Mechanism(ABC):
    """The noise of a run on the sums of its hosted nodes.

    `add` and `release` from three pieces: what a multiplier is of, how a scale of noise is drawn, its release.
    """

    levels: Levels
    adds: ClassVar[bool] = True  # is there noise at all?
    scale_is_public: ClassVar[bool] = True  # can everyone compute its size? Not where it follows the records
    rests: ClassVar[bool] = True  # does a node without budget add nothing?

    @abstractmethod
    def draw(self, at: Place, sums: Tensor, scale: Tensor, ready: Tensor | None) -> None:
        """Add noise of this scale (m,) to the sums, in place; `ready` is what `ahead` gave, and is used up."""

    @abstractmethod
    def released(self, i: int, sigma: float, limit: float, dimension: int, part: Participation) -> Release:
        """The release of node i at this scale; `limit` bounds one record's contribution, ∞ if nothing does."""

    def unit(self, bound: Tensor, sums: Tensor) -> Tensor:
        """(m,) what a noise multiplier of 1 is: the largest norm of a record's contribution."""
        return bound

    def add(
        self,
        stream: Stream,
        nodes: Indices,
        k: int,
        sums: Tensor,
        *,
        multiplier: Tensor,
        bound: Tensor,
        active: Tensor,
        ready: Tensor | None = None,
    ) -> None:
        """Add noise of `multiplier` (m,) times the sensitivity to the sums (m, d) of the active nodes, in place.

        `bound` (m,) is what no record's contribution exceeds.
        """
        scale = multiplier * self.unit(bound, sums).cpu()
        if self.rests:
            scale = torch.where(active, scale, 0.0)
        self.draw(Place(stream, nodes, k), sums, scale, ready)

    def release(
        self,
        i: int,
        multiplier: float,
        sensitivity: float,
        dimension: int,
        part: Participation,
        *,
        enforced: bool,
    ) -> Release:
        """Return the release of hosted node i in a draw at this noise multiplier, for the ledger."""
        sigma = multiplier * sensitivity if self.scale_is_public else multiplier
        return self.released(i, sigma, sensitivity if enforced else math.inf, dimension, part)

    def ledger_key(self, i: int) -> float | None:
        """Return what else node i's releases depend on: nodes that are alike in all share one line of the ledger."""
        return None

    def agree(
        self, nodes: Sequence[int], join: Callable[[list[str]], list[str]], context: str, *, seeded: bool
    ) -> Self:
        """With what it must agree upon with the other processes before the first draw; most noises: nothing.

        `join` gives everyone one public text of each node, `context` names the run and which start of it this is.
        """
        return self

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        """Draw the part of a draw's noise that does not need its scale; None if there is none."""
        return None

    def repeated(self, times: int) -> Self:
        """Every node `times` over, as an audit's many runs side by side need it."""
        return replace(self, levels=self.levels.repeated(times))


class NoiseKind(ABC):
    """A noise as it is configured, before it has a size. Its density is ∝ exp(−(|z|/s)^exponent), truncated or not."""

    kind: ClassVar[str]
    released_as: ClassVar[type[Release]]
    adds: ClassVar[bool] = True
    gaussian: ClassVar[bool] = False  # does it compose as Gaussians do?
    truncated: ClassVar[bool] = False
    scale: ClassVar[float] = 1.0  # s/σ: releases state a Gaussian's deviation, and the scale of all others
    cancels: ClassVar[bool] = False  # in the mean over nodes? Then all add the same to what they divide
    without_proof: ClassVar[str | None] = None  # why nothing is proven whatever its size, in half a sentence
    bound: float | None = None  # where it ends in units of its scale, if that is given
    exponent: ClassVar[float] = 2.0
    observer: ClassVar[Observer] = EVERYONE  # whom its releases are planned to hold against
    # Does its covariance know how many nodes are honest, and nothing else of them?
    all_alike: ClassVar[bool] = True
    # What a release hides a record behind, over the noise that its node adds: more than 1 if others help.
    kept: ClassVar[float] = 1.0
    # What the first line of a ledger says of the noise: σ over the public step, and what its price needs.
    header: ClassVar[dict[str, Any]] = {}

    def covariance(self, honest: NDArray[np.int64]) -> Floats | None:
        """Over these nodes in units of each one's own, to who knows all that the others do; None: each its own."""
        return None

    def figures(self, sigma: float, dimension: int, end: float) -> dict[str, Any]:
        """Return the fields of a release besides its sensitivity and how records take part."""
        return {"sigma": sigma}

    def release(self, sigma: float, sensitivity: float, dimension: int, part: Participation, end: float) -> Release:
        """One release of scale `sigma` that ends at `end` times it (∞: nowhere)."""
        figures = self.figures(sigma, dimension, end)
        return self.released_as(sensitivity=sensitivity, **figures, **vars(part))

    def for_node_count(self, nodes: int) -> NoiseKind:
        """The same in a run of so many nodes: what noise correlated over nodes hides depends on their number."""
        return self

    @abstractmethod
    def make(self, levels: Levels, ends: Floats) -> Mechanism:
        """`ends` (m,) are where each node's noise ends, in units of its scale."""


families: Registry[NoiseKind] = Registry("privacy.noise.family")


@dataclass(frozen=True)
class Silent(NoiseKind):
    """Nothing is added."""

    kind: ClassVar[str] = "none"
    released_as: ClassVar[type[Release]] = releases.Unnoised
    adds: ClassVar[bool] = False

    def figures(self, sigma: float, dimension: int, end: float) -> dict[str, Any]:
        return {}

    def make(self, levels: Levels, ends: Floats) -> Mechanism:
        return SilentNoise(levels)


@dataclass(frozen=True)
class SilentNoise(Mechanism):
    adds: ClassVar[bool] = False

    def draw(self, at: Place, sums: Tensor, scale: Tensor, ready: Tensor | None) -> None:
        """Nothing is added."""

    def released(self, i: int, sigma: float, limit: float, dimension: int, part: Participation) -> Release:
        return releases.Unnoised(sensitivity=limit, **vars(part))


@dataclass(frozen=True)
class OwnNorm(NoiseKind):
    """σ · ‖g_i‖, the norm of what the node itself would release."""

    kind: ClassVar[str] = "own-norm"
    released_as: ClassVar[type[Release]] = releases.OwnNormGaussian
    without_proof: ClassVar[str | None] = "the noise scale itself reveals the record"

    def make(self, levels: Levels, ends: Floats) -> Mechanism:
        return OwnNormNoise(levels)


@dataclass(frozen=True)
class OwnNormNoise(Mechanism):
    scale_is_public: ClassVar[bool] = False

    def unit(self, bound: Tensor, sums: Tensor) -> Tensor:
        norms: Tensor = sums.norm(dim=1)
        return norms

    def released(self, i: int, sigma: float, limit: float, dimension: int, part: Participation) -> Release:
        """σ in units of the norm: that is all that is known of it."""
        return releases.OwnNormGaussian(sigma=sigma, sensitivity=limit, **vars(part))

    def draw(self, at: Place, sums: Tensor, scale: Tensor, ready: Tensor | None) -> None:
        at.stream.normal_rows(NOISE, at.nodes, at.draw, sums, scale)


class NoiseSchedule:
    kind: ClassVar[str]
    budget_ratio: ClassVar[float] = 1.0  # last per-step budget over first
    another: ClassVar[NoiseKind | None] = None  # the noise that it is about, if not the family asked for

    def shape(self, draws: int, clip: Schedule) -> Schedule:
        """Noise multipliers up to a common factor; `clip` is C_k."""
        return Constant(1.0)


schedules: Registry[NoiseSchedule] = Registry("privacy.noise.schedule")


@schedules.register("constant")
class ConstantNoise(NoiseSchedule):
    """The same noise multiplier in every draw."""


@schedules.register("growing-budget")
class GrowingBudget(NoiseSchedule):
    """The per-step budget grows geometrically, so the noise falls: Dyn-D2P's μ_k."""

    ratio: Annotated[types.Ratio, "last budget over first"]

    @property
    def budget_ratio(self) -> float:  # type: ignore[override]
        return self.ratio

    def shape(self, draws: int, clip: Schedule) -> Schedule:
        return Geometric(1.0, 1 / self.ratio, draws)


@schedules.register("sequence")
class SequenceNoise(NoiseSchedule):
    """Given noise levels σ̃_k over equal stretches of the run; the multiplier is σ̃_k / C_k."""

    values: Annotated[list[types.Size], Field(min_length=1), "the levels, one per stretch"]

    def shape(self, draws: int, clip: Schedule) -> Schedule:
        return Quotient(Stretches(tuple(self.values), draws), clip)


@schedules.register("own-norm")
class OwnNormSchedule(NoiseSchedule):
    """Noise scaled by the node's own gradient norm, as AdaD2P does: no proof survives it."""

    another: ClassVar[NoiseKind | None] = OwnNorm()


@schedules.register("none")
class NoNoise(NoiseSchedule):
    """No noise, and no privacy."""

    another: ClassVar[NoiseKind | None] = Silent()

    def shape(self, draws: int, clip: Schedule) -> Schedule:
        return Constant(0.0)
