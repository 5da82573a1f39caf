"""Proximal maps prox_{s r}(x) = argmin_u s r(u) + ½‖u − x‖², on stacked points (…, p)."""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import Field
from torch import Tensor

from gossamer.errors import UserError
from gossamer.options.registry import Registry
from gossamer.options.types import Finite, NonNegative

Weight = Annotated[NonNegative, Field(description="λ")]


class Penalty(Protocol):
    """The proximal map of the regulariser r."""

    def __call__(self, x: Tensor, step: float) -> Tensor: ...

    def undo(self, x: Tensor, step: float, rounding: float | Tensor = 0.0) -> tuple[Tensor, Tensor | None]:
        """The point that `step` mapped to x, and where it is certain; None: everywhere. For audits.

        `rounding` is how far x may be off.
        """
        ...


penalties: Registry[Penalty] = Registry("algorithm.penalty")


@penalties.register("none")
class Nothing:
    """r = 0."""

    def __call__(self, x: Tensor, step: float) -> Tensor:
        return x

    def undo(self, x: Tensor, step: float, rounding: float | Tensor = 0.0) -> tuple[Tensor, Tensor | None]:
        return x, None


NOTHING = Nothing()


@penalties.register("l1")
class L1:
    """r = λ‖x‖₁: soft thresholding."""

    weight: Weight

    def __call__(self, x: Tensor, step: float) -> Tensor:
        return shrink(x, step * self.weight)

    def undo(self, x: Tensor, step: float, rounding: float | Tensor = 0.0) -> tuple[Tensor, Tensor | None]:
        return x + step * self.weight * x.sign(), x.abs() > rounding


@penalties.register("l2")
class SquaredL2:
    """r = ½λ‖x‖²: a scaling."""

    weight: Weight

    def __call__(self, x: Tensor, step: float) -> Tensor:
        return x / (1 + step * self.weight)

    def undo(self, x: Tensor, step: float, rounding: float | Tensor = 0.0) -> tuple[Tensor, Tensor | None]:
        return x * (1 + step * self.weight), None


@penalties.register("elastic-net")
class ElasticNet:
    """r = λ‖x‖₁ + ½μ‖x‖²: soft thresholding, then a scaling."""

    weight: Weight
    l2: Annotated[NonNegative, "μ"]

    def __call__(self, x: Tensor, step: float) -> Tensor:
        return shrink(x, step * self.weight) / (1 + step * self.l2)

    def undo(self, x: Tensor, step: float, rounding: float | Tensor = 0.0) -> tuple[Tensor, Tensor | None]:
        return x * (1 + step * self.l2) + step * self.weight * x.sign(), x.abs() > rounding


@penalties.register("box")
class Box:
    """r = 0 inside [low, high]^p, ∞ outside: a projection."""

    low: Annotated[Finite, "smallest value of a parameter"]
    high: Annotated[Finite, "largest value of a parameter"]

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise UserError(f"penalty.low = {self.low} must not exceed penalty.high = {self.high}.")

    def __call__(self, x: Tensor, step: float) -> Tensor:
        return x.clamp(self.low, self.high)

    def undo(self, x: Tensor, step: float, rounding: float | Tensor = 0.0) -> tuple[Tensor, Tensor | None]:
        return x, (x - rounding > self.low) & (x + rounding < self.high)


def shrink(x: Tensor, by: float) -> Tensor:
    """Soft thresholding: sign(x) · max(|x| − by, 0)."""
    return x - x.clamp(-by, by)
