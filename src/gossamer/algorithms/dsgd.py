from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from gossamer.algorithms.base import Grad, Mix, Schedule


class State(NamedTuple):
    x: Tensor  # (m, d) parameters


@dataclass(frozen=True, kw_only=True)
class DSGD:
    """Decentralized gradient descent, doubly stochastic W, the gradient at the point before mixing.

        θ ← W θ − η g(θ)

    dp-consensus, Algorithm DP-DSGD. All neighbours contribute their old state.
    """

    lr: Schedule
    weights: ClassVar[str] = "doubly"
    draws: ClassVar[int] = 1

    def init(self, x0: Tensor) -> State:
        return State(x=x0)

    def step(self, s: State, grad: Grad, mix: Mix, t: int) -> State:
        return State(mix(s.x) - self.lr(t) * grad(s.x))

    def model(self, s: State) -> Tensor:
        return s.x
