"""The processes that carry a run: one with all nodes (the simulator), or several with a block of nodes each."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Generic, Protocol, TypeVar

from torch import Tensor

from gossamer.errors import UserError
from gossamer.kernels.mixing import MixPlan
from gossamer.runtime.loop import Exchange
from gossamer.topology.schedule import Topology

T = TypeVar("T")


class CountingExchange(Exchange, Protocol):
    bytes_sent: int  # by the nodes hosted here


class Group(Protocol):
    """The processes of a run. All but the exchange is rare: at the start, at the end, at evaluations."""

    name: str  # how messages refer to this process
    size: int  # number of processes
    first: bool  # of all processes
    first_here: bool  # the first on its machine, which writes the files that the machine's processes share
    spread: bool  # are there several machines?
    machine: str  # identifies this one among those of the run
    nodes: range  # hosted here
    blocks: list[range]  # the nodes of each process, in the order of `join`

    def whose(self, node: int) -> str:
        """The name of the process that hosts a node."""

    def join(self, items: Sequence[T], *, per_node: bool = False) -> list[T]:
        """All processes' items in the order of their nodes, on every process: one of each, or one `per_node`."""

    def mean(self, points: Tensor) -> Tensor:
        """The mean over all nodes' rows."""

    def begin_round(self, t: int) -> None:
        """Note the round for messages about failures, and stop here if this process was asked to end."""

    def exchange(self, topology: Topology, meanwhile: Callable[[], None] | None = None) -> CountingExchange:
        """The exchange with neighbours; `meanwhile` is called while messages travel."""


class PerGraph(Generic[T]):
    """A cache of what is made of a round's graph, for the graphs of a period; without one, for the last round alone."""

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


class Alone:
    """The simulator: all nodes in one process."""

    name, size, first, first_here, spread, machine = "the simulator", 1, True, True, False, "0"

    def __init__(self, nodes: int):
        self.nodes = range(nodes)
        self.blocks = [self.nodes]

    def join(self, items: Sequence[T], *, per_node: bool = False) -> list[T]:
        return list(items)

    def whose(self, node: int) -> str:
        return self.name

    def mean(self, points: Tensor) -> Tensor:
        return points.mean(0)

    def begin_round(self, t: int) -> None:
        pass

    def exchange(self, topology: Topology, meanwhile: Callable[[], None] | None = None) -> CountingExchange:
        return SimulatedExchange(topology)


def started_as_rank() -> bool:
    """Did torchrun, or a program that sets its variables, start this process?"""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def prints(group: Group) -> bool:
    """One process of every machine prints; of processes on one machine, the first of all."""
    return group.first_here if group.spread else group.first


def agreed(group: Group, action: Callable[[], T], *, here: bool = True) -> Any:
    """Call `action` on every process where `here` holds; a `UserError` on one is raised on all.

    Its sentence may hold a row, a label or a path, so other machines are told only which process failed.
    """
    result, problem = None, None
    try:
        result = action() if here else None
    except UserError as error:
        problem = error
    shared = None if problem is None else f"{group.name} failed: its own terminal says why."
    failures = group.join([shared if group.spread or problem is None else str(problem)])
    if problem is not None:
        raise problem
    for sentence in failures:
        if sentence is not None:
            raise UserError(sentence)
    return result


def split(nodes: int, ranks: int, sizes: Sequence[int] | None = None) -> list[range]:
    """The consecutive nodes of each rank: about even, the first ranks one more, or blocks of these `sizes`."""
    if sizes is None:
        if ranks > nodes:
            raise UserError(f"runtime.ranks = {ranks} is more than nodes = {nodes}; every rank hosts a node.")
        sizes = [nodes // ranks + (rank < nodes % ranks) for rank in range(ranks)]
    if len(sizes) != ranks:
        raise UserError(f"runtime.blocks lists {len(sizes)} blocks for {ranks} ranks; give one per rank.")
    if sum(sizes) != nodes:
        raise UserError(f"runtime.blocks = {list(sizes)} adds up to {sum(sizes)} where nodes = {nodes}.")
    stops = list(accumulate(sizes))
    return [range(stop - size, stop) for stop, size in zip(stops, sizes, strict=True)]
