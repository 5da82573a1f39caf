"""Operators T for min f + r, where f is the nodes' loss and r a penalty with a proximal map.

An operator meets the records through one capability, `grad(points)`, and says which of two answers it means:

    asks = "gradient"   ∇f(v)
    asks = "envelope"   (v − prox_{γf}(v)) / γ, the gradient of the Moreau envelope: what a resolvent of f moves by

Both are means of one vector per record, so both can be clipped and noised; the rest of T is arithmetic on x. A new
operator is a class like these and a line in `OPERATORS`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from gossamer.algorithms.base import Grad
from gossamer.errors import UserError
from gossamer.methods.km.proximal import NOTHING, Penalty

Asks = Literal["gradient", "envelope"]


@dataclass(frozen=True)
class Operator:
    """T with its step γ and penalty r, which not every operator uses; nonexpansive for every γ unless it says less."""

    step: float
    penalty: Penalty = NOTHING
    asks: ClassVar[Asks] = "envelope"

    def __call__(self, x: Tensor, grad: Grad) -> Tensor:
        """T(x), for all points at once."""
        raise NotImplementedError

    def solution(self, x: Tensor) -> Tensor:
        """The minimiser that a fixed point x stands for."""
        return x

    def largest_step(self, smoothness: float) -> float:
        """Up to which γ T is nonexpansive, if ∇f is `smoothness`-Lipschitz (∞: not smooth at all)."""
        return math.inf


class Backward(Operator):
    """T = prox_{γf}: proximal point. r plays no part. Nonexpansive for every γ."""

    def __call__(self, x: Tensor, grad: Grad) -> Tensor:
        return x - self.step * grad(x)


class Forward(Backward):
    """T = I − γ∇f: gradient descent. r plays no part. Nonexpansive for γ ≤ 2/L."""

    asks: ClassVar[Asks] = "gradient"

    def largest_step(self, smoothness: float) -> float:
        return 2 / smoothness


class ForwardBackward(Forward):
    """T = prox_{γr} ∘ (I − γ∇f): proximal gradient (SPGD, ISTA). Nonexpansive for γ ≤ 2/L."""

    def __call__(self, x: Tensor, grad: Grad) -> Tensor:
        return self.penalty(x - self.step * grad(x), self.step)

    def apart(self) -> tuple[Operator, Penalty]:
        """(what reads records, what only has to follow): the penalty's map needs no record."""
        return Forward(self.step), self.penalty


class PeacemanRachford(Operator):
    """T = R_f R_r with reflections R = 2 prox − I. Nonexpansive for every γ, and no more: it needs α < 1."""

    def __call__(self, x: Tensor, grad: Grad) -> Tensor:
        reflected = reflect(self.penalty, x, self.step)
        return reflected - 2 * self.step * grad(reflected)

    def solution(self, x: Tensor) -> Tensor:
        return self.penalty(x, self.step)


class DouglasRachford(PeacemanRachford):
    """T = ½ (I + R_f R_r): ADMM. Firmly nonexpansive for every γ."""

    def __call__(self, x: Tensor, grad: Grad) -> Tensor:
        return x + 0.5 * (super().__call__(x, grad) - x)


# What a configuration can name. A user's own operator joins by `OPERATORS["mine"] = Mine`.
OPERATORS: dict[str, Any] = {
    "forward": Forward,
    "forward-backward": ForwardBackward,
    "backward": Backward,
    "douglas-rachford": DouglasRachford,
    "peaceman-rachford": PeacemanRachford,
}


def reflect(penalty: Penalty, x: Tensor, step: float) -> Tensor:
    """2 prox_{γr}(x) − x."""
    return 2 * penalty(x, step) - x


def check_step(operator: Operator, step: float, smoothness: float) -> None:
    """Refuse a step with which T need not be nonexpansive."""
    largest = operator.largest_step(smoothness)
    if step <= largest:
        return
    name = next((key for key, kind in OPERATORS.items() if type(operator) is kind), "this")
    if math.isinf(smoothness):
        raise UserError(
            f"algorithm.operator = {name!r} needs a loss with a Lipschitz gradient and this one has none; use "
            "'backward' or 'douglas-rachford'."
        )
    raise UserError(
        f"algorithm.gamma = {step:g} makes the operator expansive: {name} needs at most 2/L = {largest:.4g} for a loss "
        f"whose gradient has the Lipschitz constant L = {smoothness:.4g}."
    )
