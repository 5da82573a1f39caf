"""Algorithms on small graphs whose messages somebody sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gossamer.algorithms.base import Exponential
from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.push_sum import PushSum
from gossamer.auditing.trainings import StackedExchange
from gossamer.methods.km.algorithm import KM
from gossamer.methods.km.proximal import L1, Box, ElasticNet, SquaredL2
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run
from gossamer.topology.kinds import build as build_topology

N, D, ROUNDS = 5, 3, 9


LR = Exponential(0.3, 0.5, ROUNDS)


CASES: dict[str, tuple[Any, str]] = {
    "push-sum": (PushSum(lr=LR), "digraph"),
    "dsgd": (DSGD(lr=LR), "ring"),
    "dsgt": (DSGT(lr=LR), "ring"),
    "dinno plain": (DiNNO(lr=LR, rho=0.2, optimiser="plain"), "ring"),
    "dinno plain, itself a neighbour": (DiNNO(lr=LR, rho=0.2, optimiser="plain", include_self=True), "star"),
    "dinno plain, 3 steps": (DiNNO(lr=LR, rho=0.2, optimiser="plain", steps=3), "star"),
    "dinno": (DiNNO(lr=LR, rho=0.2), "ring"),
}


def topology_for(algorithm: Any, kind: str) -> Any:
    return build_topology(kind, nodes=N, weights=algorithm.weights, seed=1)


KM_CASES: dict[str, KM] = {
    "forward": KM(lr=LR, operator="forward"),
    "l2": KM(lr=LR, penalty=SquaredL2(weight=2.0)),
    "l1": KM(lr=LR, penalty=L1(weight=3.0)),
    "l1 inside": KM(lr=LR, penalty=L1(weight=0.3), prox_first=True),
    "box": KM(lr=LR, penalty=Box(low=-0.5, high=0.5)),
    "backward": KM(lr=LR, operator="backward"),
    "douglas-rachford": KM(lr=LR, operator="douglas-rachford", penalty=L1(weight=0.3)),
    "peaceman-rachford": KM(lr=LR, operator="peaceman-rachford", penalty=ElasticNet(weight=0.2, l2=1.0), gamma=0.2),
}


def train(
    algorithm: Any,
    topology: Any,
    observers: list[Any],
    *,
    runs: int = 1,
    scale: float = 1.0,
    noised: Callable[[Any], Any] = lambda exchange: exchange,
) -> list[torch.Tensor]:
    """Run the algorithm on made-up gradients of every row; they are returned."""
    generator, drawn = torch.Generator().manual_seed(0), []

    def grad(points: torch.Tensor) -> torch.Tensor:
        g = scale * torch.randn(points.shape, generator=generator, dtype=torch.float64)
        drawn.append(g)
        return g

    x0 = torch.randn(N, D, dtype=torch.float64, generator=generator).repeat_interleave(runs, 0)
    state = algorithm.init(x0)
    for observer in observers:
        observer.start(state)
    exchange = noised(StackedExchange(SimulatedExchange(topology), N, observers))
    state = run(algorithm, state, grad, exchange, rounds=ROUNDS)
    for observer in observers:
        observer.end(state)
    return drawn
