from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import AfterValidator
from torch import Tensor

from gossamer.algorithms.base import Grad, Mix, Schedule
from gossamer.errors import UserError
from gossamer.mechanism.clipping import extremes
from gossamer.methods.km.operators import OPERATORS, Operator, check_step
from gossamer.methods.km.proximal import NOTHING, Penalty, penalties
from gossamer.options.types import Positive


def _known(name: str) -> str:
    if name not in OPERATORS:
        raise ValueError(f"the operators are {', '.join(OPERATORS)}")
    return name


def check_relaxation(lr: Schedule, rounds: int) -> None:
    """x ← W x + α (T(x) − x) is an average, and so nonexpansive, for α in (0, 1]: in every round."""
    least, largest = extremes(lr, rounds)
    if not (least > 0 and largest <= 1):
        raise UserError(
            f"algorithm.lr reaches {largest if largest > 1 else least:g} and is the relaxation α of the operator; use "
            "0 < α ≤ 1."
        )


class State(NamedTuple):
    x: Tensor  # (m, p) the points: exactly what a round sends


@dataclass(frozen=True, kw_only=True)
class KM:
    """Decentralized Krasnosel'skiĭ–Mann iteration of a nonexpansive operator T, doubly stochastic W.

        x ← W x + α (T(x) − x)                                        prox_first
        x ← prox_{αγr}( W x + α (F(x) − x) ),  T = prox_{γr} ∘ F      otherwise, where T comes apart so

    DP-dKM, Definition 2 and eq. (1). A round sends x and nothing else. Which records T(x) read is up to `grad`, and so
    is the noise in its answer; in the paper's Algorithm 1 `grad` has none and the messages have it (X̃ in place of X).
    With different data on the nodes the first form stops at a distance of order γ from the optimum however small α is
    (a zero mean of prox residuals is not optimality of the sum); the second gets there as α falls. `lr` is α.
    """

    lr: Schedule
    operator: Annotated[str, AfterValidator(_known), f"T: {', '.join(OPERATORS)}"] = "forward-backward"
    gamma: Annotated[Positive, "γ, the step inside the operator"] = 0.1
    penalty: Annotated[Penalty, penalties, "the regulariser r"] = NOTHING
    smoothness: Annotated[Positive | None, "declared L of ∇f; the step is checked against it"] = None
    prox_first: Annotated[bool, "the penalty's map before mixing, as in the paper"] = False
    resolvent: Annotated[Literal["record", "node"], "whose loss the resolvent is of; node has no proof"] = "record"
    weights: ClassVar[str] = "doubly"

    def __post_init__(self) -> None:
        check_relaxation(self.lr, getattr(self.lr, "rounds", 1))
        if self.smoothness is not None:
            check_step(self.mapping, self.gamma, self.smoothness)

    @cached_property
    def mapping(self) -> Operator:
        operator: Operator = OPERATORS[self.operator](step=self.gamma, penalty=self.penalty)
        return operator

    @cached_property
    def draws(self) -> int:
        """The number of times T asks about records, counted on an empty point: what is asked twice is paid twice."""
        calls: list[Tensor] = []

        def count(points: Tensor) -> Tensor:
            calls.append(points)
            return torch.empty_like(points)

        self.mapping(torch.empty(1, 1, device="meta"), count)
        return len(calls)

    @cached_property
    def _parts(self) -> tuple[Operator, Penalty]:
        """(what is evaluated at x, the map that follows mixing)."""
        apart: Any = getattr(self.mapping, "apart", None)
        return (self.mapping, NOTHING) if self.prox_first or apart is None else apart()

    def init(self, x0: Tensor) -> State:
        return State(x=x0)

    def step(self, s: State, grad: Grad, mix: Mix, t: int) -> State:
        alpha, (reads, follows) = self.lr(t), self._parts
        moved = mix(s.x) + alpha * (reads(s.x, grad) - s.x)
        return State(follows(moved, alpha * self.gamma))

    def model(self, s: State) -> Tensor:
        return self.mapping.solution(s.x)
