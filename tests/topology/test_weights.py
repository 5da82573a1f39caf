"""Every kind with every sort of weights: stochastic, with the graph's own pattern, and it mixes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import UserError
from gossamer.topology.graph import from_arcs
from gossamer.topology.kinds import build, topologies
from gossamer.topology.schedule import Topology
from gossamer.topology.weights import column, metropolis, uniform

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


def check_pattern(topology: Topology, t: int) -> None:
    """The nonzero entries are exactly the edges, plus every node itself."""
    expected = np.eye(topology.nodes, dtype=bool)
    sender, receiver = topology.edges(t).T
    expected[receiver, sender] = True
    np.testing.assert_array_equal(topology.weights(t).toarray() > 0, expected)
    np.testing.assert_array_equal(topology.out_degree(t), expected.sum(axis=0) - 1)


def test_every_kind_is_covered() -> None:
    assert set(topologies) == set(CASES)


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


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("nodes", [3, 4, 10])
def test_digraph_is_irregular(nodes: int, seed: int) -> None:
    """On this kind plain averaging with column weights is wrong: w is not 1 and x alone misses the mean."""
    topology = build("digraph", nodes=nodes, weights="column", seed=seed)
    w = np.ones(nodes)
    for t in range(300):
        w = topology.weights(t) @ w
    assert np.abs(w - 1).max() > 0.05


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

    def test_directed_doubly_is_refused(self) -> None:
        with pytest.raises(UserError, match=r"topology.dropout = 0.1 .*'directed-ring'.* ring, torus"):
            build("directed-ring", nodes=5, weights="doubly", seed=0, dropout=0.1)

    def test_unsymmetric_doubly_matrix_is_refused(self) -> None:
        shift = np.roll(np.eye(3), 1, axis=0)
        M = 0.5 * np.eye(3) + 0.3 * shift + 0.2 * shift.T
        assert build("matrix", nodes=3, weights="doubly", seed=0, matrix=M).weights(0).shape == (3, 3)
        with pytest.raises(UserError, match="symmetric"):
            build("matrix", nodes=3, weights="doubly", seed=0, matrix=M, dropout=0.1)

    @pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan")])
    def test_rate_is_checked(self, rate: float) -> None:
        with pytest.raises(UserError, match=r"topology\.dropout"):
            build("ring", nodes=5, weights="doubly", seed=0, dropout=rate)


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
def test_slow_links_keep_the_mass_and_have_their_turn(
    kind: str, weights: str, options: dict[str, Any]
) -> None:
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


def test_slow_links_need_weights_that_survive_them() -> None:
    with pytest.raises(UserError, match=r"topology\.slow .* directed"):
        build("exponential", nodes=8, weights="doubly", seed=0, slow={"share": 0.5, "every": 2})
