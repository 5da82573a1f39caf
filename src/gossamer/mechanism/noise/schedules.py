"""How the noise goes over a run: `privacy.noise.schedule`. Its values are public constants, known before the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

from pydantic import Field
from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.releases import Release
from gossamer.mechanism.clipping import Constant, Geometric, Quotient, Schedule, Stretches
from gossamer.mechanism.noise.base import (
    NOISE,
    Floats,
    KindDefaults,
    Levels,
    Mechanism,
    NoiseKind,
    Participation,
    Place,
    ScaledNoise,
    Silent,
)
from gossamer.options import types
from gossamer.options.registry import Registry


@dataclass(frozen=True)
class OwnNorm(KindDefaults):
    """σ · ‖g_i‖, the norm of what the node itself would release."""

    kind: ClassVar[str] = "own-norm"
    release_kind: ClassVar[str] = "own-norm-gaussian"
    bound: ClassVar[float | None] = None
    without_proof: ClassVar[str | None] = "the noise scale itself reveals the record"

    def release(
        self, sigma: float, sensitivity: float, dimension: int, part: Participation, end: float
    ) -> Release:
        return releases.OwnNormGaussian(sigma=sigma, sensitivity=sensitivity, **part.common)

    def make(self, levels: Levels, ends: Floats) -> Mechanism:
        return OwnNormNoise(levels)


@dataclass(frozen=True)
class OwnNormNoise(ScaledNoise):
    scale_is_public: ClassVar[bool] = False

    def unit(self, bound: Tensor, sums: Tensor) -> Tensor:
        norms: Tensor = sums.norm(dim=1)
        return norms

    def released(self, i: int, sigma: float, limit: float, dimension: int, part: Participation) -> Release:
        """σ in units of the norm: that is all that is known of it."""
        return releases.OwnNormGaussian(sigma=sigma, sensitivity=limit, **part.common)

    def draw(self, at: Place, sums: Tensor, scale: Tensor, bound: Tensor, ready: Tensor | None) -> None:
        at.stream.normal_rows(NOISE, at.nodes, at.draw, sums, scale, accumulate=True)


class NoiseSchedule(Protocol):
    kind: ClassVar[str]

    @property
    def budget_ratio(self) -> float:
        """Last per-step budget over first."""
        ...

    def shape(self, draws: int, clip: Schedule) -> Schedule:
        """Noise multipliers up to a common factor; `clip` is C_k."""
        ...

    def noise(self, family: NoiseKind) -> NoiseKind:
        """Which noise it is: the family asked for, unless the schedule is about another."""
        ...


schedules: Registry[NoiseSchedule] = Registry("privacy.noise.schedule")


class _OfFamily:
    kind: ClassVar[str]

    @property
    def budget_ratio(self) -> float:
        return 1.0

    def shape(self, draws: int, clip: Schedule) -> Schedule:
        return Constant(1.0)

    def noise(self, family: NoiseKind) -> NoiseKind:
        return family


@schedules.register("constant")
@dataclass(frozen=True, kw_only=True)
class ConstantNoise(_OfFamily):
    """The same noise multiplier in every draw."""


@schedules.register("growing-budget")
@dataclass(frozen=True, kw_only=True)
class GrowingBudget(_OfFamily):
    """The per-step budget grows geometrically, so the noise falls: Dyn-D2P's μ_k."""

    ratio: Annotated[types.Ratio, Field(description="last budget over first")]

    @property
    def budget_ratio(self) -> float:
        return self.ratio

    def shape(self, draws: int, clip: Schedule) -> Schedule:
        return Geometric(1.0, 1 / self.ratio, draws)


@schedules.register("sequence")
@dataclass(frozen=True, kw_only=True)
class SequenceNoise(_OfFamily):
    """Given noise levels σ̃_k over equal stretches of the run; the multiplier is σ̃_k / C_k."""

    values: Annotated[list[types.Size], Field(min_length=1, description="the levels, one per stretch")]

    def shape(self, draws: int, clip: Schedule) -> Schedule:
        return Quotient(Stretches(tuple(self.values), draws), clip)


@schedules.register("own-norm")
@dataclass(frozen=True, kw_only=True)
class OwnNormSchedule(_OfFamily):
    """Noise scaled by the node's own gradient norm, as AdaD2P does: no proof survives it."""

    def noise(self, family: NoiseKind) -> NoiseKind:
        return OwnNorm()


@schedules.register("none")
@dataclass(frozen=True, kw_only=True)
class NoNoise(_OfFamily):
    """No noise, and no privacy."""

    def shape(self, draws: int, clip: Schedule) -> Schedule:
        return Constant(0.0)

    def noise(self, family: NoiseKind) -> NoiseKind:
        return Silent()
