"""Exact means by window doubling: who sends what to whom, so that everyone ends with the sum over all nodes.

Nodes stand on a circle. A window is the sum over some places up to a node's own; to double it a node adds the window
that stands before it, and windows of the set bits of n, one after the other, go once around:

    W_1(i) = x_i,   W_2w(i) = W_w(i) + W_w(i − w),   all(i) = W_16(i) + W_4(i − 16)  for n = 20.

That takes ⌊log₂ n⌋ + popcount(n) − 1 exchanges for every n, in each of which a node sends to one other and hears from
one. In every mean the nodes take places anew, by a permutation that everyone can compute: else the node behind would
see every gradient of the one before it as it was released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array

from gossamer.topology.graph import Graph, Ints
from gossamer.topology.rounds import mixed_bits
from gossamer.topology.schedule import Topology

T = TypeVar("T", bound=Any)


@dataclass(frozen=True)
class Windows:
    """The exchanges of one mean: in each, place i hears from place i − offset the sum over `length` places up to it."""

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
        window, length, kept = values, 1, {}
        while 2 * length <= self.nodes:
            if self.nodes & length:
                kept[length] = window
            window, length = window + exchange(window), 2 * length
        for length in sorted(kept, reverse=True):
            window = window + exchange(kept.pop(length))
        return window


@dataclass(frozen=True)
class Relabelled:
    """The graph of every exchange: those of mean k are `steps` of `windows` among the nodes in the order of mean k.

    `moves` is off in tests alone: every mean then has the nodes in their own order.
    """

    windows: Windows
    seed: int
    moves: bool = True

    @property
    def period(self) -> int | None:
        return None if self.moves else self.windows.exchanges

    def order(self, mean: int) -> Ints:
        """Which node stands at place 0, 1, …: from the seed and the mean's number by integers alone, on any machine."""
        return (
            orders(self.windows.nodes, self.seed, mean, 1)[0] if self.moves else np.arange(self.windows.nodes)
        )

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

    def _compute_figures(self) -> dict[str, Any]:
        rounds = self.rounds
        assert isinstance(rounds, Relabelled)
        # After the exchanges of one mean nothing is left of what the nodes had apart.
        return {
            "directed": True,
            "rounds looked at": self._window,
            "spectral gap": 1.0,
            "spectral gap per round": None,
            "algebraic connectivity": None,
            "normalised Fiedler value": None,
            "diameter": None,
            "rounds until strongly connected": None,
            "mean out-degree": 1.0,
            "exchanges for an exact mean": rounds.windows.exchanges,
        }


def orders(nodes: int, seed: int, first: int, count: int) -> Ints:
    """(count, nodes): which node stands at place 0, 1, … in means first, first + 1, …"""
    numbers = np.arange(first * nodes, (first + count) * nodes, dtype=np.int64)
    return np.argsort(mixed_bits(numbers, seed).reshape(count, nodes), axis=1, kind="stable")


def window_topology(base: Topology, seed: int) -> WindowTopology:
    """The exchanges of exact means in the place of those of `base`, in which a node may send to any other."""
    rounds = Relabelled(Windows(base.nodes), seed)
    settings = {**base.settings, "mixes": "exact"}
    return WindowTopology(base.kind, base.nodes, base.weights_kind, rounds, settings)
