"""Who carries a run: one process with all nodes, or one of several with a block of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from torch import Tensor

from gossamer.errors import UserError
from gossamer.runtime.loop import Exchange
from gossamer.runtime.simulator import SimulatedExchange
from gossamer.topology.schedule import Topology

T = TypeVar("T")


class CountingExchange(Exchange, Protocol):
    bytes_sent: int  # by the nodes hosted here


class Group(Protocol):
    """The processes of a run. Everything here but the exchange is done rarely: at the start, the end, evaluations."""

    size: int  # how many processes
    first: bool  # the one that shows and prints
    first_here: bool  # the first on its machine: it writes the files that the processes of a machine share
    spread: bool  # do messages leave the machine?

    @property
    def name(self) -> str:
        """What people call this process."""
        ...

    @property
    def nodes(self) -> range:
        """Hosted here."""
        ...

    def join(self, items: Sequence[T]) -> list[T]:
        """All processes' items, in the order of their nodes, to everyone."""
        ...

    def mean(self, points: Tensor) -> Tensor:
        """The mean over all nodes' rows; of the others only the sum is seen."""
        ...

    def exchange(
        self, topology: Topology, run: str, meanwhile: Callable[[], None] | None = None
    ) -> CountingExchange:
        """`run` names the run in every message; `meanwhile` is done while messages travel."""
        ...


class Alone:
    """The simulator: all nodes in one process."""

    name, size, first, first_here, spread = "the simulator", 1, True, True, False

    def __init__(self, nodes: int):
        self.nodes = range(nodes)

    def join(self, items: Sequence[T]) -> list[T]:
        return list(items)

    def mean(self, points: Tensor) -> Tensor:
        return points.mean(0)

    def exchange(
        self, topology: Topology, run: str, meanwhile: Callable[[], None] | None = None
    ) -> CountingExchange:
        return SimulatedExchange(topology)


def agreed(group: Group, action: Callable[[], Any], *, here: bool = True) -> Any:
    """Do `action` in every process where `here` holds; one process' mistake is the same mistake for all."""
    result, problem = None, None
    try:
        result = action() if here else None
    except UserError as error:
        problem = str(error)
    problems = [found for found in group.join([problem]) if found]
    if problems:
        raise UserError(problems[0])
    return result
