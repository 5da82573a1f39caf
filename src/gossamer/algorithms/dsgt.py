from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from gossamer.algorithms.base import Grad, Mix, Schedule


class State(NamedTuple):
    x: Tensor  # (m, d) parameters
    y: Tensor  # (m, d) tracker: its mean over nodes is the mean of the last gradients
    g: Tensor  # (m, d) the node's last gradient


@dataclass(frozen=True, kw_only=True)
class DSGT:
    """Gradient tracking, doubly stochastic W.

        θ ← W (θ − η y),   y ← W y + g(θ) − g_prev,   y = g_prev = 0 at the start

    dp-consensus, Algorithm DP-DSGT. Tracking removes the bias that different data on the nodes leave in DSGD.
    """

    lr: Schedule
    weights: ClassVar[str] = "doubly"
    draws: ClassVar[int] = 1

    def init(self, x0: Tensor) -> State:
        return State(x=x0, y=x0.new_zeros(x0.shape), g=x0.new_zeros(x0.shape))

    def step(self, s: State, grad: Grad, mix: Mix, t: int) -> State:
        x, y = mix(s.x - self.lr(t) * s.y, s.y)
        g = grad(x)
        return State(x, y + g - s.g, g)

    def model(self, s: State) -> Tensor:
        return s.x
