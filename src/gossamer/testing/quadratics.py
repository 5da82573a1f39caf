"""Problems whose answers are known: node i minimises f_i(x) = ½ a_i ‖x − b_i‖², with exact gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.algorithms.base import Algorithm
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run
from gossamer.topology.kinds import build as build_topology
from gossamer.topology.schedule import Topology

D = 5  # coordinates
Array = NDArray[np.float64]


class Quadratic:
    """The gradients of all nodes, each at its own point."""

    def __init__(self, a: Array, b: Array):
        self.a, self.b = torch.from_numpy(a).float()[:, None], torch.from_numpy(b).float()

    def __call__(self, points: Tensor) -> Tensor:
        return self.a * (points - self.b)


def problem(n: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """(a, b, where the nodes start)."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 2.0, n), rng.normal(size=(n, D)), rng.normal(size=(n, D))


def minimum(a: Array, b: Array) -> Array:
    """(d,) of Σ f_i."""
    found: Array = (a[:, None] * b).sum(0) / a.sum()
    return found


def topology(algorithm: Algorithm, n: int, *, irregular: bool = False, static: bool = False) -> Topology:
    """A graph whose weights are those that the algorithm asks for: directed where it can bear that."""
    if n == 1:
        return build_topology("complete", nodes=1, weights=algorithm.weights, seed=0)
    if algorithm.weights != "column":
        kind, options = ("erdos-renyi", {"p": 0.5}) if irregular else ("ring", {})
    elif irregular:
        kind, options = "digraph", {"p": 0.3}
    else:
        kind, options = ("directed-ring" if static else "one-peer-exponential"), {}
    return build_topology(kind, nodes=n, weights=algorithm.weights, seed=1, **options)


def train(algorithm: Algorithm, graph: Topology, a: Array, b: Array, x0: Array, rounds: int) -> Any:
    """The state after so many rounds."""
    start = algorithm.init(torch.from_numpy(x0).float())
    return run(algorithm, start, Quadratic(a, b), SimulatedExchange(graph), rounds=rounds)
