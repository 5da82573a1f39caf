"""How the noise goes over a run: `privacy.noise.schedule`. Its values are public constants, known before the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.releases import Release
from gossamer.mechanism.clipping import Constant, Geometric, Quotient, Schedule, Stretches
from gossamer.mechanism.noise.base import (
    NOISE,
    Floats,
    Levels,
    Mechanism,
    NoiseKind,
    Participation,
    Place,
    Silent,
)
from gossamer.options import types
from gossamer.options.registry import Registry


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
