"""Proximal maps prox_{s r}(x) = argmin_u s r(u) + ½‖u − x‖², on stacked points (…, p)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol

from pydantic import Field

from gossamer.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

# Strict, since a table of the configuration is read leniently: "0.1" is no weight.
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Finite = Annotated[float, Field(allow_inf_nan=False, strict=True)]
_KNOWN_KEYS = {"extra": "forbid"}


class Penalty(Protocol):
    """The regulariser r: its value, and its proximal map."""

    def value(self, x: Tensor) -> Tensor:
        """r(x) of every point: (…, p) → (…)."""
        ...

    def __call__(self, x: Tensor, step: float) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class Nothing:
    """r = 0."""

    kind: Literal["none"] = "none"
    __pydantic_config__: ClassVar = _KNOWN_KEYS

    def value(self, x: Tensor) -> Tensor:
        return x.new_zeros(x.shape[:-1])

    def __call__(self, x: Tensor, step: float) -> Tensor:
        return x


NOTHING = Nothing()


@dataclass(frozen=True, kw_only=True)
class L1:
    """r = λ‖x‖₁: soft thresholding."""

    kind: Literal["l1"] = "l1"
    weight: Weight
    __pydantic_config__: ClassVar = _KNOWN_KEYS

    def value(self, x: Tensor) -> Tensor:
        return self.weight * x.abs().sum(-1)

    def __call__(self, x: Tensor, step: float) -> Tensor:
        return shrink(x, step * self.weight)


@dataclass(frozen=True, kw_only=True)
class SquaredL2:
    """r = ½λ‖x‖²: a scaling."""

    kind: Literal["l2"] = "l2"
    weight: Weight
    __pydantic_config__: ClassVar = _KNOWN_KEYS

    def value(self, x: Tensor) -> Tensor:
        return self.weight / 2 * x.square().sum(-1)

    def __call__(self, x: Tensor, step: float) -> Tensor:
        return x / (1 + step * self.weight)


@dataclass(frozen=True, kw_only=True)
class ElasticNet:
    """r = λ‖x‖₁ + ½μ‖x‖²: soft thresholding, then a scaling."""

    kind: Literal["elastic-net"] = "elastic-net"
    weight: Weight
    l2: Weight
    __pydantic_config__: ClassVar = _KNOWN_KEYS

    def value(self, x: Tensor) -> Tensor:
        return self.weight * x.abs().sum(-1) + self.l2 / 2 * x.square().sum(-1)

    def __call__(self, x: Tensor, step: float) -> Tensor:
        return shrink(x, step * self.weight) / (1 + step * self.l2)


@dataclass(frozen=True, kw_only=True)
class Box:
    """r = 0 inside [low, high]^p, ∞ outside: a projection."""

    kind: Literal["box"] = "box"
    low: Finite
    high: Finite
    __pydantic_config__: ClassVar = _KNOWN_KEYS

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise UserError(f"penalty.low = {self.low} must not exceed penalty.high = {self.high}.")

    def value(self, x: Tensor) -> Tensor:
        outside = ((x < self.low) | (x > self.high)).any(-1)
        return x.new_zeros(x.shape[:-1]).masked_fill(outside, float("inf"))

    def __call__(self, x: Tensor, step: float) -> Tensor:
        return x.clamp(self.low, self.high)


AnyPenalty = Annotated[Nothing | L1 | SquaredL2 | ElasticNet | Box, Field(discriminator="kind")]


def shrink(x: Tensor, by: float) -> Tensor:
    """Soft thresholding: sign(x) · max(|x| − by, 0)."""
    return x - x.clamp(-by, by)
