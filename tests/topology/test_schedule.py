"""Any round in any order, written down and copied."""

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.topologies import any_topology, make

from gossamer.topology.kinds import build
from gossamer.topology.schedule import Topology


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
