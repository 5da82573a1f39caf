"""What every algorithm must do. One entry in CASES gives a new algorithm all of these tests."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.support.quadratics import CASES, D, Quadratic, optimum, problem, topology, train

from gossamer.methods import rules
from gossamer.methods.gossip import bytes_per_message
from gossamer.runtime.loop import run
from gossamer.runtime.simulator import SimulatedExchange
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


@every_algorithm
@pytest.mark.parametrize("irregular", [False, True])
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
@pytest.mark.parametrize("irregular", [False, True])
def test_stacked_step_is_the_node_by_node_step(name: str, irregular: bool) -> None:
    case = CASES[name]
    algorithm = case.make(0.1)
    a, b, x0 = problem(7, seed=5)
    kind = ("digraph", {"p": 0.4}) if irregular and algorithm.weights == "column" else ("ring", {})
    topo = build_topology(kind[0], nodes=7, weights=algorithm.weights, seed=2, **kind[1])
    state = train(algorithm, topo, a, b, x0, 15)
    expected = case.by_node(topo.weights(0).toarray(), a, b, x0, 0.1, 15)
    np.testing.assert_allclose(algorithm.model(state).numpy(), expected, rtol=1e-4, atol=1e-5)


@every_algorithm
def test_golden_trajectory(name: str) -> None:
    """A fixed seed gives these numbers, today and after every change."""
    algorithm = CASES[name].make(0.05)
    a, b, x0 = problem(8, seed=11)
    state = train(algorithm, topology(algorithm, 8), a, b, x0, 20)
    np.testing.assert_allclose(algorithm.model(state)[0, :3].numpy(), CASES[name].golden, atol=2e-6)


def test_every_inner_step_is_one_draw() -> None:
    a, b, x0 = problem(4)
    for name, case in CASES.items():
        algorithm = case.make(0.1)
        calls = 0

        def grad(points: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return Quadratic(a, b)(points)

        topo = topology(algorithm, 4)
        run(algorithm, algorithm.init(torch.from_numpy(x0).float()), grad, SimulatedExchange(topo), rounds=5)
        assert calls == 5 * algorithm.draws, name


@every_algorithm
def test_messages_are_as_long_as_planned(name: str) -> None:
    a, b, x0 = problem(8)
    algorithm = CASES[name].make(0.1)
    topo = topology(algorithm, 8)
    exchange = SimulatedExchange(topo)
    run(algorithm, algorithm.init(torch.from_numpy(x0).float()), Quadratic(a, b), exchange, rounds=6)
    links = sum(int(topo.out_degree(t).sum()) for t in range(6))
    assert exchange.bytes_sent == bytes_per_message(algorithm, D) * links
