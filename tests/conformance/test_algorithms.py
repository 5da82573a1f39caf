"""What every algorithm must do. One entry in CASES gives a new algorithm all of these tests."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.quadratics import CASES, optimum
from tests.support.registries import rules

from gossamer.testing import check_algorithm
from gossamer.testing.quadratics import D, problem, topology, train
from gossamer.topology.kinds import build as build_topology

every_algorithm = pytest.mark.parametrize("name", CASES)


def test_every_registered_algorithm_has_a_case() -> None:
    assert set(rules()) - {"without-replacement"} == set(CASES)


@every_algorithm
def test_identical_nodes_reach_the_optimum(name: str) -> None:
    algorithm = CASES[name].make(0.3)
    a, b = np.full(8, 1.3), np.tile(np.arange(D, dtype=float), (8, 1))
    x0 = problem(8)[2]
    state = train(algorithm, topology(algorithm, 8), a, b, x0, 200)
    np.testing.assert_allclose(algorithm.model(state).numpy(), b, atol=1e-5)


# An irregular digraph is for column weights; the others keep to their ring, once.
@pytest.mark.parametrize(("name", "irregular"), [*((name, False) for name in CASES), ("push-sum", True)])
def test_different_nodes_reach_the_stated_point(name: str, irregular: bool) -> None:
    """The fixed point on a static graph, solved for independently; it tends to the optimum as the step shrinks."""
    case = CASES[name]
    a, b, x0 = problem(6, seed=3)
    best = optimum(np.eye(6), a, b, 0.0)
    gaps = []
    for lr in (0.04, 0.02):
        algorithm = case.make(lr)
        kind = ("digraph", {"p": 0.3}) if irregular else ("directed-ring", {})
        if algorithm.weights != "column":
            kind = ("ring", {})
        topo = build_topology(kind[0], nodes=6, weights=algorithm.weights, seed=1, **kind[1])
        state = train(algorithm, topo, a, b, x0, int(60 / lr))
        stated = case.fixed_point(topo.weights(0).toarray(), a, b, lr)
        np.testing.assert_allclose(algorithm.model(state).numpy(), stated, atol=2e-4)
        gaps.append(np.abs(stated - best).max())
    assert gaps[1] < 0.65 * gaps[0] or gaps[0] < 1e-9


@every_algorithm
def test_one_node_is_the_single_node_method(name: str) -> None:
    case = CASES[name]
    algorithm = case.make(0.1)
    a, b, x0 = problem(1)
    state = train(algorithm, topology(algorithm, 1), a, b, x0, 10)
    expected = case.single_node(a, b, x0, 0.1, 10)
    np.testing.assert_allclose(algorithm.model(state).numpy(), expected, rtol=1e-5)


@every_algorithm
def test_what_authors_of_other_methods_are_told_holds_here(name: str) -> None:
    """Node by node as its reference, on blocks of nodes, through a checkpoint, with the draws and messages it says."""
    case = CASES[name]
    check_algorithm(case.rule, options=case.options, reference=case.by_node)


@every_algorithm
def test_golden_trajectory(name: str) -> None:
    """A fixed seed gives these numbers, today and after every change."""
    algorithm = CASES[name].make(0.05)
    a, b, x0 = problem(8, seed=11)
    state = train(algorithm, topology(algorithm, 8), a, b, x0, 20)
    np.testing.assert_allclose(algorithm.model(state)[0, :3].numpy(), CASES[name].golden, atol=2e-6)
