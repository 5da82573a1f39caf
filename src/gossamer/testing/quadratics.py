"""Problems whose answers are known: node i minimises f_i(x) = ½ a_i ‖x − b_i‖², with exact gradients.

Nodes may be hosted in blocks side by side, as processes would host them: a thread each, which meet at every exchange.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.algorithms.base import Algorithm
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import Exchange, run
from gossamer.topology.kinds import build as build_topology
from gossamer.topology.schedule import Topology

D = 5  # coordinates
Array = NDArray[np.float64]


def require(holds: Any, failure: str) -> None:
    """Raise an AssertionError with what is to be fixed; not an `assert`, which `python -O` leaves out."""
    if not holds:
        raise AssertionError(failure)


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
    point: Array = (a[:, None] * b).sum(0) / a.sum()
    return point


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


PATIENCE = 20.0  # seconds that one block waits for another


class _Meeting:
    """Everyone brings rows; who comes last mixes them all; everyone takes their own away."""

    def __init__(self, graph: Topology, blocks: int, patience: float):
        self._exchange = SimulatedExchange(graph)
        self._rows: list[tuple[Tensor, ...]] = [()] * blocks
        self._come = threading.Barrier(blocks, self._mix, timeout=patience)
        self._gone = threading.Barrier(blocks, timeout=patience)
        self._mixed: tuple[Tensor, ...] = ()
        self._t = 0

    def _mix(self) -> None:
        mixed = self._exchange(self._t, *(torch.cat(parts) for parts in zip(*self._rows, strict=True)))
        self._mixed = mixed if isinstance(mixed, tuple) else (mixed,)

    def exchange(self, place: int, nodes: range) -> Exchange:
        def mix(t: int, *tensors: Tensor) -> Any:
            self._rows[place], self._t = tensors, t
            self._come.wait()
            own = tuple(tensor[nodes.start : nodes.stop] for tensor in self._mixed)
            self._gone.wait()
            return own[0] if len(own) == 1 else own

        return mix

    def leave(self) -> None:
        self._come.abort()
        self._gone.abort()


def in_blocks(
    work: Callable[[range, Exchange], Tensor],
    graph: Topology,
    blocks: Sequence[range],
    patience: float = PATIENCE,
) -> list[Tensor]:
    """Call `work(nodes, exchange)` for each block; the first failure of any is raised here."""
    meeting = _Meeting(graph, len(blocks), patience)

    def one(place: int, nodes: range) -> Tensor:
        try:
            return work(nodes, meeting.exchange(place, nodes))
        except BaseException:
            meeting.leave()
            raise

    with ThreadPoolExecutor(len(blocks)) as threads:
        futures = [threads.submit(one, *block) for block in enumerate(blocks)]
    failures = [error for future in futures if (error := future.exception()) is not None]
    if failures:  # a broken barrier only follows from another's failure
        raise min(failures, key=lambda failure: isinstance(failure, threading.BrokenBarrierError))
    return [future.result() for future in futures]
