"""Which graph is in force in round t. Every schedule answers for any t, in any order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gossamer.topology.graph import Graph, drop

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
        return drop(self.base.graph(t), self.rate, np.random.default_rng([_DROPOUT, t, self.seed]))
