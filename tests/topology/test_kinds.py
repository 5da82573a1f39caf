"""Each kind is the graph it says it is, and each mistake gets one helpful sentence."""

import json
import pickle
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from gossamer.errors import UserError
from gossamer.options.registry import options_of
from gossamer.topology.kinds import build, topologies
from gossamer.topology.schedule import Topology


def nx_graph(topology: Topology, t: int = 0) -> Any:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(topology.nodes))
    graph.add_edges_from(topology.edges(t).tolist())
    return graph if topology.figures()["directed"] else graph.to_undirected(reciprocal=True)


def make(kind: str, nodes: int, weights: str = "column", seed: int = 0, **options: Any) -> Topology:
    return build(kind, nodes=nodes, weights=weights, seed=seed, **options)


@pytest.mark.parametrize(
    ("topology", "oracle"),
    [
        (make("ring", 7), nx.cycle_graph(7)),
        (make("directed-ring", 7), nx.cycle_graph(7, create_using=nx.DiGraph)),
        (make("star", 7), nx.star_graph(6)),
        (make("complete", 7), nx.complete_graph(7)),
        (make("grid", 12), nx.grid_2d_graph(3, 4)),
        (make("grid", 12, rows=2), nx.grid_2d_graph(2, 6)),
        (make("torus", 15), nx.grid_2d_graph(3, 5, periodic=True)),
        (make("exponential", 6), nx.DiGraph([(i, (i + s) % 6) for i in range(6) for s in (1, 2, 4)])),
        (make("edges", 4, edges=[[0, 1], [1, 2], [3, 2]]), nx.path_graph(4)),
    ],
    ids=lambda x: x.kind if isinstance(x, Topology) else "",
)
def test_is_the_named_graph(topology: Topology, oracle: Any) -> None:
    assert nx.is_isomorphic(nx_graph(topology), oracle)
    assert topology.period == 1


def test_exponential_sends_forward() -> None:
    assert sorted(make("exponential", 10).edges(0)[:4].tolist()) == [[0, 1], [0, 2], [0, 4], [0, 8]]
    assert [0, 1] in make("directed-ring", 5).edges(3).tolist()
    assert make("directed-ring", 5).weights(0)[1, 0] == 0.5  # node 1 receives from node 0


@pytest.mark.parametrize("nodes", [2, 3, 5, 8, 20, 32])
def test_one_peer_exponential_follows_the_paper(nodes: int) -> None:
    """Node i sends to itself and to i + 2^(k mod ⌈log₂ n⌉) mod n, weight ½ each."""
    topology = make("one-peer-exponential", nodes)
    tau = int(np.ceil(np.log2(nodes)))
    assert topology.period == tau
    for k in range(2 * tau + 1):
        expected = np.zeros((nodes, nodes))
        for i in range(nodes):
            expected[i, i] += 0.5
            expected[(i + 2 ** (k % tau)) % nodes, i] += 0.5
        np.testing.assert_array_equal(topology.weights(k).toarray(), expected)
        np.testing.assert_array_equal(topology.out_degree(k), 1)


@pytest.mark.parametrize("seed", range(5))
def test_random_kinds_are_connected(seed: int) -> None:
    regular = make("random-regular", 12, seed=seed, degree=3)
    np.testing.assert_array_equal(regular.out_degree(0), 3)
    dense = make("random-regular", 12, seed=seed, degree=10)
    np.testing.assert_array_equal(dense.out_degree(0), 10)
    assert nx.is_connected(nx_graph(regular))
    assert nx.is_connected(nx_graph(make("erdos-renyi", 30, seed=seed, p=0.12)))
    assert nx.is_strongly_connected(nx_graph(make("digraph", 15, seed=seed, p=0.1)))


def test_random_kinds_follow_the_seed() -> None:
    for kind, options in (("erdos-renyi", {"p": 0.3}), ("digraph", {}), ("fiedler", {"value": 0.3})):
        first = make(kind, 12, seed=1, **options).edges(0)
        np.testing.assert_array_equal(first, make(kind, 12, seed=1, **options).edges(0))
        assert not np.array_equal(first, make(kind, 12, seed=2, **options).edges(0))


def test_erdos_renyi_has_the_density_asked_for() -> None:
    edges = np.mean([len(make("erdos-renyi", 40, seed=s, p=0.3).edges(0)) / 2 for s in range(40)])
    pairs = 40 * 39 / 2
    assert abs(edges - 0.3 * pairs) < 5 * np.sqrt(0.3 * 0.7 * pairs / 40)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("value", [1.0, 0.7, 0.39, 0.06])
def test_fiedler_reaches_the_values_of_the_paper(value: float, seed: int) -> None:
    """dp-consensus, Table 1: ten nodes, within ±0.05 there; we ask for ±0.02, measured by networkx."""
    graph = nx_graph(make("fiedler", 10, "doubly", seed, value=value))
    assert nx.is_connected(graph)
    assert nx.algebraic_connectivity(graph, method="tracemin_lu") / 10 == pytest.approx(value, abs=0.02)


def test_fiedler_out_of_reach_is_said() -> None:
    """K₁₀ without one edge has λ₂ = 8, so nothing lies between 0.8 and 1."""
    with pytest.raises(UserError, match=r"topology\.value = 0\.9 .* has 0\.8"):
        make("fiedler", 10, value=0.9)
    assert make("fiedler", 10, value=0.9, tolerance=0.11).nodes == 10


def test_resampled_changes_every_k_rounds() -> None:
    topology = make("resampled", 10, base={"kind": "erdos-renyi", "p": 0.5}, every=4)
    assert topology.period is None
    epochs = [topology.edges(t) for t in range(12)]
    for t in range(12):
        same = np.array_equal(epochs[t], epochs[t - t % 4])
        assert same
    assert not np.array_equal(epochs[0], epochs[4])
    assert not np.array_equal(epochs[4], epochs[8])
    # Seeded per epoch: a far round needs none of the ones before it.
    np.testing.assert_array_equal(
        make("resampled", 10, base={"kind": "erdos-renyi", "p": 0.5}, every=4).edges(9), epochs[8]
    )
    assert make("resampled", 6, base="digraph").weights(3).shape == (6, 6)


class TestMatrix:
    M = np.array([[0.5, 0.25, 0.25], [0.25, 0.75, 0.0], [0.25, 0.0, 0.75]])

    @pytest.mark.parametrize("suffix", [".npy", ".csv"])
    def test_from_a_file(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"weights{suffix}"
        np.save(path, self.M) if suffix == ".npy" else np.savetxt(path, self.M, delimiter=",")
        topology = make("matrix", 3, "doubly", matrix=path)
        np.testing.assert_array_equal(topology.weights(5).toarray(), self.M)
        assert sorted(map(tuple, topology.edges(0).tolist())) == [(0, 1), (0, 2), (1, 0), (2, 0)]
        assert topology.figures()["directed"] is False
        json.dumps(topology.to_json())

    def test_adjacency_is_its_pattern(self) -> None:
        np.testing.assert_array_equal(
            make("matrix", 3, "adjacency", matrix=self.M).weights(0).toarray(),
            [[0, 1, 1], [1, 0, 0], [1, 0, 0]],
        )

    def test_not_stochastic(self) -> None:
        column = np.array([[0.5, 0.2, 0.3], [0.5, 0.5, 0.3], [0.0, 0.3, 0.4]])
        make("matrix", 3, "column", matrix=column)
        with pytest.raises(UserError, match="rows that do not sum to 1"):
            make("matrix", 3, "doubly", matrix=column)
        with pytest.raises(UserError, match=r"columns that do not sum to 1.*transpose"):
            make("matrix", 3, "column", matrix=column.T)
        with pytest.raises(UserError, match="columns that do not sum to 1"):
            make("matrix", 3, "column", matrix=2 * column)

    @pytest.mark.parametrize(
        ("matrix", "says"),
        [
            ([[1.0]], "1 × 1 and must be 2 × 2"),
            ([[1.0, 0.0], [1.0]], "rows of one length"),
            ([[1.5, -0.5], [-0.5, 1.5]], "negative"),
            ([[float("nan"), 0.0], [0.0, 1.0]], "infinite"),
            ("nowhere.npy", "nowhere.npy' cannot be read"),
            ("weights.xlsx", r"\.npy or \.csv"),
            ([[1.0, 0.0], [0.0, 1.0]], "not strongly connected"),
        ],
    )
    def test_bad_matrices(self, matrix: Any, says: str) -> None:
        with pytest.raises(UserError, match=says):
            make("matrix", 2, "column", matrix=matrix)

    def test_bad_files(self, tmp_path: Path) -> None:
        for name in ("words.csv", "words.npy"):
            (tmp_path / name).write_text("some,words\nand,more\n")
            with pytest.raises(UserError, match=f"{name}' is not a table of numbers"):
                make("matrix", 2, "column", matrix=str(tmp_path / name))


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
            "topology.base = 'ring': 'ring' is not a random kind; use",
        ),
        (
            "resampled",
            5,
            "column",
            {"base": "erdos-renyi"},
            "topology.base.p is missing; kind 'erdos-renyi' needs it",
        ),
        ("resampled", 5, "column", {"base": {"kind": "digraph", "dropout": 0.1}}, "stand beside base"),
        ("resampled", 5, "column", {"base": {"kind": "ringo"}}, "topology.base.kind = 'ringo' is not known"),
        ("resampled", 5, "column", {"base": 3}, "topology.base = 3 must be a table"),
        ("ring", 5, "column", {"slow": {"share": 0.5}}, "topology.slow.every is missing"),
        ("ring", 5, "column", {"slow": {"share": 0.5, "evry": 2}}, "topology.slow.evry .*did you mean every"),
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


def test_every_size_a_lattice_suggests_works() -> None:
    for kind, first in (("grid", 4), ("torus", 9)):
        for nodes in range(first, 60):
            try:
                make(kind, nodes)
            except UserError as error:
                for size in str(error).split("use nodes = ")[1].split(" or "):
                    assert make(kind, int(size)).nodes == int(size)


def test_single_node() -> None:
    for weights, value in (("column", 1.0), ("doubly", 1.0), ("adjacency", 0.0)):
        topology = make("complete", 1, weights)
        np.testing.assert_array_equal(topology.weights(0).toarray(), [[value]])
        assert topology.edges(0).shape == (0, 2)
        np.testing.assert_array_equal(topology.out_degree(0), [0])
        json.dumps(topology.to_json())


def test_kinds_name_their_options() -> None:
    common = [option.name for option in options_of(topologies["ring"])]
    assert common == ["mixing", "dropout", "slow"]
    assert [(o.name, o.required) for o in options_of(topologies["erdos-renyi"])[3:]] == [("p", True)]
    assert [(o.name, o.default) for o in options_of(topologies["random-regular"])[3:]] == [("degree", 4)]
    for kind in topologies.kinds.values():
        assert all(option.meaning for option in options_of(kind)), kind
        assert kind.__doc__


@pytest.mark.parametrize(
    "topology",
    [
        make("one-peer-exponential", 8),
        make("ring", 5, "doubly", dropout=0.2),
        make("resampled", 6, base={"kind": "erdos-renyi", "p": 0.6}),
        make("matrix", 2, matrix=np.array([[0.5, 0.5], [0.5, 0.5]])),
    ],
    ids=lambda t: t.kind,
)
def test_json_and_pickle(topology: Topology) -> None:
    record = json.loads(json.dumps(topology.to_json()))
    assert record["kind"] == topology.kind
    assert record["period"] == topology.period
    assert len(record["edges"]) == (topology.period or 8)
    for t, edges in enumerate(record["edges"]):
        np.testing.assert_array_equal(np.reshape(edges, (-1, 2)), topology.edges(t))
    copy = pickle.loads(pickle.dumps(topology))
    np.testing.assert_array_equal(copy.weights(11).toarray(), topology.weights(11).toarray())


@pytest.mark.parametrize("kind", ["ring", "torus", "random-regular", "one-peer-exponential"])
def test_ten_thousand_nodes(kind: str) -> None:
    """Sparse all the way: a dense matrix of this size would be 800 MB."""
    topology = make(kind, 10_000, "doubly")
    P = topology.weights(3)
    assert P.nnz <= 5 * 10_000
    np.testing.assert_allclose(P.sum(axis=0), 1)
    np.testing.assert_allclose(P.sum(axis=1), 1)
