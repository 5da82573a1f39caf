"""Schedules of graphs and their figures."""

import itertools
import json

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.topologies import any_topology, make

from gossamer.topology import schedule as figures
from gossamer.topology.kinds import build
from gossamer.topology.schedule import Periodic, Topology, circulant, from_arcs


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
def test_json_lists_the_edges_of_a_period(topology: Topology) -> None:
    record = json.loads(json.dumps(topology.to_json()))
    assert record["kind"] == topology.kind
    assert record["period"] == topology.period
    assert len(record["edges"]) == (topology.period or 8)
    for t, edges in enumerate(record["edges"]):
        np.testing.assert_array_equal(np.reshape(edges, (-1, 2)), topology.edges(t))


@pytest.mark.parametrize("kind", ["ring", "torus", "random-regular", "one-peer-exponential"])
def test_ten_thousand_nodes(kind: str) -> None:
    """Sparse all the way: a dense matrix of this size would be 800 MB."""
    topology = make(kind, 10_000, "doubly")
    P = topology.weights(3)
    assert P.nnz <= 5 * 10_000
    np.testing.assert_allclose(P.sum(axis=0), 1)
    np.testing.assert_allclose(P.sum(axis=1), 1)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(any_topology("column") | any_topology("doubly"), st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_any_round_in_any_order(topology: Topology, order: list[int]) -> None:
    first = topology.weights(7).toarray()
    edges = topology.edges(7).copy()
    for t in order:
        topology.weights(t)
    np.testing.assert_array_equal(topology.weights(7).toarray(), first)
    np.testing.assert_array_equal(topology.edges(7), edges)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(any_topology("column"))
def test_same_settings_same_schedule(topology: Topology) -> None:
    again = build(
        topology.kind,
        nodes=topology.nodes,
        weights="column",
        **topology.settings,  # type: ignore[arg-type]
    )
    for t in (9, 0, 4):
        np.testing.assert_array_equal(topology.weights(t).toarray(), again.weights(t).toarray())


@pytest.mark.parametrize(
    "kind", ["ring", "directed-ring", "star", "grid", "torus", "exponential", "one-peer-exponential"]
)
def test_many_nodes_that_follow_a_rule_are_written_by_it(kind: str) -> None:
    few, many = make(kind, 36, "column").to_json(), make(kind, 1024, "column").to_json()
    assert few["rule"] == many["rule"] != ""
    assert "edges" in few
    assert "edges" not in many
    assert len(json.dumps(many)) < 1000


def test_a_random_graph_keeps_its_edges() -> None:
    record = make("random-regular", 1100, "doubly", degree=4).to_json()
    assert "rule" not in record
    assert len(record["edges"][0]) == 4400
    assert "edges" in make("ring", 1100, "doubly", dropout=0.1).to_json()


@pytest.mark.parametrize("nodes", [4, 5, 10, 101, 10_000])
def test_ring_gap(nodes: int) -> None:
    f = build("ring", nodes=nodes, weights="doubly", seed=0).figures()
    exact = 4 / 3 * np.sin(np.pi / nodes) ** 2  # 1 − (1 + 2 cos(2π/n)) / 3, without cancellation
    assert f["spectral gap"] == pytest.approx(exact, rel=1e-7)
    assert f["algebraic connectivity"] == pytest.approx(4 * np.sin(np.pi / nodes) ** 2, rel=1e-7)
    assert f["diameter"] == (nodes // 2 if nodes <= 1000 else None)


@pytest.mark.parametrize("nodes", [2, 7, 10_000])
def test_directed_ring_gap(nodes: int) -> None:
    """Eigenvalues (1 + e^(2πik/n)) / 2, so |λ₂| = cos(π/n)."""
    f = build("directed-ring", nodes=nodes, weights="column", seed=0).figures()
    assert f["spectral gap"] == pytest.approx(2 * np.sin(np.pi / 2 / nodes) ** 2, rel=1e-6)


def test_complete() -> None:
    f = build("complete", nodes=7, weights="doubly", seed=0).figures()
    assert f["spectral gap"] == pytest.approx(1)
    assert f["algebraic connectivity"] == pytest.approx(7)
    assert f["normalised Fiedler value"] == pytest.approx(1)
    assert f["diameter"] == 1
    assert f["rounds until strongly connected"] == 1
    assert f["mean out-degree"] == 6
    assert f["directed"] is False


def test_star() -> None:
    f = build("star", nodes=9, weights="doubly", seed=0).figures()
    assert f["algebraic connectivity"] == pytest.approx(1)
    assert f["spectral gap"] == pytest.approx(1 / 9)  # leaves keep 8/9
    assert f["diameter"] == 2
    assert f["mean out-degree"] == pytest.approx(16 / 9)


def test_no_symmetric_weights_make_a_star_of_five_mix_as_the_ring_does() -> None:
    """What DP-dKM's Figure 2 says the other way round. By convexity the best star treats all leaves alike."""
    ring, star = (build(kind, nodes=5, weights="doubly", seed=0).figures()["spectral gap"] for kind in ("ring", "star"))
    laplacian = nx.laplacian_matrix(nx.star_graph(4)).toarray()
    every = [np.sort(np.abs(np.linalg.eigvalsh(np.eye(5) - a * laplacian)))[-2] for a in np.linspace(0, 0.5, 601)]
    assert 1 - ring == pytest.approx(0.539, abs=5e-4)
    assert 1 - star == pytest.approx(0.8)
    assert min(every) == pytest.approx(2 / 3)


@pytest.mark.parametrize("nodes", [2, 3, 10])
def test_path(nodes: int) -> None:
    edges = [[i, i + 1] for i in range(nodes - 1)]
    f = build("edges", nodes=nodes, weights="doubly", seed=0, edges=edges).figures()
    assert f["algebraic connectivity"] == pytest.approx(2 - 2 * np.cos(np.pi / nodes))
    assert f["diameter"] == nodes - 1


@pytest.mark.parametrize(("rows", "columns"), [(3, 5), (6, 6), (60, 60)])
def test_torus_and_grid(rows: int, columns: int) -> None:
    """Sums of ring and path eigenvalues; the largest takes the iterative solver."""
    longest = max(rows, columns)
    f = build("torus", nodes=rows * columns, weights="doubly", seed=0, rows=rows).figures()
    assert f["algebraic connectivity"] == pytest.approx(4 * np.sin(np.pi / longest) ** 2, rel=1e-6)
    assert f["spectral gap"] == pytest.approx(4 / 5 * np.sin(np.pi / longest) ** 2, rel=1e-6)
    f = build("grid", nodes=rows * columns, weights="adjacency", seed=0, rows=rows).figures()
    assert f["algebraic connectivity"] == pytest.approx(4 * np.sin(np.pi / 2 / longest) ** 2, rel=1e-6)
    assert f["diameter"] == (rows + columns - 2 if longest < 60 else None)
    assert f["spectral gap"] is None  # an adjacency matrix does not average


@pytest.mark.parametrize("tau", [1, 2, 3, 4, 5])
def test_one_peer_exponential_averages_exactly(tau: int) -> None:
    n = 2**tau
    topology = build("one-peer-exponential", nodes=n, weights="doubly", seed=0)
    product = np.eye(n)
    for t in range(tau):
        product = topology.weights(t) @ product
    np.testing.assert_array_equal(product, np.full((n, n), 1 / n))
    f = topology.figures()
    assert f["spectral gap"] == pytest.approx(1)
    assert f["rounds looked at"] == tau
    assert f["rounds until strongly connected"] == tau
    assert f["diameter"] == tau  # as many steps as the distance has binary ones


@pytest.mark.parametrize("nodes", [6, 11])
def test_gap_of_a_period_is_that_of_the_product(nodes: int) -> None:
    topology = build("one-peer-exponential", nodes=nodes, weights="column", seed=0)
    product = np.linalg.multi_dot([topology.weights(t).toarray() for t in range(topology.period or 0)][::-1])
    second = np.sort(np.abs(np.linalg.eigvals(product)))[-2]
    f = topology.figures()
    assert f["spectral gap"] == pytest.approx(1 - second)
    assert f["spectral gap per round"] == pytest.approx(1 - second ** (1 / f["rounds looked at"]))


@pytest.mark.parametrize("dense", [True, False])
def test_gap_of_rounds_that_do_not_commute(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The product is P₇ ⋯ P₁ P₀, the first round rightmost, by either solver."""
    topology = build("digraph", nodes=30, weights="column", seed=3, dropout=0.6, p=0.1)
    product = np.linalg.multi_dot([topology.weights(t).toarray() for t in range(7, -1, -1)])
    if not dense:
        monkeypatch.setattr(figures, "_DENSE_GENERAL", 0)
    second = np.sort(np.abs(np.linalg.eigvals(product)))[-2]
    backwards = np.linalg.multi_dot([topology.weights(t).toarray() for t in range(8)])
    assert abs(np.sort(np.abs(np.linalg.eigvals(backwards)))[-2] - second) > 1e-4
    assert topology.figures()["spectral gap"] == pytest.approx(1 - second, rel=1e-6)


def test_gap_tells_how_fast_push_sum_forgets() -> None:
    """On an irregular digraph the distance of P^t to its limit shrinks by 1 − gap a round."""
    topology = build("digraph", nodes=12, weights="column", seed=4, p=0.1)
    P = topology.weights(0).toarray()
    limit = np.linalg.matrix_power(P, 5000)
    near = [np.linalg.norm(np.linalg.matrix_power(P, t) - limit) for t in (40, 60)]
    rate = (near[1] / near[0]) ** (1 / 20)
    assert 1 - rate == pytest.approx(topology.figures()["spectral gap"], rel=0.1)


def test_no_mixing_is_visible() -> None:
    """Two nodes that swap for ever: stochastic and strongly connected, but λ = −1."""
    f = build("matrix", nodes=2, weights="doubly", seed=0, matrix=[[0.0, 1.0], [1.0, 0.0]]).figures()
    assert f["spectral gap"] == 0
    bipartite = np.kron([[0.0, 1.0], [1.0, 0.0]], [[0.7, 0.3], [0.3, 0.7]])
    f = build("matrix", nodes=4, weights="doubly", seed=0, matrix=bipartite).figures()
    assert f["spectral gap"] == pytest.approx(0, abs=1e-12)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(2, 25), st.floats(0.05, 0.9), st.integers(0, 2**32))
def test_against_networkx(nodes: int, p: float, seed: int) -> None:
    reference = nx.gnp_random_graph(nodes, p, seed=seed)
    graph = from_arcs(nodes, list(reference.edges), directed=False)
    spectrum = nx.laplacian_spectrum(reference)
    assert figures.algebraic_connectivity(graph) == pytest.approx(sorted(spectrum)[1], abs=1e-9)
    connected = nx.is_connected(reference)
    assert figures.diameter([graph]) == (nx.diameter(reference) if connected else None)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(2, 25), st.floats(0.05, 0.9), st.integers(0, 2**32))
def test_directed_diameter_against_networkx(nodes: int, p: float, seed: int) -> None:
    reference = nx.gnp_random_graph(nodes, p, seed=seed, directed=True)
    graph = from_arcs(nodes, list(reference.edges), directed=True)
    expected = nx.diameter(reference) if nx.is_strongly_connected(reference) else None
    assert figures.diameter([graph]) == expected


def test_iterative_and_dense_solvers_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, weights in (("erdos-renyi", "doubly"), ("erdos-renyi", "column")):
        args = {"nodes": 150, "weights": weights, "seed": 2, "p": 0.06}
        dense = build(kind, **args).figures()  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            for limit in ("_DENSE_SYMMETRIC", "_DENSE_GENERAL"):
                patch.setattr(figures, limit, 0)
            sparse = build(kind, **args).figures()  # type: ignore[arg-type]
        for name in ("spectral gap", "algebraic connectivity"):
            assert sparse[name] == pytest.approx(dense[name], rel=1e-6)


def test_rounds_until_connected_is_the_worst_start() -> None:
    """Arcs a, b, c of a directed triangle one at a time: any three rounds, no two."""
    arcs = ([0, 1], [1, 2], [2, 0])
    each = Periodic(tuple(from_arcs(3, [arc], directed=True) for arc in arcs))
    assert figures.rounds_until_connected(each) == 3
    # Full ring, then nothing, nothing: starting just after the ring takes three rounds.
    empty = from_arcs(3, [], directed=True)
    assert figures.rounds_until_connected(Periodic((circulant(3, [1], directed=True), empty, empty))) == 3
    assert figures.rounds_until_connected(Periodic((empty, empty))) is None


def test_random_schedules_report_what_was_seen() -> None:
    topology = build("ring", nodes=10, weights="doubly", seed=0, dropout=0.4)
    f = topology.figures()
    starts = []
    for start in range(8):
        seen = nx.DiGraph()
        seen.add_nodes_from(range(10))
        for count in itertools.count(1):
            seen.add_edges_from(topology.edges(start + count - 1).tolist())
            if nx.is_strongly_connected(seen):
                starts.append(count)
                break
    assert f["rounds until strongly connected"] == max(starts) > 1
    assert f["rounds looked at"] == 8
    assert 0 < f["spectral gap per round"] < f["spectral gap"] < 1
    assert f["mean out-degree"] == pytest.approx(np.mean([len(topology.edges(t)) / 10 for t in range(8)]))
