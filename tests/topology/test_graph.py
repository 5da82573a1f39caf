"""Graphs, weights and the graph of every round."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from tests.support.topologies import DIRECTED, any_topology, make

from gossamer.topology.kinds import build
from gossamer.topology.schedule import (
    Graph,
    Periodic,
    Resampled,
    Topology,
    WithDropout,
    WithSlowLinks,
    circulant,
    column,
    connected,
    edge_array,
    from_arcs,
    from_networkx,
    metropolis,
    pattern,
    strongly_connected,
    thin,
    uniform,
    union,
)

ARCS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20)


@settings(deadline=None, max_examples=40)
@given(ARCS, st.booleans())
def test_arcs_are_sorted_unique_and_without_loops(arcs: list[tuple[int, int]], directed: bool) -> None:
    graph = from_arcs(7, arcs, directed=directed)
    expected = {(a, b) for a, b in arcs if a != b}
    if not directed:
        expected |= {(b, a) for a, b in expected}
    assert [tuple(arc) for arc in graph.arcs.tolist()] == sorted(expected)
    dense = pattern(7, graph.arcs).toarray()
    np.testing.assert_array_equal(graph.out_degree(), dense.sum(axis=0))
    np.testing.assert_array_equal(graph.in_degree(), dense.sum(axis=1))


@settings(deadline=None, max_examples=40)
@given(ARCS)
def test_connected_is_what_networkx_says(arcs: list[tuple[int, int]]) -> None:
    theirs = nx.DiGraph(arcs)
    theirs.add_nodes_from(range(7))
    expected = nx.is_strongly_connected(theirs)
    assert strongly_connected(7, from_arcs(7, arcs, directed=True).arcs) == expected
    # and with a ring of many more nodes hung in, which is not looked at pair by pair
    ring = [(0, 7), *((k, k + 1) for k in range(7, 99)), (99, 0)]
    assert strongly_connected(100, from_arcs(100, [*arcs, *ring], directed=True).arcs) == expected
    assert not strongly_connected(100, from_arcs(100, [*arcs, *ring[:-1]], directed=True).arcs)


def test_a_circulant_sends_ahead_around_the_circle() -> None:
    assert circulant(4, [1, 3], directed=True).arcs.tolist() == [
        [0, 1], [0, 3], [1, 0], [1, 2], [2, 1], [2, 3], [3, 0], [3, 2],
    ]  # fmt: skip
    assert len(circulant(5, [5], directed=True).arcs) == 0  # to oneself


def test_the_pattern_has_receivers_as_rows() -> None:
    assert pattern(3, from_arcs(3, [[0, 2]], directed=True).arcs).toarray().tolist() == [
        [0, 0, 0],
        [0, 0, 0],
        [1, 0, 0],
    ]


def test_a_union_has_every_arc_once_and_is_directed_if_one_is() -> None:
    one, other = from_arcs(3, [[0, 1]], directed=False), from_arcs(3, [[0, 1], [1, 2]], directed=True)
    both = union([one, other])
    assert both.arcs.tolist() == [[0, 1], [1, 0], [1, 2]]
    assert both.directed
    assert union([one]) is one


@pytest.mark.parametrize("directed", [True, False])
def test_thinning_takes_links_both_ways_where_they_are_edges(directed: bool) -> None:
    graph = from_arcs(4, [[0, 1], [1, 2], [2, 3], [3, 0]], directed=directed)
    left = thin(graph, lambda links: links[:, 1] != 2)
    lost = {(1, 2)} if directed else {(1, 2), (2, 1)}
    assert {tuple(arc) for arc in graph.arcs.tolist()} - {tuple(arc) for arc in left.arcs.tolist()} == lost


def test_of_given_weights_the_sender_keeps_what_it_could_not_send() -> None:
    given_weights = np.array([[0.5, 0.2], [0.5, 0.8]])
    graph = from_arcs(2, [[0, 1], [1, 0]], directed=True, given=csr_array(given_weights))
    left = thin(graph, lambda links: links[:, 0] == 1)  # node 0's message is lost
    np.testing.assert_allclose(left.given.toarray(), [[1.0, 0.2], [0.0, 0.8]])


def test_networkx_there_and_back() -> None:
    for theirs in (nx.path_graph(4), nx.cycle_graph(3, create_using=nx.DiGraph)):
        graph = from_networkx(theirs)
        assert graph.directed == theirs.is_directed()
        again = nx.DiGraph() if graph.directed else nx.Graph()
        again.add_edges_from(graph.arcs.tolist())
        assert nx.utils.edges_equal(again.edges, theirs.edges, directed=graph.directed)
    assert edge_array(nx.empty_graph(3)).shape == (0, 2)


@settings(max_examples=60, deadline=None)
@given(nodes=st.integers(2, 30), offsets=st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_a_circle_is_connected_by_its_divisors_as_it_is_by_its_arcs(nodes: int, offsets: list[int]) -> None:
    each = [circulant(nodes, [step], directed=True) for step in offsets]
    seen = union(each)
    assert connected(each) == strongly_connected(nodes, seen.arcs)
    assert connected([seen]) == connected(each)  # without its rule, from the arcs


def check_pattern(topology: Topology, t: int) -> None:
    """The nonzero entries are exactly the edges, plus every node itself."""
    expected = np.eye(topology.nodes, dtype=bool)
    sender, receiver = topology.edges(t).T
    expected[receiver, sender] = True
    np.testing.assert_array_equal(topology.weights(t).toarray() > 0, expected)
    np.testing.assert_array_equal(topology.out_degree(t), expected.sum(axis=0) - 1)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(any_topology("column"), st.integers(0, 10**6))
def test_column_weights(topology: Topology, t: int) -> None:
    P = topology.weights(t)
    assert P.dtype == np.float64
    assert P.format == "csr"
    dense = P.toarray()
    assert (dense >= 0).all()
    assert (np.diag(dense) > 0).all()
    np.testing.assert_allclose(dense.sum(axis=0), 1, atol=1e-14)
    check_pattern(topology, t)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(any_topology("doubly"), st.integers(0, 10**6))
def test_doubly_stochastic_weights(topology: Topology, t: int) -> None:
    dense = topology.weights(t).toarray()
    assert (dense >= 0).all()
    assert (np.diag(dense) > 0).all()
    np.testing.assert_allclose(dense.sum(axis=0), 1, atol=1e-14)
    np.testing.assert_allclose(dense.sum(axis=1), 1, atol=1e-14)
    if topology.kind not in DIRECTED:
        np.testing.assert_allclose(dense, dense.T, atol=1e-15)
    check_pattern(topology, t)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(any_topology("adjacency"), st.integers(0, 10**6))
def test_adjacency_weights(topology: Topology, t: int) -> None:
    dense = topology.weights(t).toarray()
    np.testing.assert_array_equal(dense, dense.T)
    assert set(np.unique(dense)) <= {0.0, 1.0}
    assert not np.diag(dense).any()
    np.testing.assert_array_equal(dense.sum(axis=0), topology.out_degree(t))


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=30)
@given(any_topology("doubly"), st.integers(0, 2**32))
def test_doubly_stochastic_rounds_average(topology: Topology, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((topology.nodes, 3))
    mean = x.mean(axis=0)
    for t in range(400):
        x = topology.weights(t) @ x
    np.testing.assert_allclose(x, np.broadcast_to(mean, x.shape), atol=1e-6)


@settings(deadline=None, derandomize=True, max_examples=30)
@given(any_topology("column"), st.integers(0, 2**32))
def test_push_sum_ratio_averages(topology: Topology, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal(topology.nodes)
    mean = x.mean()
    w = np.ones(topology.nodes)
    for t in range(400):
        x, w = topology.weights(t) @ x, topology.weights(t) @ w
    assert w.sum() == pytest.approx(topology.nodes)
    np.testing.assert_allclose(x / w, mean, atol=1e-6)


def test_weights_by_hand() -> None:
    """A path 0 - 1 - 2 and the arc rule of each builder, worked out on paper."""
    path = from_arcs(3, [[0, 1], [1, 2]], directed=False)
    third = 1 / 3
    np.testing.assert_allclose(
        metropolis(path).toarray(), [[2 * third, third, 0], [third, third, third], [0, third, 2 * third]]
    )
    np.testing.assert_allclose(uniform(path).toarray(), metropolis(path).toarray())
    np.testing.assert_allclose(column(path).toarray(), [[0.5, third, 0], [0.5, third, 0.5], [0, third, 0.5]])
    star = from_arcs(4, [[0, 1], [0, 2], [0, 3], [1, 2]], directed=False)  # degrees 3 2 2 1
    np.testing.assert_allclose(metropolis(star).toarray()[1], [0.25, 1 - 0.25 - third, third, 0])
    np.testing.assert_allclose(uniform(star).toarray()[1], [0.25, 0.5, 0.25, 0])
    # Node 0 sends to 1 and 2: the message goes down its column.
    fan = from_arcs(3, [[0, 1], [0, 2], [1, 0], [2, 0]], directed=True)
    np.testing.assert_allclose(column(fan).toarray()[:, 0], [third, third, third])
    one_way = from_arcs(2, [[0, 1]], directed=True)
    np.testing.assert_allclose(column(one_way).toarray(), [[0.5, 0], [0.5, 1]])


def test_balanced_digraph_has_doubly_stochastic_weights() -> None:
    """In-degree = out-degree at each node suffices, although the degrees differ between nodes."""
    eight = [[0, 1], [1, 2], [2, 0], [0, 3], [3, 4], [4, 0]]  # two directed triangles that share node 0
    W = build("edges", nodes=5, weights="doubly", seed=0, edges=eight, directed=True).weights(0).toarray()
    np.testing.assert_allclose(W.sum(axis=0), 1)
    np.testing.assert_allclose(W.sum(axis=1), 1)
    np.testing.assert_allclose(np.diag(W), [1 / 3, 2 / 3, 2 / 3, 2 / 3, 2 / 3])


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


class TestDropout:
    def test_rate(self) -> None:
        """Over 300 rounds the share of lost links is the rate within five standard deviations."""
        for kind, links in (("ring", 64), ("exponential", 64 * 6)):
            topology = build(kind, nodes=64, weights="column", seed=3, dropout=0.25)
            both = 2 if kind == "ring" else 1
            seen = sum(len(topology.edges(t)) for t in range(300)) / both
            total = 300 * links
            assert abs(seen / total - 0.75) < 5 * np.sqrt(0.75 * 0.25 / total)

    def test_undirected_edges_fail_both_ways(self) -> None:
        topology = build("erdos-renyi", nodes=20, weights="column", seed=1, dropout=0.5, p=0.4)
        for t in range(20):
            arcs = {tuple(a) for a in topology.edges(t).tolist()}
            assert arcs == {(r, s) for s, r in arcs}

    def test_rounds_and_seeds_differ(self) -> None:
        a = build("ring", nodes=50, weights="column", seed=1, dropout=0.5)
        b = build("ring", nodes=50, weights="column", seed=2, dropout=0.5)
        assert not np.array_equal(a.edges(0), a.edges(1))
        assert not np.array_equal(a.edges(0), b.edges(0))

    def test_links_fail_independently_of_each_other_and_of_time(self) -> None:
        topology = build("directed-ring", nodes=40, weights="column", seed=5, dropout=0.5)
        up = np.zeros((500, 40))
        for t in range(500):
            up[t, topology.edges(t)[:, 0]] = 1
        correlation = np.corrcoef(np.concatenate([up[1:], up[:-1]], axis=1), rowvar=False)
        np.fill_diagonal(correlation, 0)
        assert np.abs(correlation).max() < 5.5 / np.sqrt(500)

    def test_given_matrix_folds_the_lost_mass_into_the_sender(self) -> None:
        P = np.array([[0.6, 0.1, 0.0], [0.3, 0.9, 0.5], [0.1, 0.0, 0.5]])
        topology = build("matrix", nodes=3, weights="column", seed=0, dropout=0.5, matrix=P)
        lost = 0
        for t in range(30):
            kept = topology.weights(t).toarray()
            sender, receiver = topology.edges(t).T
            off = np.zeros_like(P)
            off[receiver, sender] = P[receiver, sender]
            np.testing.assert_allclose(kept, off + np.diag(1 - off.sum(axis=0)))
            lost += 4 - len(sender)
        assert 0 < lost < 4 * 30


@pytest.mark.parametrize(
    ("kind", "weights", "options"),
    [
        ("exponential", "column", {}),
        ("one-peer-exponential", "column", {}),
        ("resampled", "column", {"base": {"kind": "digraph", "p": 0.4}}),
        ("ring", "doubly", {}),
        ("erdos-renyi", "doubly", {"p": 0.5}),
    ],
)
def test_slow_links_keep_the_mass_and_have_their_turn(kind: str, weights: str, options: dict[str, Any]) -> None:
    n, every = 10, 3
    plain = build(kind, nodes=n, weights=weights, seed=4, **options)
    topo = build(kind, nodes=n, weights=weights, seed=4, slow={"share": 0.6, "every": every}, **options)
    w, fewer = np.ones(n), 0
    window = every * (plain.period or 1)
    for t in range(40 * window):
        P = topo.weights(t).toarray()
        np.testing.assert_allclose(P.sum(0), 1.0, atol=1e-12)  # whatever is not sent is kept
        if weights == "doubly":
            np.testing.assert_allclose(P.sum(1), 1.0, atol=1e-12)
        w = P @ w
        there, all_ = {tuple(e) for e in topo.edges(t)}, {tuple(e) for e in plain.edges(t)}
        assert there <= all_
        fewer += len(all_) - len(there)
    assert w.sum() == pytest.approx(n, rel=1e-9)
    assert fewer > 0
    if plain.period:
        assert topo.period == window
        seen = [{tuple(e) for e in topo.edges(t)} for t in range(window)]
        assert set().union(*seen) == {tuple(e) for t in range(window) for e in plain.edges(t)}
        counts = {link: sum(link in s for s in seen) for link in set().union(*seen)}
        assert set(counts.values()) <= {1, every}  # slow ones once, the others in every period


def test_graphs_come_in_turn_and_dropout_has_no_period() -> None:
    graphs = tuple(circulant(5, [step], directed=True) for step in (1, 2, 3))
    turn = Periodic(graphs)
    assert turn.period == 3
    assert [turn.graph(t) is graphs[t % 3] for t in range(7)] == [True] * 7
    assert WithDropout(turn, 0.5, 0).period is None
    assert WithSlowLinks(turn, 0.5, 4, 0).period == 12
    assert WithSlowLinks(WithDropout(turn, 0.5, 0), 0.5, 4, 0).period is None


def test_a_draw_is_made_once_for_all_rounds_of_its_epoch() -> None:
    drawn = []

    def draw(rng: np.random.Generator) -> Graph:
        drawn.append(rng.random())
        return circulant(4, [1], directed=True)

    rounds = Resampled(draw, 5, 7)
    for t in [*range(10), 3, 8]:
        rounds.graph(t)
    assert len(drawn) == 2
    assert drawn[1] == np.random.default_rng([1, 1, 7]).random()  # of its epoch and the seed alone


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_slow_links_is_that_asked_for(share: float) -> None:
    base = Periodic((circulant(400, [1, 2, 3, 4, 5], directed=True),))
    slow = WithSlowLinks(base, share, 2, 3)
    missing = 1 - np.mean([len(slow.graph(t).arcs) for t in range(2)]) / 2000  # half of their messages
    assert abs(missing - share / 2) < 5 * np.sqrt(0.25 * share * (1 - share) / 2000) + 1e-12
