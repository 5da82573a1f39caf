"""Each kind is the graph it says it is, and each mistake gets one helpful sentence."""

from typing import Any

import pytest
from tests.support.topologies import CASES

from gossamer.errors import UserError
from gossamer.topology.kinds import build, topologies


@pytest.mark.parametrize(
    ("kind", "nodes", "weights", "options", "says"),
    [
        ("rign", 5, "column", {}, "topology.kind = 'rign' is not known; it can be ring, directed-ring"),
        (
            "ring",
            1,
            "column",
            {},
            r"^topology.kind = 'ring' needs at least 3 nodes \(nodes = 1\); use 'complete'$",
        ),
        ("torus", 4, "column", {}, "at least 9 nodes"),
        ("complete", 0, "column", {}, "nodes = 0 must be at least 1"),
        ("grid", 7, "column", {}, "nodes = 7 is not; use nodes = 6 or 8"),
        ("torus", 10, "column", {}, "nodes = 10 is not; use nodes = 9 or 12"),
        ("grid", 12, "column", {"rows": 5}, "topology.rows = 5 .*use one of 2, 3, 4, 6"),
        ("torus", 10, "column", {"rows": 2}, "topology.rows = 2 .*use nodes = 9 or 12"),
        ("erdos-renyi", 30, "column", {"p": 0.01}, "topology.p = 0.01 .*use p of at least 0.15"),
        ("erdos-renyi", 30, "column", {"p": 1.2}, "topology.p = 1.2"),
        ("erdos-renyi", 30, "column", {}, "topology.p is missing; kind 'erdos-renyi' needs it"),
        ("erdos-renyi", 30, "column", {"p": "often"}, "topology.p = 'often' must be a number"),
        (
            "ring",
            5,
            "column",
            {"p": 0.1},
            "topology.p is not a key of kind 'ring'; the keys here are mixing, dropout, slow",
        ),
        ("random-regular", 7, "column", {"degree": 3}, "topology.degree = 3 must be even"),
        ("random-regular", 4, "column", {}, "topology.degree = 4 must be between 1 and 3"),
        ("random-regular", 6, "column", {"degree": 1}, "no connected graph"),
        ("fiedler", 10, "column", {"value": 0.0}, "topology.value = 0.0"),
        ("fiedler", 5000, "column", {"value": 0.1}, "at most 2000 nodes"),
        ("digraph", 5, "column", {"p": 1.0}, "topology.p = 1.0 must be less than 1"),
        ("edges", 3, "column", {"edges": [[0, 3]]}, r"contains \[0, 3\]; each entry"),
        ("edges", 3, "column", {"edges": [[0, 1, 2]]}, r"contains \[0, 1, 2\]"),
        ("edges", 3, "column", {"edges": [[1, 1]]}, "leave self loops out"),
        ("edges", 3, "column", {"edges": [[0, 1]]}, "'edges' is not strongly connected: some node"),
        (
            "edges",
            3,
            "column",
            {"edges": [[0, 1], [1, 2]], "directed": True},
            "not strongly connected",
        ),
        (
            "resampled",
            5,
            "column",
            {"base": "ring"},
            "topology.base = 'ring' does not fit; 'ring' is not a random kind; use",
        ),
        (
            "resampled",
            5,
            "column",
            {"base": "erdos-renyi"},
            "topology.base.p is missing; kind 'erdos-renyi' needs it",
        ),
        ("resampled", 5, "column", {"base": {"kind": "digraph", "dropout": 0.1}}, "belong next to base"),
        ("resampled", 5, "column", {"base": {"kind": "ringo"}}, "topology.base.kind = 'ringo' is not known"),
        ("resampled", 5, "column", {"base": 3}, "topology.base = 3 must be a table"),
        ("ring", 5, "column", {"slow": {"share": 0.5}}, "topology.slow.every is missing"),
        (
            "ring",
            5,
            "column",
            {"slow": {"share": 0.5, "evry": 2}},
            "topology.slow.evry .*did you mean topology.slow.every",
        ),
        ("ring", 5, "column", {"dropout": 1}, "topology.dropout = 1 must be less than 1"),
        ("edges", 3, "column", {"edges": [[0, 1.5]]}, "topology.edges.* must be a whole number"),
        ("resampled", 5, "column", {"base": "digraph", "every": 0}, "topology.every = 0"),
        ("resampled", 5, "doubly", {"base": "digraph"}, "directed"),
        ("ring", 5, "rows", {}, "algorithm weights 'rows' are unknown; use one of column, doubly"),
        (
            "ring",
            5,
            "doubly",
            {"mixing": "lazy"},
            "topology.mixing = 'lazy' must be 'metropolis' or 'uniform'",
        ),
        ("ring", 5, "column", {"mixing": "uniform"}, "topology.mixing = 'uniform' is for doubly stochastic"),
        ("directed-ring", 5, "doubly", {"mixing": "metropolis"}, "no metropolis weights"),
        ("matrix", 1, "doubly", {"matrix": [[1.0]], "mixing": "uniform"}, "does not apply"),
        (
            "digraph",
            5,
            "doubly",
            {},
            "^topology.kind = 'digraph' is directed and has no doubly stochastic weights, which algorithm "
            "weights 'doubly' needs; use for example ring, torus or complete$",
        ),
        ("exponential", 5, "adjacency", {}, "'exponential' is directed .*'adjacency' needs; use for example"),
    ],
)
def test_mistakes(kind: str, nodes: int, weights: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        build(kind, nodes=nodes, weights=weights, seed=0, **options)
    assert "\n" not in str(caught.value)


def test_every_kind_is_covered() -> None:
    assert set(topologies) == set(CASES)
