from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from gossamer.algorithms.base import Schedule
from gossamer.methods.without_replacement.controllers import Controller, DeepQ, above, always, coin, pass_end
from gossamer.options.types import Count, Fraction, NonNegative, Positive

LOOKING = ("deep-q", "loss-threshold")  # controllers whose choice follows what they see


class State(NamedTuple):
    public: Tensor  # (1, C·d) the shared model
    holder: Tensor  # who wrote it last
    writes: Tensor  # how often it was written
    controller: Controller  # stays where it is: what it learned from may be private


@dataclass(frozen=True, kw_only=True)
class WithoutReplacement:
    """Without-replacement SGD with a shared public model: each turn a node chooses, class by class,

        local    w_L ← Π(w_L − 2η ∇f(w_L))
        global   w_G ← Π((w_G + w_L)/2 − η ∇f(w_G) + noise),   w_L ← w_G

    Algorithm 1 and eqs. (5), (6) of Jin, He, Dai. Who chooses is the `controller`; `observes` says what it may look at:
    raw losses as in the paper's Algorithm 2, or released values. `average = false` leaves w_L out of the global step.
    """

    lr: Schedule
    seed: int = 0
    rounds: int = 1
    controller: Annotated[
        Literal["global", "local", "pass-end", "probability", "deep-q", "loss-threshold"],
        "who chooses between a local step and a write",
    ] = "deep-q"
    observes: Annotated[Literal["raw", "released"], "what a choice may look at; raw losses have no proof"] = "released"
    probability: Annotated[Fraction, "of a write; controller = probability"] = 0.1
    threshold: Annotated[NonNegative, "loss above which a node writes; controller = loss-threshold"] = 0.3
    discount: Annotated[float, Field(ge=0, lt=1), "of later rewards; controller = deep-q"] = 0.0
    target_every: Annotated[Count, "turns between target networks; controller = deep-q"] = 20
    loss_share: Annotated[float, Field(gt=0, lt=1), "share of the budget for the losses that a choice looks at"] = 0.1
    regularisation: Annotated[NonNegative, "λ of the penalty ½λ‖w‖²"] = 0.0
    radius: Annotated[Positive | None, "of the ball the models are projected into; none if not set"] = None
    average: Annotated[bool, "a write starts halfway to the node's own model"] = True
    scored: Annotated[Literal["global", "local"], "which models the accuracies are of"] = "global"
    weights: ClassVar[str] = "adjacency"
    draws: ClassVar[int] = 1

    def init(self, x0: Tensor) -> State:
        return State(x0[:1], x0.new_tensor(-1), x0.new_tensor(0), self.make_controller())

    def step(self, s: State, grad: Any, mix: Any, t: int) -> State:
        """`grad` is the private part (LocalModels), `mix` one round of the token."""
        observed = grad.open(t, self.lr(t))
        wants = s.controller(observed, t)
        if self.controller != "local" and t + 1 < self.rounds:
            # A pass that another follows ends with a write: else the next write would hold a record twice.
            wants = wants | observed.closing[:, None]
        wants = wants & grad.may_write()[:, None]
        grad.prepare(wants)
        token = mix(wants, lambda i, public: grad.write(i, public, wants[i]))
        grad.step_locally(wants)
        public = token.public.clone().reshape(1, -1)
        return State(public, torch.tensor(token.holder), torch.tensor(token.writes), s.controller)

    def model(self, s: State) -> Tensor:
        return s.public

    @property
    def looks(self) -> bool:
        """Does the choice follow the data at all?"""
        return self.controller in LOOKING

    def make_controller(self) -> Controller:
        made: dict[str, Controller] = {
            "global": always(True),
            "local": always(False),
            "pass-end": pass_end,
            "probability": coin(self.probability, self.seed),
            "loss-threshold": above(self.threshold),
            "deep-q": DeepQ(self.discount, self.target_every, anneal=self.rounds // 2, seed=self.seed),
        }
        return made[self.controller]
