"""All nodes in one process: an exchange is one product with the round's mixing matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from torch import Tensor

from gossamer.kernels.mixing import MixPlan
from gossamer.topology.schedule import Topology

T = TypeVar("T")


class PerGraph(Generic[T]):
    """What is made of a round's graph, kept for the graphs of a period; without one, for the last round alone."""

    def __init__(self, topology: Topology, make: Callable[[int], T]):
        self._period, self._make = topology.period, make
        self._made: dict[int, T] = {}

    def __call__(self, t: int) -> T:
        key = t % self._period if self._period else t
        if key not in self._made:
            if not self._period:
                self._made.clear()
            self._made[key] = self._make(t)
        return self._made[key]


class SimulatedExchange:
    """mix(t, A, B, …) = P_t A, P_t B, …, counting the bytes the messages would have."""

    def __init__(self, topology: Topology):
        self._topology = topology
        self._plan = PerGraph(topology, lambda t: MixPlan(topology.weights(t)))
        self.bytes_sent = 0

    def __call__(self, t: int, *tensors: Tensor) -> Any:
        plan = self._plan(t)
        mixed = tuple(plan(tensor) for tensor in tensors)
        row = sum(tensor[0].numel() * tensor.element_size() for tensor in tensors)
        self.bytes_sent += row * int(self._topology.out_degree(t).sum())
        return mixed[0] if len(mixed) == 1 else mixed
