"""Which graph is in force in round t. Every schedule answers for any t, in any order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gossamer.topology.graph import Graph, Ints, thin

_EPOCH, _DROPOUT = 1, 2  # keep the random streams of one seed apart
_KEPT = 8


class Rounds(Protocol):
    """The graph of every round t = 0, 1, 2, …"""

    @property
    def period(self) -> int | None:
        """Rounds until the graphs repeat; None if they never do."""

    def graph(self, t: int) -> Graph:
        """The graph of round t."""


@dataclass(frozen=True)
class Periodic:
    """The given graphs in turn, for ever."""

    graphs: tuple[Graph, ...]

    @property
    def period(self) -> int:
        return len(self.graphs)

    def graph(self, t: int) -> Graph:
        return self.graphs[t % len(self.graphs)]


@dataclass(frozen=True)
class Resampled:
    """A new graph from `draw` every `every` rounds; epoch e's generator is seeded by (seed, e)."""

    draw: Callable[[np.random.Generator], Graph]
    every: int
    seed: int
    _epochs: dict[int, Graph] = field(default_factory=dict, repr=False)  # the last few: a draw may be slow

    @property
    def period(self) -> None:
        return None

    def graph(self, t: int) -> Graph:
        epoch = t // self.every
        if epoch not in self._epochs:
            graph = self.draw(np.random.default_rng([_EPOCH, epoch, self.seed]))
            if len(self._epochs) >= _KEPT:
                self._epochs.pop(next(iter(self._epochs)), None)
            self._epochs[epoch] = graph
            return graph
        return self._epochs[epoch]


@dataclass(frozen=True)
class WithDropout:
    """Another schedule whose links fail independently in every round; round t is seeded by (seed, t)."""

    base: Rounds
    rate: float
    seed: int

    @property
    def period(self) -> None:
        return None

    def graph(self, t: int) -> Graph:
        rng = np.random.default_rng([_DROPOUT, t, self.seed])
        return thin(self.base.graph(t), lambda links: rng.random(len(links)) >= self.rate)


@dataclass(frozen=True)
class WithSlowLinks:
    """Another schedule of whose links a share is slow: those carry every `every`-th of their messages only.

    In the rounds between, a slow link is not in the graph, so its sender keeps what it would have sent and the weights
    still add up: nothing is ever on its way between two rounds. Which links are slow, and when each of them is ready,
    follows from the seed and from the link itself; turns count in periods, so that every link has its turn.
    """

    base: Rounds
    share: float
    every: int
    seed: int

    @property
    def period(self) -> int | None:
        return None if self.base.period is None else self.base.period * self.every

    def graph(self, t: int) -> Graph:
        graph = self.base.graph(t)

        def ready(links: Ints) -> Any:
            bits = mixed_bits(links[:, 0] * graph.nodes + links[:, 1], self.seed)
            slow = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 < self.share
            cycle = np.uint64(t // (self.base.period or 1))
            turn = (cycle + (bits & np.uint64(0x7FF))) % np.uint64(self.every) == 0
            return ~slow | turn

        return thin(graph, ready)


def mixed_bits(numbers: Ints, seed: int) -> Any:
    """64 well-mixed bits of each number (the finaliser of SplitMix64)."""
    bits = numbers.astype(np.uint64) + np.uint64((2 * seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(31))
