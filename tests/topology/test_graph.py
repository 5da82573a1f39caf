"""One round's graph: arcs by hand and against networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from gossamer.topology.graph import (
    circulant,
    connected,
    edge_array,
    from_arcs,
    from_networkx,
    pattern,
    strongly_connected,
    thin,
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
