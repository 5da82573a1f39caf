from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from gossamer.algorithms.base import Grad, Mix, Schedule


class State(NamedTuple):
    x: Tensor  # (m, d) biased parameters
    w: Tensor  # (m, 1) push-sum weights, Σ w = n over all nodes


@dataclass(frozen=True, kw_only=True)
class PushSum:
    """Stochastic gradient push over time-varying directed graphs, column-stochastic P.

        x ← P (x − η g(x / w)),   w ← P w,   model  x / w

    Assran et al. 2019; Dyn-D2P Algorithm 1, lines 10–14; AdaD2P Algorithm 1, eq. (4) and lines 7–11. The nine methods
    of the two papers are this rule with different clip and noise parts inside `g`.
    """

    lr: Schedule
    weights: ClassVar[str] = "column"
    draws: ClassVar[int] = 1

    def init(self, x0: Tensor) -> State:
        return State(x=x0, w=x0.new_ones(len(x0), 1))

    def step(self, s: State, grad: Grad, mix: Mix, t: int) -> State:
        x, w = mix(s.x - self.lr(t) * grad(s.x / s.w), s.w)
        return State(x, w)

    def model(self, s: State) -> Tensor:
        return s.x / s.w
