"""Who carries a run: one process with all nodes, or one of several with a block of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, TypeVar

from torch import Tensor

from gossamer.errors import UserError
from gossamer.runtime.exchange import MessageExchange
from gossamer.runtime.farewell import Farewell, started_by_torchrun_itself
from gossamer.runtime.loop import Exchange
from gossamer.runtime.messenger import Messenger
from gossamer.runtime.simulator import SimulatedExchange
from gossamer.runtime.transport.base import Transport, first_line
from gossamer.runtime.watch import RankError, name_of
from gossamer.topology.schedule import Topology

T = TypeVar("T")
ELSEWHERE = "its own terminal says why"


class CountingExchange(Exchange, Protocol):
    bytes_sent: int  # by the nodes hosted here


class Group(Protocol):
    """The processes of a run. Everything here but the exchange is done rarely: at the start, the end, evaluations."""

    size: int  # how many processes
    first: bool  # the one that shows and prints
    first_here: bool  # the first on its machine: it writes the files that the processes of a machine share
    spread: bool  # do messages leave the machine?
    machine: str  # which one this is, among those of the run

    @property
    def name(self) -> str:
        """What people call this process."""
        ...

    @property
    def nodes(self) -> range:
        """Hosted here."""
        ...

    @property
    def blocks(self) -> Sequence[range]:
        """The nodes of each process that `join` asks, in its order."""
        ...

    def whose(self, node: int) -> str:
        """The name of the process that hosts it."""
        ...

    def join(self, items: Sequence[T], *, per_node: bool = False) -> list[T]:
        """All processes' items in the order of their nodes, to everyone: one of each process, or `per_node`."""
        ...

    def mean(self, points: Tensor) -> Tensor:
        """The mean over all nodes' rows; of the others only the sum is seen."""
        ...

    def begin_round(self, t: int) -> None:
        """What a sentence about a failure counts: rounds, of which one may have several exchanges."""
        ...

    def exchange(
        self, topology: Topology, run: str, meanwhile: Callable[[], None] | None = None
    ) -> CountingExchange:
        """`run` names the run in every message; `meanwhile` is done while messages travel."""
        ...


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

    def exchange(
        self, topology: Topology, run: str, meanwhile: Callable[[], None] | None = None
    ) -> CountingExchange:
        return SimulatedExchange(topology)


class Ranks:
    """This process among those of the run, over any transport; a context that leaves the others at its end."""

    def __init__(self, blocks: Sequence[range], transport: Transport):
        """`blocks`: the nodes of each rank."""
        self.blocks, self.rank, self.size = list(blocks), transport.rank, transport.size
        self.nodes, self.first = self.blocks[self.rank], self.rank == 0
        self.first_here, self.spread = transport.first_here, transport.spread
        self.machine = transport.machine
        self.transport, self.messenger = transport, Messenger(transport, blocks)
        self._farewell = Farewell(self.messenger.watch) if started_by_torchrun_itself() else None

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watch = self.messenger.watch
        # Say why before the connections break, so that nobody takes the breaking for the cause.
        if isinstance(error, KeyboardInterrupt):
            watch.tell(f"{self.name} was stopped in round {watch.round}")
        elif isinstance(error, RankError) or (isinstance(error, UserError) and not self.spread):
            watch.tell(str(error))
        elif error is not None:
            # The words of an error may hold a row, a label or a path of this host: they stay on its terminal.
            why = ELSEWHERE if self.spread else first_line(error)
            watch.tell(f"{self.name} failed in round {watch.round}: {why}")
        watch.close()
        if self._farewell is not None:
            self._farewell.close()
        if error is None:
            self.transport.close()
        else:
            self.transport.abandon()

    @property
    def name(self) -> str:
        return name_of(self.rank, self.blocks)

    def join(self, items: Sequence[T], *, per_node: bool = False) -> list[T]:
        return self.messenger.gather(items, each=[len(block) if per_node else 1 for block in self.blocks])

    def whose(self, node: int) -> str:
        return next(name_of(r, self.blocks) for r, block in enumerate(self.blocks) if node in block)

    def begin_round(self, t: int) -> None:
        self.messenger.watch.begin(t)
        if self._farewell is not None:
            self._farewell.check()

    def mean(self, points: Tensor) -> Tensor:
        return self.messenger.sum(points.sum(0)) / self.blocks[-1].stop

    def exchange(
        self, topology: Topology, run: str, meanwhile: Callable[[], None] | None = None
    ) -> MessageExchange:
        return MessageExchange(self.messenger, topology, run, meanwhile or (lambda: None))


def agreed(group: Group, action: Callable[[], T], *, here: bool = True) -> Any:
    """Do `action` in every process where `here` holds; one process' mistake is the same mistake for all."""
    result, problem = None, None
    try:
        result = action() if here else None
    except UserError as error:
        problem = str(error)
    for sentence in group.join([problem]):
        if sentence is not None:
            raise UserError(sentence)
    return result
