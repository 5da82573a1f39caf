"""Exact means by window doubling, where a node may send to any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from scipy.sparse import csr_array

from gossamer.topology.graph import Graph, Ints, mixed_bits
from gossamer.topology.schedule import Topology

T = TypeVar("T", bound=Any)


@dataclass(frozen=True)
class Windows:
    """The exchanges of one mean: in each, place i hears from place i − offset the sum over `length` places up to it.

    Nodes stand on a circle. A window is the sum over some places up to a node's own; to double it a node adds the
    window before it, and windows of the set bits of n, one after the other, go once around:

        W_1(i) = x_i,   W_2w(i) = W_w(i) + W_w(i − w),   all(i) = W_16(i) + W_4(i − 16)  for n = 20.

    That takes ⌊log₂ n⌋ + popcount(n) − 1 exchanges for every n, in each of which a node sends to one other and hears
    from one. Every mean has another order of the nodes, by a permutation that everyone can compute: otherwise the next
    node would see every gradient of the one before it as it was released.
    """

    nodes: int

    @cached_property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """(offset, length) of every exchange; the windows heard and a node's own value are all values, each once."""
        doubling = [1 << k for k in range(self.nodes.bit_length() - 1)]
        steps = [(length, length) for length in doubling]
        covered = 1 << len(doubling)
        for length in reversed(doubling):
            if self.nodes & length:
                steps.append((covered, length))
                covered += length
        return tuple(steps)

    @property
    def exchanges(self) -> int:
        return len(self.steps)

    def total(self, values: T, exchange: Callable[[T], T]) -> T:
        """The sum over all nodes at every node; `exchange` moves what it is given by the offset of its turn."""
        window, length, parts = values, 1, {}
        while 2 * length <= self.nodes:
            if self.nodes & length:
                parts[length] = window
            window, length = window + exchange(window), 2 * length
        for length in sorted(parts, reverse=True):
            window = window + exchange(parts.pop(length))
        return window


@dataclass(frozen=True)
class Relabelled:
    """The graph of every exchange: those of mean k are `steps` of `windows` among the nodes in the order of mean k."""

    windows: Windows
    seed: int
    period: ClassVar[None] = None

    def order(self, mean: int) -> Ints:
        """The node at place 0, 1, …: from the seed and the mean's number by integers alone, on any machine."""
        order: Ints = orders(self.windows.nodes, self.seed, mean, 1)[0]
        return order

    def graph(self, t: int) -> Graph:
        mean, step = divmod(t, self.windows.exchanges)
        order, n = self.order(mean), self.windows.nodes
        sender = np.empty(n, dtype=np.int64)
        sender[order] = np.roll(order, self.windows.steps[step][0])
        receiver = np.arange(n, dtype=np.int64)
        arcs = np.stack([sender, receiver], axis=1)
        given = csr_array((np.ones(n), (receiver, sender)), shape=(n, n))
        return Graph(n, arcs[np.argsort(sender)], True, given)


class WindowTopology(Topology):
    """A network whose exchange t has the graph of that step; its weights move rows, and algorithms add them up."""

    @cached_property
    def _figures(self) -> dict[str, Any]:
        assert isinstance(self.rounds, Relabelled)
        unknown = ("spectral gap per round", "algebraic connectivity", "normalised Fiedler value", "diameter")
        return {
            "directed": True,
            "rounds looked at": self._window,
            "spectral gap": 1.0,  # after the exchanges of one mean the nodes do not differ
            **dict.fromkeys((*unknown, "rounds until strongly connected")),
            "mean out-degree": 1.0,
            "exchanges for an exact mean": self.rounds.windows.exchanges,
        }


def orders(nodes: int, seed: int, first: int, count: int) -> Ints:
    """(count, nodes): the node at place 0, 1, … in means first, first + 1, …"""
    numbers = np.arange(first * nodes, (first + count) * nodes, dtype=np.int64)
    return np.argsort(mixed_bits(numbers, seed).reshape(count, nodes), axis=1, kind="stable")


def window_topology(base: Topology, seed: int) -> WindowTopology:
    """The exchanges of exact means in the place of those of `base`, in which a node may send to any other."""
    rounds = Relabelled(Windows(base.nodes), seed)
    settings = {**base.settings, "mixes": "exact"}
    return WindowTopology(base.kind, base.nodes, base.weights_kind, rounds, settings)
