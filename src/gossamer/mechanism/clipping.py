"""Clips: per-record norms → weights, and the bound that makes on one record's contribution.

A *kind* is what the configuration names; `make` turns it into the clip of a run, which says for every draw how to weigh
norms and the *reference* the noise is scaled to. That is also a bound on every record's contribution where the clip
enforces it; where a paper believes in a bound instead, nothing does.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from gossamer.errors import UserError
from gossamer.kernels.persons import Persons
from gossamer.options.registry import Registry
from gossamer.options.types import LEAST_BOUND, MOST_BOUND, Positive, Ratio, Size

Schedule = Callable[[int], float]  # draw → value


class Extremes(NamedTuple):
    least: float
    largest: float


def extremes(schedule: Schedule, draws: int) -> Extremes:
    """Over all draws of a run, k = 0 … draws − 1: whatever is bounded is bounded here, however the schedule goes.

    Every draw is looked at. A schedule need not be monotone, so its first and last values say nothing of the others.
    """
    values = [schedule(k) for k in range(max(draws, 1))]
    return Extremes(min(values), max(values))


@dataclass(frozen=True)
class Constant:
    value: float

    def __call__(self, k: int) -> float:
        return self.value


@dataclass(frozen=True)
class Geometric:
    """start · ratio^(k / K): Dyn-D2P's C_k with ratio 1/ρ_c, its 1/μ_k with ratio 1/ρ_μ."""

    start: float
    ratio: float
    draws: int

    def __call__(self, k: int) -> float:
        return float(self.start * self.ratio ** (k / self.draws))


@dataclass(frozen=True)
class Stretches:
    """The given values over equal stretches of the run: one value is a constant, K values are one per draw."""

    values: Sequence[float]
    draws: int

    def __call__(self, k: int) -> float:
        return self.values[min(k * len(self.values) // self.draws, len(self.values) - 1)]


@dataclass(frozen=True)
class Quotient:
    """over(k) / under(k)."""

    over: Schedule
    under: Schedule

    def __call__(self, k: int) -> float:
        return self.over(k) / self.under(k)


@dataclass(frozen=True)
class After:
    """`first` at the first draw, then `rest` from its beginning."""

    first: float
    rest: Callable[[int], float]

    def __call__(self, k: int) -> float:
        return self.rest(k - 1) if k else self.first


Weigh = Callable[[Tensor], Tensor]
Noised = Callable[[Tensor, Tensor], Tensor]  # (m,) values and deviations → what is released


@dataclass(frozen=True)
class ClipStep:
    """The clip of one draw."""

    weigh: Weigh
    reference: Tensor  # (m,) what the noise is scaled to
    enforced: bool  # is the reference also a bound on every record's contribution?
    unit: Tensor | None = None  # (m,) what each node's norms are measured in before `weigh`, if in anything
    of_lot: bool = False  # does the reference bound the sum of the lot, and no record by itself?

    def sums(
        self,
        vector: Callable[..., tuple[Tensor, Tensor]],
        points: Tensor,
        x: Tensor,
        y: Tensor,
        mask: Tensor,
        persons: Persons | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(m, d) what noise goes on: the vector's weighted sums, clipped as a whole if asked; and the norms (m, B).

        Of `persons` their norms, (m, P). A vector that knows of no persons is never asked about them.
        """
        unit = None if self.unit is None else self.unit[: len(points)].to(points)
        whose = {} if persons is None else {"persons": persons}
        sums, norms = vector(points, x, y, mask, self.weigh, unit=unit, **whose)
        if self.of_lot:
            lengths = torch.linalg.vector_norm(sums, dim=1, dtype=torch.float64)
            most = self.reference[: len(points)].to(lengths)
            sums.mul_((most / lengths.clamp_min(1e-30)).clamp_max(1.0).to(sums)[:, None])
        return sums, norms


class Clip(ABC):
    """The clip of a run."""

    scale_is_public: ClassVar[bool] = True  # can everyone compute the reference of every draw?

    @abstractmethod
    def at(self, k: int, nodes: int) -> ClipStep: ...

    def multiplier_left(self, multiplier: Tensor) -> Tensor:
        """(m,) of a draw's noise multiplier, what is left for the sum after the clip's own release."""
        return multiplier

    def follow(self, norms: Tensor, mask: Tensor, release: Noised, lots: Tensor, active: Tensor) -> None:
        """Adapt to the norms of a draw by a release of its own: `release` puts noise on counts."""
        return

    def state(self) -> dict[str, Tensor]:
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        return


class ClipKind(ABC):
    """A clip as it is configured."""

    kind: ClassVar[str]
    enforced: ClassVar[bool] = True  # does it bound every record's contribution?
    assumes: ClassVar[bool] = False  # is noise scaled to a bound that nothing enforces?
    follows_records: ClassVar[bool] = False  # does its bound follow the records, by a release of its own?
    stays: ClassVar[bool] = False  # is it the same in every draw?
    of: Literal["record", "lot"] = "record"  # is a lot's mean bounded as a whole, and no record by itself?
    unit: ClassVar[float] = 1.0  # the bound that stays the same over a run; 1 where there is none
    # The largest norm that a record itself can have, where records are scaled.
    record_bound: ClassVar[float] = math.inf

    def schedule(self, draws: int) -> Schedule:
        """C_k as a function of the draw; 1 where the clip has no sequence of its own."""
        return Constant(1.0)

    @abstractmethod
    def make(self, draws: int, lots: Tensor, largest: Tensor) -> Clip:
        """The clip of a run. `lots` (m,) are the nodes' lot sizes, `largest` (m,) their largest noise multipliers."""


clips: Registry[ClipKind] = Registry("privacy.clip")


class PublicBound(ClipKind, Clip):
    """A kind that is also the clip of a run: no record has a say in its bound, and there is no state."""

    def make(self, draws: int, lots: Tensor, largest: Tensor) -> Clip:
        return self


@dataclass(frozen=True)
class ClipTo(Clip):
    """g · min(1, C_k / ‖g‖), Dyn-D2P eq. (5)."""

    bound: Schedule

    def at(self, k: int, nodes: int) -> ClipStep:
        C = self.bound(k)
        reference = torch.full((nodes,), C, dtype=torch.float64)
        return ClipStep(lambda norms: clip_weights(norms, C), reference, enforced=True)


@dataclass(frozen=True)
class ClipLotTo(Clip):
    """ḡ · min(1, C_k / ‖ḡ‖) for the lot's mean ḡ, its sum over the public lot size L: the sum is clipped to L · C_k.

    L is the expected size and not the number drawn, which is private; both would cost the same, since the price
    rests on the ball that the value ends up in. Single records are held below 1e12 only so that the sum stays finite.
    """

    bound: Schedule
    lots: Tensor  # (m,) L

    def at(self, k: int, nodes: int) -> ClipStep:
        reference = self.bound(k) * self.lots[:nodes].double()
        return ClipStep(lambda norms: clip_weights(norms, MOST_BOUND), reference, enforced=True, of_lot=True)


def clip_weights(norms: Tensor, C: float) -> Tensor:
    # A zero gradient keeps weight 1; the tiny floor only avoids 0/0.
    return (C / norms.clamp_min(1e-30)).clamp_max(1.0)


Of = Literal["record", "lot"]
OF = "what is scaled down: each record's vector, or the lot's mean as a whole"


class _Scheduled(ClipKind):
    """C_k for each record's vector, or for the mean of a lot."""

    def make(self, draws: int, lots: Tensor, largest: Tensor) -> Clip:
        bound = self.schedule(draws)
        return ClipLotTo(bound, lots) if self.of == "lot" else ClipTo(bound)


@clips.register("constant")
class ConstantClip(_Scheduled):
    """Every record's vector, or a lot's mean, is scaled down to one bound."""

    bound: Annotated[Size, "largest norm of a record's vector, or of a lot's mean"]
    of: Annotated[Of, OF] = "record"
    stays: ClassVar[bool] = True

    @property
    def unit(self) -> float:  # type: ignore[override]
        return self.bound

    def schedule(self, draws: int) -> Schedule:
        return Constant(self.bound)


@clips.register("decaying")
class DecayingClip(_Scheduled):
    """The bound falls geometrically over the run: Dyn-D2P's C_k."""

    start: Annotated[Size, "bound of the first draw"]
    ratio: Annotated[Ratio, "first bound over last"]
    of: Annotated[Of, OF] = "record"

    def schedule(self, draws: int) -> Schedule:
        return Geometric(self.start, 1 / self.ratio, draws)


@clips.register("sequence")
class SequenceClip(_Scheduled):
    """Given bounds over equal stretches of the run."""

    values: Annotated[list[Size], Field(min_length=1), "the bounds, one per stretch"]
    of: Annotated[Of, OF] = "record"

    def schedule(self, draws: int) -> Schedule:
        return Stretches(tuple(self.values), draws)


@clips.register("normalised")
class NormalisedClip(PublicBound):
    """g / (‖g‖ + γ): every record contributes less than 1.

    γ has the floor of every bound, 1e-12. A measured norm n can be too short: of entries below 2⁻⁶³ the squares are no
    normal float32 numbers and may count as 0, so ‖g‖ ≤ n + √d · 2⁻⁶³ and a record contributes at most
    (n + √d · 2⁻⁶³) / (n + γ), which is at most 1 where γ ≥ √d · 2⁻⁶³: at 1e-12 up to d = 2⁴⁰ · 70 parameters. The
    weight is at most 1e12 then, so neither it nor its product with a gradient overflows.
    """

    gamma: Annotated[Size, "γ: how short a vector must be to stay short"] = 0.01

    def at(self, k: int, nodes: int) -> ClipStep:
        return ClipStep(lambda norms: 1 / (norms + self.gamma), torch.ones(nodes), enforced=True)


@clips.register("quantile")
class QuantileClip(ClipKind):
    """The bound follows a quantile of the norms through a noised count, out of the same budget."""

    start: Annotated[Size, "bound of the first draw"] = 1.0
    quantile: Annotated[float, Field(gt=0, lt=1), "share of norms below the bound"] = 0.5
    lr: Annotated[Positive, "how fast the bound follows"] = 0.2
    count_noise: Annotated[Positive | None, "std of the noise on the count; a twentieth of the lot if not set"] = None
    follows_records: ClassVar[bool] = True

    def make(self, draws: int, lots: Tensor, largest: Tensor) -> Clip:
        # A twentieth of the lot as in Andrew et al.; never so small that the count takes most of the budget.
        given = self.count_noise
        count = torch.full_like(lots, given) if given else torch.maximum(lots / 20, largest)
        if bool((2 * count <= largest).any()):
            raise UserError(
                f"privacy.clip.count_noise = {given} takes the whole budget; "
                f"use more than {float(largest.max()) / 2:.3g}."
            )
        return FollowedQuantile(torch.full_like(lots, self.start), self.quantile, self.lr, count)


@clips.register("assumed")
class AssumedBound(PublicBound):
    """Nothing is clipped; the noise is scaled to a bound that is only believed to hold."""

    bound: Annotated[Size, "what the paper believes no norm exceeds"]
    enforced: ClassVar[bool] = False
    assumes: ClassVar[bool] = True

    @property
    def unit(self) -> float:  # type: ignore[override]
        return self.bound

    def at(self, k: int, nodes: int) -> ClipStep:
        return _unclipped(nodes, self.bound)


@clips.register("record-ball")
class RecordBall(PublicBound):
    """Records are scaled into a ball, each by itself, and with them the gradients of a linear model's loss."""

    radius: Annotated[Size, "largest norm of a record"] = 1.0

    @property
    def record_bound(self) -> float:  # type: ignore[override]
        return self.radius

    def at(self, k: int, nodes: int) -> ClipStep:
        return _unclipped(nodes)


@clips.register("none")
class NoClip(PublicBound):
    """Nothing is clipped."""

    enforced: ClassVar[bool] = False
    stays: ClassVar[bool] = True

    def at(self, k: int, nodes: int) -> ClipStep:
        return _unclipped(nodes)


def _unclipped(nodes: int, believed: float = math.inf) -> ClipStep:
    """Nothing is done to the vectors; noise is scaled to a bound that nothing enforces."""
    return ClipStep(torch.ones_like, torch.full((nodes,), believed), enforced=False)


@dataclass
class FollowedQuantile(Clip):
    """C follows a quantile of the norms through a noised count (Andrew et al. 2021, Algorithm 1).

    Of a draw with noise multiplier z, the count of norms below C, each record counted as ±½, takes its share with
    std σ_b, and the sum the rest: z_Δ = (z⁻² − (2 σ_b)⁻²)^(−½). The pair is one Gaussian release at z. Each node
    follows its own C_i.
    """

    bounds: Tensor  # (m,) the current C_i: state, kept in checkpoints
    quantile: float
    lr: float
    count_noise: Tensor = field(default_factory=lambda: torch.tensor(0.0))  # (m,) σ_b
    scale_is_public: ClassVar[bool] = False

    def at(self, k: int, nodes: int) -> ClipStep:
        return ClipStep(lambda norms: clip_weights(norms, 1.0), self.bounds, enforced=True, unit=self.bounds)

    def multiplier_left(self, multiplier: Tensor) -> Tensor:
        return (multiplier**-2 - (2 * self.count_noise) ** -2) ** -0.5

    def follow(self, norms: Tensor, mask: Tensor, release: Noised, lots: Tensor, active: Tensor) -> None:
        """C ← C · exp(−lr · (noised share of norms ≤ C − quantile))."""
        norms, mask = norms.cpu(), mask.cpu()
        below = ((norms <= self.bounds[:, None]).double() - 0.5) * mask
        share = release(below.sum(1), self.count_noise.expand(len(below))) / lots + 0.5
        step = torch.exp(-self.lr * (share.clamp(0, 1) - self.quantile))
        # Kept where float32 can say it: a bound that rounds to 0 or overflows would no longer clip.
        self.bounds = torch.where(active, self.bounds * step, self.bounds).clamp(LEAST_BOUND, MOST_BOUND)

    def state(self) -> dict[str, Tensor]:
        return {"clip_bounds": self.bounds}

    def restore(self, state: dict[str, Tensor]) -> None:
        self.bounds = state["clip_bounds"]
