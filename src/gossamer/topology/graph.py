"""One round's graph: who sends to whom."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Ints = NDArray[np.int64]
_SMALL = 64  # up to here all pairs are looked at: scipy's algorithms on graphs take longer to import


@dataclass(frozen=True, eq=False)
class Graph:
    """Arcs (sender, receiver), sorted, each once, without self loops; an undirected edge is two arcs.

    `directed` is what the maker declares, not what the arcs happen to look like: it decides whether the two
    arcs between a pair of nodes fail together, and which weights fit.
    """

    nodes: int
    arcs: Ints
    directed: bool
    given: Any = None  # csr_array of weights the user prescribed; None: weights are built from the arcs
    offsets: frozenset[int] | None = None  # where everyone sends to those so far from it, and to nobody else

    def out_degree(self) -> Ints:
        """Number of receivers of each node, itself not counted."""
        return np.bincount(self.arcs[:, 0], minlength=self.nodes)

    def in_degree(self) -> Ints:
        """Number of senders to each node, itself not counted."""
        return np.bincount(self.arcs[:, 1], minlength=self.nodes)


def from_arcs(nodes: int, arcs: Any, *, directed: bool, given: Any = None) -> Graph:
    """Graph from any (m, 2) list of arcs; undirected edges may be named once."""
    pairs = np.asarray(arcs, dtype=np.int64).reshape(-1, 2)
    if not directed:
        pairs = np.concatenate([pairs, pairs[:, ::-1]])
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    # One integer per arc: sorting those is much faster than sorting rows, or than np.unique.
    code = np.sort(pairs[:, 0] * nodes + pairs[:, 1])
    code = code[np.diff(code, prepend=-1) > 0]
    return Graph(nodes, np.stack([code // nodes, code % nodes], axis=1), directed, given)


def circulant(nodes: int, offsets: Iterable[int], *, directed: bool) -> Graph:
    """Node i sends to i + offset (mod n) for every offset."""
    shift = np.fromiter(offsets, dtype=np.int64)
    sender = np.repeat(np.arange(nodes, dtype=np.int64), len(shift))
    receiver = (sender + np.tile(shift, nodes)) % nodes
    made = from_arcs(nodes, np.stack([sender, receiver], axis=1), directed=directed)
    return replace(made, offsets=frozenset(shift.tolist()))


def pattern(nodes: int, arcs: Ints) -> Any:
    """0/1 csr_array A with A[receiver, sender] = 1."""
    return csr_array((np.ones(len(arcs)), (arcs[:, 1], arcs[:, 0])), shape=(nodes, nodes))


def strongly_connected(nodes: int, arcs: Ints) -> bool:
    """Can every node reach every other along the arcs?"""
    if nodes <= _SMALL:
        reached = np.eye(nodes, dtype=bool)
        reached[arcs[:, 0], arcs[:, 1]] = True
        for _ in range(nodes.bit_length()):  # paths of twice the length each time
            reached = reached @ reached
        return bool(reached.all())
    from scipy.sparse.csgraph import connected_components

    # The reversed graph has the same strong components, so the orientation of `pattern` does not matter.
    count = connected_components(
        pattern(nodes, arcs), directed=True, connection="strong", return_labels=False
    )
    return bool(count == 1)


def connected(graphs: Sequence[Graph]) -> bool:
    """Can every node reach every other along the arcs of all these graphs?"""
    offsets = [graph.offsets for graph in graphs]
    if all(own is not None for own in offsets):
        # Steps round a circle reach everyone if they and the number of nodes have no common divisor.
        return math.gcd(graphs[0].nodes, *(step for own in offsets if own is not None for step in own)) == 1
    seen = union(graphs)
    return strongly_connected(seen.nodes, seen.arcs)


def union(graphs: Iterable[Graph]) -> Graph:
    """The graph with every arc of the given graphs."""
    parts = list(graphs)
    if len(parts) == 1:
        return parts[0]
    return from_arcs(
        parts[0].nodes,
        np.concatenate([g.arcs for g in parts]),
        directed=any(g.directed for g in parts),
    )


def thin(graph: Graph, stays: Callable[[Ints], Any]) -> Graph:
    """What is left of the links that `stays` says so of: of arcs (undirected: of edges, both ways together)."""
    links = graph.arcs if graph.directed else graph.arcs[graph.arcs[:, 0] < graph.arcs[:, 1]]
    arcs = links[stays(links)]
    left = from_arcs(graph.nodes, arcs, directed=graph.directed)
    if graph.given is None:
        return left
    # Prescribed weights: the sender keeps what it could not send, so every column still sums to one.
    mask = pattern(graph.nodes, left.arcs)
    sent = graph.given.multiply(mask).tocsr()
    kept = 1.0 - sent.sum(axis=0)
    index = np.arange(graph.nodes)
    folded = sent + csr_array((kept, (index, index)), shape=sent.shape)
    return Graph(graph.nodes, left.arcs, graph.directed, folded.tocsr())


def edge_array(graph: Any) -> Ints:
    """The edges of a networkx graph, (m, 2)."""
    return np.array(list(graph.edges), dtype=np.int64).reshape(-1, 2)


def from_networkx(graph: Any) -> Graph:
    return from_arcs(graph.number_of_nodes(), edge_array(graph), directed=graph.is_directed())
