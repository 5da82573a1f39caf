"""Topologies of every kind."""

from typing import Any

import networkx as nx
from hypothesis import strategies as st

from gossamer.topology.kinds import build
from gossamer.topology.schedule import Topology


def nx_graph(topology: Topology, t: int = 0) -> Any:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(topology.nodes))
    graph.add_edges_from(topology.edges(t).tolist())
    return graph if topology.figures()["directed"] else graph.to_undirected(reciprocal=True)


def make(kind: str, nodes: int, weights: str = "column", seed: int = 0, **options: Any) -> Topology:
    return build(kind, nodes=nodes, weights=weights, seed=seed, **options)


# One line per kind: options and node counts it takes. A new kind joins all the properties here.
CASES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "ring": ({}, [3, 4, 7, 12]),
    "directed-ring": ({}, [2, 3, 8]),
    "star": ({}, [2, 3, 9]),
    "complete": ({}, [1, 2, 3, 8]),
    "grid": ({}, [4, 6, 12]),
    "torus": ({}, [9, 12, 16]),
    "erdos-renyi": ({"p": 0.5}, [2, 5, 12]),
    "fiedler": ({"value": 0.4, "tolerance": 1.0}, [2, 5, 10]),
    "random-regular": ({"degree": 4}, [5, 8, 13]),
    "exponential": ({}, [2, 3, 8, 11]),
    "one-peer-exponential": ({}, [2, 3, 8, 11]),
    "digraph": ({"p": 0.3}, [3, 5, 10]),
    "edges": ({"edges": [[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]]}, [4]),
    "matrix": ({"matrix": [[0.5, 0.3, 0.2], [0.3, 0.7, 0.0], [0.2, 0.0, 0.8]]}, [3]),
    "resampled": ({"base": {"kind": "erdos-renyi", "p": 0.5}, "every": 3}, [4, 8]),
}


DIRECTED = {"directed-ring", "exponential", "one-peer-exponential", "digraph"}


BALANCED = DIRECTED - {"digraph"}


@st.composite
def any_topology(draw: st.DrawFn, weights: str) -> Topology:
    names = sorted(CASES)
    if weights == "doubly":
        names = [k for k in names if k not in DIRECTED - BALANCED]
    if weights == "adjacency":
        names = [k for k in names if k not in DIRECTED]
    kind = draw(st.sampled_from(names))
    options, sizes = CASES[kind]
    dropout = draw(st.sampled_from([0.0, 0.3])) if weights == "column" or kind not in DIRECTED else 0.0
    mixing = None
    if weights == "doubly" and kind not in DIRECTED | {"matrix"}:
        mixing = draw(st.sampled_from([None, "metropolis", "uniform"]))
    return build(
        kind,
        nodes=draw(st.sampled_from(sizes)),
        weights=weights,
        seed=draw(st.integers(0, 2**32)),
        dropout=dropout,
        mixing=mixing,
        **options,
    )
