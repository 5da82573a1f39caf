"""Exact means on fixed undirected graphs by their eigenvalues: right, or refused."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import UserError
from gossamer.topology.exact import (
    TOLERANCE,
    Filter,
    distinct,
    error_of,
    filter_of,
    filter_of_spectrum,
    leja,
)
from gossamer.topology.graph import from_networkx, metropolis
from gossamer.topology.kinds import build


def apart(found: Filter, W: np.ndarray, seed: int = 0) -> float:
    """How far the filter's outcome is from the mean, as a share of the largest value."""
    values = np.random.default_rng(seed).standard_normal((len(W), 10))
    return float(
        np.abs(found.mean(values, lambda rows: W @ rows) - values.mean(0)).max() / np.abs(values).max()
    )


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
    with pytest.raises(UserError, match="would lose too many digits over its 60 exchanges"):
        filter_of_spectrum(np.sort(spectrum), "algorithm.mixes = 'exact'")
    with pytest.raises(UserError, match="never hear of each other"):
        filter_of_spectrum(np.array([0.2, 1.0, 1.0]), "algorithm.mixes = 'exact'")


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("directed-ring", {}, "the same weights both ways"),
        ("exponential", {}, "the same weights both ways"),
        ("resampled", {"base": {"kind": "erdos-renyi", "p": 0.5}, "every": 4}, "links that stay"),
        ("ring", {"dropout": 0.1}, "links that stay"),
    ],
)
def test_what_changes_or_goes_one_way_is_refused(kind: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
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
