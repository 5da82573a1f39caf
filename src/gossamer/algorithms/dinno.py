from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from gossamer.algorithms.base import Grad, Mix, Schedule
from gossamer.options.types import Count, Positive

_BETA1, _BETA2, _TINY = 0.9, 0.999, 1e-8


class State(NamedTuple):
    x: Tensor  # (m, d) parameters, the primal variable
    y: Tensor  # (m, d) dual variable; sums to 0 over the nodes of an undirected graph
    first: Tensor  # (m, d) Adam's moments, where they persist; (m, 0) where nothing has to be kept
    second: Tensor
    taken: Tensor  # (m, 1) Adam's steps so far


@dataclass(frozen=True, kw_only=True)
class DiNNO:
    """Consensus ADMM, the primal problem by a few optimiser steps; sums over the neighbours N_i.

        y_i ← y_i + ρ Σ_j (θ_i − θ_j)
        ψ ← θ_i;  `steps` times:  ψ ← ψ − η · optimiser( g(ψ) + y_i + 2ρ Σ_j (ψ − (θ_i + θ_j)/2) )
        θ_i ← ψ

    dp-consensus, eqs. (6), (7), Algorithm 3; its line 15 ascends by a slip of sign, meant is descent. Only g reads
    data, once per inner step. `include_self`: the paper's N_i holds i too, which adds 2ρ(ψ − θ_i). `persistent`:
    Adam's moments outlive the round; the authors' code starts them afresh every round.
    """

    lr: Schedule
    rho: Annotated[Positive, Field(description="ρ, how hard the nodes pull at each other")] = 0.1
    steps: Annotated[Count, Field(description="optimiser steps of a round, each with a gradient of its own")] = 1
    optimiser: Annotated[Literal["adam", "plain"], Field(description="of the primal problem")] = "adam"
    persistent: Annotated[bool, Field(description="Adam's moments outlive the round")] = False
    include_self: Annotated[bool, Field(description="a node counts as its own neighbour, as in the paper")] = False
    weights: ClassVar[str] = "adjacency"

    @property
    def draws(self) -> int:
        return self.steps

    def init(self, x0: Tensor) -> State:
        kept = x0.shape if self._keeps else (len(x0), 0)
        return State(
            x=x0,
            y=x0.new_zeros(x0.shape),
            first=x0.new_zeros(kept),
            second=x0.new_zeros(kept),
            taken=x0.new_zeros(len(x0), 1),
        )

    def step(self, s: State, grad: Grad, mix: Mix, t: int) -> State:
        neighbours, degree = mix(s.x, s.x.new_ones(len(s.x), 1))
        y = s.y + self.rho * (degree * s.x - neighbours)
        if self.include_self:
            neighbours, degree = neighbours + s.x, degree + 1
        anchor = degree * s.x + neighbours
        first, second, taken = s.first, s.second, s.taken
        if self.optimiser == "adam" and not self.persistent:
            first, second, taken = torch.zeros_like(s.x), torch.zeros_like(s.x), torch.zeros_like(s.taken)
        point = s.x
        for _ in range(self.steps):
            g = grad(point) + y + self.rho * (2 * degree * point - anchor)
            if self.optimiser == "adam":
                taken = taken + 1
                first, second = first.lerp(g, 1 - _BETA1), second.lerp(g.square(), 1 - _BETA2)
                g = first / _bias(_BETA1, taken) / ((second / _bias(_BETA2, taken)).sqrt() + _TINY)
            point = point - self.lr(t) * g
        return State(point, y, first, second, taken) if self._keeps else s._replace(x=point, y=y)

    def model(self, s: State) -> Tensor:
        return s.x

    @property
    def _keeps(self) -> bool:
        return self.optimiser == "adam" and self.persistent


def _bias(beta: float, taken: Tensor) -> Tensor:
    """1 − β^taken, in double precision: at the first steps single precision would lose four digits."""
    return (1 - beta ** taken.double()).to(taken.dtype)
