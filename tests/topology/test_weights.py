"""Every kind with every sort of weights: stochastic, with the graph's own pattern, and it mixes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.topologies import DIRECTED, any_topology

from gossamer.topology.graph import column, from_arcs, metropolis, uniform
from gossamer.topology.kinds import build
from gossamer.topology.schedule import Topology


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
