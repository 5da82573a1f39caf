"""All nodes in one process: an exchange is one product with the round's mixing matrix."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from gossamer.kernels.mixing import MixPlan
from gossamer.topology.schedule import Topology


class SimulatedExchange:
    """mix(t, A, B, …) = P_t A, P_t B, …, counting the bytes the messages would have."""

    def __init__(self, topology: Topology):
        self._topology = topology
        self._plans: dict[int, MixPlan] = {}
        self.bytes_sent = 0

    def __call__(self, t: int, *tensors: Tensor) -> Any:
        plan = self._plan(t)
        mixed = tuple(plan(tensor) for tensor in tensors)
        row = sum(tensor[0].numel() * tensor.element_size() for tensor in tensors)
        self.bytes_sent += row * int(self._topology.out_degree(t).sum())
        return mixed[0] if len(mixed) == 1 else mixed

    def _plan(self, t: int) -> MixPlan:
        period = self._topology.period
        key = t % period if period else t
        if key not in self._plans:
            if not period:
                self._plans.clear()  # a fresh graph every round: nothing to keep
            self._plans[key] = MixPlan(self._topology.weights(t))
        return self._plans[key]
