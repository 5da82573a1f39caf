"""Mixing weights of one graph. P[i, j] > 0: node i receives from node j; every node receives from itself."""

from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from gossamer.errors import UserError
from gossamer.topology.graph import Graph, Ints, pattern

WeightsKind = Literal["column", "doubly", "adjacency"]
WEIGHTS: tuple[WeightsKind, ...] = ("column", "doubly", "adjacency")
FITTING = "ring, torus or complete"  # kinds that give every sort of weights


def column(graph: Graph) -> Any:
    """P[i, j] = 1 / (1 + out-degree of j) for each receiver i of j and for j itself: columns sum to one."""
    share = 1.0 / (1.0 + graph.out_degree())
    return _with_diagonal(graph, share[graph.arcs[:, 0]], share)


def metropolis(graph: Graph) -> Any:
    """W[i, j] = 1 / (1 + max(d_i, d_j)), the rest stays at home: symmetric and doubly stochastic."""
    degree = graph.out_degree()
    sender, receiver = graph.arcs.T
    weight = 1.0 / (1.0 + np.maximum(degree[sender], degree[receiver]))
    return _with_diagonal(graph, weight, 1.0 - np.bincount(sender, weight, minlength=graph.nodes))


def uniform(graph: Graph) -> Any:
    """W = I − L / (1 + max degree): doubly stochastic when every node sends as often as it receives."""
    degree = graph.out_degree()
    weight = 1.0 / (1.0 + degree.max(initial=0))
    return _with_diagonal(graph, np.full(len(graph.arcs), weight), 1.0 - degree * weight)


def adjacency(graph: Graph) -> Any:
    """0/1 matrix without self loops, for methods that need sums over neighbours."""
    return pattern(graph.nodes, graph.arcs)


def weights_of(graph: Graph, weights: WeightsKind, *, kind: str, mixing: str | None = None) -> Any:
    """The n×n csr_array an algorithm that declares `weights` needs, or a UserError that names what fits."""
    if weights == "adjacency":
        if graph.directed:
            raise UserError(_no_fit(kind, "no undirected neighbourhoods", weights))
        return adjacency(graph)
    if graph.given is not None:
        _check_given(graph.given, weights)
        return graph.given
    if weights == "column":
        return column(graph)
    if graph.directed:
        balanced = np.array_equal(graph.out_degree(), graph.in_degree())
        if mixing == "metropolis" or not balanced:
            raise UserError(_no_fit(kind, f"no {mixing or 'doubly stochastic'} weights", weights))
        return uniform(graph)
    return uniform(graph) if mixing == "uniform" else metropolis(graph)


def _no_fit(kind: str, lacks: str, weights: str) -> str:
    return (
        f"topology.kind = '{kind}' is directed and has {lacks}, which algorithm weights '{weights}' needs; "
        f"use for example {FITTING}"
    )


def _with_diagonal(graph: Graph, off: Any, diagonal: Any) -> Any:
    index: Ints = np.arange(graph.nodes)
    row = np.concatenate([graph.arcs[:, 1], index])
    col = np.concatenate([graph.arcs[:, 0], index])
    matrix = csr_array((np.concatenate([off, diagonal]), (row, col)), shape=(graph.nodes, graph.nodes))
    matrix.sort_indices()
    return matrix


def _check_given(matrix: Any, weights: WeightsKind) -> None:
    columns = np.allclose(matrix.sum(axis=0), 1.0, rtol=0, atol=1e-8)
    rows = np.allclose(matrix.sum(axis=1), 1.0, rtol=0, atol=1e-8)
    if weights == "doubly" and not (rows and columns):
        off = "rows" if columns else "columns" if rows else "rows and columns"
        raise UserError(
            f"topology.matrix has {off} that do not sum to 1, but algorithm weights 'doubly' needs both to"
        )
    if weights == "column" and not columns:
        hint = "; its rows do, so give the transpose" if rows else ""
        raise UserError(
            "topology.matrix has columns that do not sum to 1, but algorithm weights 'column' needs them to "
            f"(entry [i, j] is what node i takes from node j){hint}"
        )
