"""DiNNO's duals, its inner optimiser and its draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.support.quadratics import dinno_by_node, optimum

from gossamer.algorithms.base import Exponential
from gossamer.algorithms.dinno import DiNNO
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run
from gossamer.testing.quadratics import D, Quadratic, problem, train
from gossamer.topology.kinds import build as build_topology


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("steps", [1, 4])
def test_dual_descent_reaches_the_optimum_where_plain_descent_stops_short(include_self: bool, steps: int) -> None:
    a, b, x0 = problem(6, seed=3)
    topo = build_topology("ring", nodes=6, weights="adjacency", seed=0)
    algorithm = DiNNO(lr=Exponential(0.1), rho=0.3, steps=steps, optimiser="plain", include_self=include_self)
    state = train(algorithm, topo, a, b, x0, 1500)
    assert np.abs(state.x.numpy() - optimum(np.eye(6), a, b, 0.0)).max() < 1e-4


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_inner_adam_is_torchs_adam(persistent: bool, include_self: bool, steps: int) -> None:
    a, b, x0 = problem(7, seed=5)
    topo = build_topology("erdos-renyi", nodes=7, weights="adjacency", seed=2, p=0.4)
    fields = {"rho": 0.3, "steps": steps, "persistent": persistent, "include_self": include_self}
    algorithm = DiNNO(lr=Exponential(0.05), optimiser="adam", **fields)
    state = train(algorithm, topo, a, b, x0, 12)
    expected = dinno_by_node(topo.weights(0).toarray(), a, b, x0, 0.05, 12, optimiser="adam", **fields)
    np.testing.assert_allclose(state.x.numpy(), expected, rtol=1e-4, atol=1e-5)
    assert state.first.shape == (7, D if persistent else 0)  # only what has to outlive a round
    assert bool((state.taken == (12 * steps if persistent else 0)).all())


@pytest.mark.parametrize("optimiser", ["plain", "adam"])
def test_duals_sum_to_zero_on_undirected_graphs_also_when_links_drop(optimiser: Any) -> None:
    a, b, x0 = problem(8, seed=4)
    topo = build_topology("erdos-renyi", nodes=8, weights="adjacency", seed=0, p=0.5, dropout=0.3)
    algorithm = DiNNO(lr=Exponential(0.05), rho=0.3, optimiser=optimiser)
    sums, sizes = [], []

    def look(t: int, s: Any) -> None:
        sums.append(float(s.y.double().sum(0).abs().max()))
        sizes.append(float(s.y.abs().max()))

    start = algorithm.init(torch.from_numpy(x0).float())
    run(algorithm, start, Quadratic(a, b), SimulatedExchange(topo), rounds=60, after_round=look)
    assert max(sums) < 1e-4
    assert min(sizes) > 0.1  # not because they are all zero
