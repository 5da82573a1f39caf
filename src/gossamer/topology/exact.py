"""Exact means: by window doubling where a node may send to any other, and by a filter on a fixed undirected graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from gossamer.errors import UserError
from gossamer.topology.schedule import Graph, Ints, Topology, mixed_bits

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


Floats = NDArray[np.float64]
# Of the largest value: the error of a mean must stay below, and masks are far larger than noise.
TOLERANCE = 1e-8
_INSTEAD = "use 'one-peer-exponential', or an undirected graph such as 'ring', without dropout and slow links"
SAME = 1e-10  # eigenvalues nearer to each other than this are one
LARGEST = 2000  # nodes: dense eigenvalues take seconds
_ROUNDING = np.finfo(np.float64).eps / 2


@dataclass(frozen=True)
class Filter:
    """The eigenvalues in the order of their steps, and how far off a mean may be, as a share of the largest value.

    x ← (W − λ I) x / (1 − λ) for every eigenvalue λ ≠ 1 of W, each once. Each step removes what lies along the
    eigenvectors of one λ and leaves the mean as it is, so after all of them nothing but the mean is left. The order
    matters: Leja's keeps the products between small and large.
    """

    eigenvalues: tuple[float, ...]
    error: float

    @property
    def exchanges(self) -> int:
        return len(self.eigenvalues)

    def mean(self, values: Any, exchange: Any) -> Any:
        """`values` and what is exchanged in double precision; `exchange` is one product with W."""
        for value in self.eigenvalues:
            mixed = exchange(values)
            # λ = 0, which a complete graph has alone, needs no step of its own after the exchange.
            values = mixed if value == 0 else (mixed - value * values) / (1 - value)
        return values


@lru_cache(maxsize=8)
def filter_of(topology: Topology) -> Filter:
    """The filter of a topology that has one, or a sentence about why not."""
    key = f"algorithm.mixes = 'exact' with topology.kind = {topology.kind!r}"
    if topology.period != 1:
        raise UserError(f"{key} needs links that stay from round to round; {_INSTEAD}.")
    weights = topology.weights(0)
    if abs(weights - weights.T).max() > 1e-12:
        raise UserError(f"{key} needs the same weights both ways; {_INSTEAD}.")
    if topology.nodes > LARGEST:
        remedy = f"use at most {LARGEST} nodes, or 'one-peer-exponential'"
        raise UserError(f"{key} needs all eigenvalues of nodes = {topology.nodes}; {remedy}.")
    return filter_of_spectrum(np.linalg.eigvalsh(weights.toarray()), key)


def filter_of_spectrum(spectrum: Floats, key: str) -> Filter:
    """From all eigenvalues of W: those that differ, in order, if the mean comes out."""
    others = distinct(spectrum[:-1])
    if 1 - spectrum[-2] < 1e-9:
        raise UserError(f"{key} has nodes that never hear of each other; add the missing links.")
    order = leja(others)
    error = error_of(order, spectrum)
    if not error <= TOLERANCE:
        what = f"too many digits over its {len(order)} exchanges (error {error:.1g}, at most {TOLERANCE:g})"
        remedy = "use 'one-peer-exponential', or a graph with more symmetry, fewer nodes or more links"
        raise UserError(f"{key} would lose {what}; {remedy}.")
    return Filter(tuple(map(float, order)), error)


def distinct(values: Floats) -> Floats:
    """Each value once; those that rounding alone tells apart become their mean, and what is nearly 0 is 0."""
    ordered = np.sort(values)
    groups = np.split(ordered, np.flatnonzero(np.diff(ordered) > SAME) + 1)
    means = np.array([group.mean() for group in groups])
    return np.where(np.abs(means) < SAME, 0.0, means)


def leja(values: Floats) -> Floats:
    """The one farthest from 1 first, then always that with the largest product of distances to those before it."""
    left = np.array(values, dtype=np.float64)
    chosen = []
    # Seen from 1, the eigenvalue that every step keeps: products are in logarithms, which neither over- nor underflow.
    product = np.log(np.maximum(np.abs(1 - left), 1e-300))
    while len(left):
        k = int(np.argmax(product))
        chosen.append(left[k])
        with np.errstate(divide="ignore"):
            product = np.delete(product + np.log(np.abs(left - left[k])), k)
        left = np.delete(left, k)
    return np.array(chosen)


def error_of(order: Floats, spectrum: Floats) -> float:
    """Bound the error of the outcome, as a share of the largest value: what rounding in every step becomes, and rest.

    In the eigenvectors' basis a step multiplies by (μ − λ) / (1 − λ). A step rounds relative to what it subtracts, and
    the steps after it carry that on.
    """
    if not len(order):
        return 0.0
    n = len(spectrum)
    factors = (spectrum[None, :] - order[:, None]) / (1 - order[:, None])
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(factors))
    before = np.concatenate([np.zeros((1, n)), np.cumsum(logs, axis=0)])
    after = np.concatenate([np.cumsum(logs[::-1], axis=0)[::-1], np.zeros((1, n))])
    size, carried = np.exp(before.max(axis=1)), np.exp(after.max(axis=1))
    steps = np.sum(size[:-1] * (1 + np.abs(order)) / (1 - order) * carried[1:])
    # √n: from the size of a vector's components to its largest; 4: a product's and three operations' roundings.
    left = np.exp(before[-1, :-1].max(initial=-np.inf))
    return float(4 * _ROUNDING * np.sqrt(n) * steps + np.sqrt(n) * left)
