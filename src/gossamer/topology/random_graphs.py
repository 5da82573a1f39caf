"""The random graphs: drawn from the seed, once or every so many rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field

from gossamer.errors import UserError
from gossamer.options.types import Count, NonNegative, Share
from gossamer.topology.graph import (
    Graph,
    circulant,
    edge_array,
    from_arcs,
    from_networkx,
    pattern,
    strongly_connected,
)
from gossamer.topology.rounds import Resampled
from gossamer.topology.table import TopologyKind, topologies
from gossamer.topology.weights import column

Rng = np.random.Generator
_TRIES = 100  # redraws of a random graph before the options are called hopeless
_FIEDLER_NODES = 2000  # the search takes dense eigenvalues
_SAME = 1e-9  # eigenvalues nearer to each other than this are equal: their last bits depend on the processor


@topologies.register("erdos-renyi")
@dataclass(frozen=True, kw_only=True)
class ErdosRenyi(TopologyKind):
    """Each edge with probability p, drawn again until connected."""

    p: Annotated[Share, Field(description="probability of an edge")]

    fewest_nodes: ClassVar[int] = 2
    random: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        import networkx as nx

        return _connected(
            lambda: from_networkx(nx.fast_gnp_random_graph(nodes, self.p, seed=_seed(rng))),
            f"topology.p = {self.p} gave no connected graph of {nodes} nodes in {_TRIES} tries; "
            f"use p of at least {min(1.0, (np.log(nodes) + 1) / nodes):.2g}",
        )


@topologies.register("fiedler")
@dataclass(frozen=True, kw_only=True)
class Fiedler(TopologyKind):
    """A random connected graph whose normalised Fiedler value λ₂(L)/n is as near to `value` as we find.

    λ₂ never falls when an edge is added, so along a random order of all edges (a random spanning tree first)
    bisection finds where it crosses the target; the best of many orders wins, of two equally near the smaller value.
    """

    value: Annotated[
        Share, Field(description="the Fiedler value over the number of nodes; 1 is the complete graph")
    ]
    tolerance: Annotated[NonNegative, Field(description="how far from it the graph found may be")] = 0.05

    fewest_nodes: ClassVar[int] = 2
    random: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        if nodes > _FIEDLER_NODES:
            raise UserError(
                f"topology.kind = 'fiedler' takes at most {_FIEDLER_NODES} nodes (nodes = {nodes})"
            )
        best, best_error = np.empty((0, 2), dtype=np.int64), np.inf
        found = 0.0
        for _ in range(200 if nodes <= 100 else 5):
            order = _random_edge_order(nodes, rng)
            low, high = nodes - 1, len(order)  # how many edges are taken
            while low < high:
                middle = (low + high) // 2
                if _normalised_fiedler(nodes, order[:middle]) < self.value - _SAME:
                    low = middle + 1
                else:
                    high = middle
            for count in {max(low - 1, nodes - 1), low}:
                reached = _normalised_fiedler(nodes, order[:count])
                error = abs(reached - self.value)
                as_near = abs(error - best_error) <= _SAME
                if error < best_error - _SAME or (as_near and reached < found - _SAME):
                    best, best_error, found = order[:count], error, reached
            if best_error <= 0.01 * self.value + _SAME:
                break
        if best_error > self.tolerance + _SAME:
            raise UserError(
                f"topology.value = {self.value} is out of reach for nodes = {nodes} within topology.tolerance = "
                f"{self.tolerance}; the nearest graph found has {found:.3g}"
            )
        return from_arcs(nodes, best, directed=False)


@topologies.register("random-regular")
@dataclass(frozen=True, kw_only=True)
class RandomRegular(TopologyKind):
    """A random connected graph in which every node has the same number of neighbours."""

    degree: Annotated[Count, Field(description="neighbours of every node")] = 4

    fewest_nodes: ClassVar[int] = 2
    random: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        degree = self.degree
        import networkx as nx

        if not 1 <= degree < nodes:
            raise UserError(
                f"topology.degree = {degree} must be between 1 and {nodes - 1} for nodes = {nodes}"
            )
        if nodes * degree % 2:
            raise UserError(f"topology.degree = {degree} must be even because nodes = {nodes} is odd")

        def draw() -> Graph:
            # The generator starts over on every clash, which is rare in sparse graphs: draw the sparser side.
            if degree <= nodes // 2:
                return from_networkx(nx.random_regular_graph(degree, nodes, seed=_seed(rng)))
            return from_networkx(
                nx.complement(nx.random_regular_graph(nodes - 1 - degree, nodes, seed=_seed(rng)))
            )

        return _connected(
            draw,
            f"topology.degree = {degree} gave no connected graph of {nodes} nodes in {_TRIES} tries; "
            "use at least 3",
        )


@topologies.register("digraph")
@dataclass(frozen=True, kw_only=True)
class Digraph(TopologyKind):
    """A directed ring plus every other arc with probability p: strongly connected and irregular.

    Redrawn until its column-stochastic weights are not doubly stochastic, so that push-sum's w is not 1.
    """

    p: Annotated[float, Field(gt=0, lt=1, description="probability of every arc beside the ring")] = 0.2

    fewest_nodes: ClassVar[int] = 3
    random: ClassVar[bool] = True

    def make(self, nodes: int, rng: Rng) -> Graph:
        import networkx as nx

        base = circulant(nodes, [1], directed=True).arcs
        for _ in range(_TRIES):
            extra = nx.fast_gnp_random_graph(nodes, self.p, seed=_seed(rng), directed=True)
            graph = from_arcs(nodes, np.concatenate([base, edge_array(extra)]), directed=True)
            if not np.allclose(column(graph).sum(axis=1), 1.0):
                return graph
        raise UserError(
            f"topology.p = {self.p} gave no irregular digraph of {nodes} nodes in {_TRIES} tries; "
            "use a p nearer to 0.5"
        )


def _as_table(base: Any) -> Any:
    """The name alone stands for a table with it."""
    return {"kind": base} if isinstance(base, str) else base


def _drawn_again(base: TopologyKind) -> TopologyKind:
    if not base.random:
        names = ", ".join(name for name, kind in topologies.kinds.items() if kind.random)
        raise ValueError(f"'{base.kind}' is not a random kind; use one of {names}")
    if base.mixing or base.dropout or base.slow:
        raise ValueError("mixing, dropout and slow stand beside base, not in it")
    return base


@topologies.register("resampled")
@dataclass(frozen=True, kw_only=True)
class ResampledKind(TopologyKind):
    """A new random graph every so many rounds; base = "digraph" or { kind = "digraph", p = 0.3 }."""

    base: Annotated[
        TopologyKind,
        topologies,
        BeforeValidator(_as_table),
        AfterValidator(_drawn_again),
        Field(description="the random kind to draw: its name, or a table with its options"),
    ]
    every: Annotated[Count, Field(description="rounds until the next graph")] = 1
    fewest_nodes: ClassVar[int] = 2

    def make(self, nodes: int, rng: Rng) -> Resampled:
        draw = _Draw(self.base, nodes)
        draw(
            np.random.default_rng(0)
        )  # options that do not fit the nodes are reported now, not in a later round
        return Resampled(draw, self.every, int(rng.integers(2**62)))


@dataclass(frozen=True)
class _Draw:
    base: TopologyKind
    nodes: int

    def __call__(self, rng: Rng) -> Graph:
        graph = self.base.graph(self.nodes, rng)
        assert isinstance(graph, Graph)  # every kind marked random makes one graph
        return graph


def _seed(rng: Rng) -> int:
    return int(rng.integers(2**31))


def _connected(draw: Callable[[], Graph], otherwise: str) -> Graph:
    for _ in range(_TRIES):
        graph = draw()
        if strongly_connected(graph.nodes, graph.arcs):
            return graph
    raise UserError(otherwise)


def _random_edge_order(nodes: int, rng: Rng) -> NDArray[np.int64]:
    """All edges in random order, after a random spanning tree that keeps every prefix connected."""
    label = rng.permutation(nodes)
    parent = rng.integers(np.arange(1, nodes))  # each joins one of those before it
    tree = np.sort(np.stack([label[parent], label[1:]], axis=1), axis=1)
    every = np.stack(np.triu_indices(nodes, k=1), axis=1)
    rest = every[~np.isin(every @ [nodes, 1], tree @ [nodes, 1])]
    return np.concatenate([tree, rng.permutation(rest)])


def _normalised_fiedler(nodes: int, edges: NDArray[np.int64]) -> float:
    adjacency = pattern(nodes, from_arcs(nodes, edges, directed=False).arcs).toarray()
    laplacian = np.diag(adjacency.sum(axis=1)) - adjacency
    return float(np.linalg.eigvalsh(laplacian)[1]) / nodes
