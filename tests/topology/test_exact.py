"""Exact means: windows and filters."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.refusals import expect_refusal

from gossamer.errors import UserError
from gossamer.topology.exact import (
    TOLERANCE,
    Filter,
    Relabelled,
    Windows,
    distinct,
    error_of,
    filter_of,
    filter_of_spectrum,
    leja,
    orders,
    window_topology,
)
from gossamer.topology.kinds import build
from gossamer.topology.schedule import from_networkx, metropolis


def test_every_node_gets_every_value_once() -> None:
    """On the identity: row i counts what node i's sum holds, and the exchanges are permutations."""
    for nodes in range(2, 301):
        windows = Windows(nodes)
        shifts = iter(windows.steps)

        def exchange(rows: np.ndarray, shifts: Any = shifts) -> np.ndarray:
            return np.roll(rows, next(shifts)[0], axis=0)

        assert (windows.total(np.eye(nodes, dtype=np.int64), exchange) == 1).all()
        assert next(shifts, None) is None
        assert windows.exchanges == nodes.bit_length() - 1 + nodes.bit_count() - 1


@pytest.mark.parametrize("nodes", [2, 3, 7, 20, 64, 300])
def test_what_a_place_hears_is_as_its_steps_say(nodes: int) -> None:
    """(offset, length): the sum over `length` places up to the one at `offset` before; all others, each once."""
    windows, heard = Windows(nodes), []
    shifts = iter(windows.steps)

    def exchange(rows: np.ndarray) -> np.ndarray:
        moved = np.roll(rows, next(shifts)[0], axis=0)
        heard.append(moved[0])
        return moved

    windows.total(np.eye(nodes, dtype=np.int64), exchange)
    for row, (offset, length) in zip(heard, windows.steps, strict=True):
        assert sorted(np.flatnonzero(row)) == sorted((-offset - np.arange(length)) % nodes)
    assert (np.sum(heard, axis=0) == 1 - np.eye(nodes)[0]).all()


@pytest.mark.parametrize("nodes", [2, 3, 6, 20, 33])
def test_the_graphs_carry_it(nodes: int) -> None:
    """The same by the mixing matrices of the network, in the orders of three means."""
    topology = window_topology(build("one-peer-exponential", nodes=nodes, weights="doubly", seed=4), 4)
    values = np.random.default_rng(0).integers(-9, 9, (nodes, 2)).astype(float)
    windows = Windows(nodes)
    for mean in range(3):
        exchanges = iter(range(mean * windows.exchanges, (mean + 1) * windows.exchanges))
        totals = windows.total(values, lambda rows, at=exchanges: topology.weights(next(at)) @ rows)  # type: ignore[misc]
        np.testing.assert_array_equal(totals, np.tile(values.sum(0), (nodes, 1)))
    for t in range(2 * windows.exchanges):
        P = topology.weights(t).toarray()
        assert set(np.unique(P)) == {0.0, 1.0}
        assert (P.sum(0) == 1).all()
        assert (P.sum(1) == 1).all()
        assert not np.diag(P).any()
        np.testing.assert_array_equal(topology.out_degree(t), np.ones(nodes))
        np.testing.assert_array_equal(P[topology.edges(t)[:, 1], topology.edges(t)[:, 0]], 1)


def test_places_are_taken_anew_by_everyone_alike() -> None:
    ways = Relabelled(Windows(20), seed=3)
    assert ways.period is None
    assert sorted(ways.order(0)) == list(range(20))
    assert not np.array_equal(ways.order(0), ways.order(1))
    np.testing.assert_array_equal(ways.order(7), Relabelled(Windows(20), seed=3).order(7))
    assert not np.array_equal(ways.order(0), Relabelled(Windows(20), seed=4).order(0))
    np.testing.assert_array_equal(orders(20, 3, 0, 9)[7], ways.order(7))
    # For ever the same, whatever draws random numbers: an account of years ago must still be computable.
    assert ways.order(0)[:6].tolist() == PINNED


PINNED = [14, 17, 11, 3, 12, 0]


def test_every_pair_is_as_often_neighbours_as_any_other() -> None:
    """First neighbours over many means: a uniform permutation has each of n − 1 offsets equally often."""
    nodes, means = 8, 7000
    drawn = orders(nodes, 0, 0, means)
    counts = np.zeros((nodes, nodes))
    np.add.at(counts, (drawn, np.roll(drawn, 1, axis=1)), 1)
    expected = means / (nodes - 1)
    off = counts[~np.eye(nodes, dtype=bool)]
    assert ((off - expected) ** 2 / expected).sum() < 100  # 56 cells, about 49 degrees of freedom


def test_figures_are_those_of_a_mean() -> None:
    topology = window_topology(build("one-peer-exponential", nodes=20, weights="doubly", seed=0), 0)
    figures = topology.figures()
    assert figures["spectral gap"] == 1.0
    assert figures["exchanges for an exact mean"] == 5
    assert len(topology.to_json()["edges"]) == 8


def apart(found: Filter, W: np.ndarray, seed: int = 0) -> float:
    """How far the filter's outcome is from the mean, as a share of the largest value."""
    values = np.random.default_rng(seed).standard_normal((len(W), 10))
    return float(np.abs(found.mean(values, lambda rows: W @ rows) - values.mean(0)).max() / np.abs(values).max())


@pytest.mark.parametrize(
    ("kind", "nodes", "exchanges"),
    [
        ("ring", 20, 10),
        ("ring", 3, 1),
        ("complete", 8, 1),
        ("complete", 2, 1),
        ("star", 20, 2),
        ("torus", 16, 4),
    ],
)
def test_as_many_exchanges_as_eigenvalues(kind: str, nodes: int, exchanges: int) -> None:
    topology = build(kind, nodes=nodes, weights="doubly", seed=0)
    found = filter_of(topology)
    assert found.exchanges == exchanges
    assert apart(found, topology.weights(0).toarray()) <= (1e-13 if kind == "star" else 1e-14)
    assert found.error < 1e-12


@settings(deadline=None, max_examples=60)
@given(nodes=st.integers(2, 40), extra=st.integers(0, 40), seed=st.integers(0, 10**6))
def test_random_connected_graphs_are_right_or_refused(nodes: int, extra: int, seed: int) -> None:
    """Trees with some more edges: paths, brooms and hubs among them."""
    rng = np.random.default_rng(seed)
    graph = nx.random_labeled_tree(nodes, seed=seed)
    graph.add_edges_from((int(a), int(b)) for a, b in rng.integers(0, nodes, (extra, 2)) if a != b)
    W = metropolis(from_networkx(graph)).toarray()
    try:
        found = filter_of_spectrum(np.linalg.eigvalsh(W), "this graph")
    except UserError:
        return
    assert apart(found, W, seed) <= found.error <= TOLERANCE


def test_a_spectrum_that_costs_digits_is_refused() -> None:
    """Many eigenvalues close to 1 and to each other."""
    spectrum = np.append(1 - np.geomspace(1e-7, 1e-3, 60)[::-1], 1.0)
    with expect_refusal(key="algorithm.mixes", value="exact", names="60"):
        filter_of_spectrum(np.sort(spectrum), "algorithm.mixes = 'exact'")
    with expect_refusal(key="algorithm.mixes", value="exact"):
        filter_of_spectrum(np.array([0.2, 1.0, 1.0]), "algorithm.mixes = 'exact'")


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("directed-ring", {}, "ways"),
        ("exponential", {}, "ways"),
        ("resampled", {"base": {"kind": "erdos-renyi", "p": 0.5}, "every": 4}, "links"),
        ("ring", {"dropout": 0.1}, "links"),
    ],
)
def test_what_changes_or_goes_one_way_is_refused(kind: str, options: dict[str, object], says: str) -> None:
    with expect_refusal(key="algorithm.mixes", value="exact", names=says):
        filter_of(build(kind, nodes=10, weights="doubly", seed=0, **options))


def test_an_order_that_keeps_products_in_between() -> None:
    """Leja's against the plain one on a ring of 60: the plain order loses everything."""
    spectrum = np.sort((1 + 2 * np.cos(2 * np.pi * np.arange(60) / 60)) / 3)
    values = distinct(spectrum[:-1])
    assert len(values) == 30
    assert sorted(leja(values)) == sorted(values)
    assert error_of(leja(values), spectrum) < 1e-10
    assert error_of(np.sort(values), spectrum) > 1e3 * error_of(leja(values), spectrum)
    assert error_of(np.array([]), np.array([1.0])) == 0.0
