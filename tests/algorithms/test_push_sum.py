"""Push-sum keeps its mass whatever the links do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gossamer.algorithms.base import Exponential
from gossamer.algorithms.push_sum import PushSum
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run
from gossamer.testing.quadratics import Quadratic, problem, topology, train
from gossamer.topology.kinds import build as build_topology


def test_push_sum_keeps_its_mass_where_weights_differ() -> None:
    algorithm = PushSum(lr=Exponential(0.1))
    a, b, x0 = problem(9, seed=7)
    topo = topology(algorithm, 9, irregular=True)
    start = algorithm.init(torch.from_numpy(x0).float())
    seen = []
    state = run(
        algorithm, start, Quadratic(a, b), SimulatedExchange(topo), rounds=300,
        after_round=lambda t, s: seen.append(float(s.w.double().sum())),
    )  # fmt: skip
    assert state.w.max() - state.w.min() > 0.1  # irregular: the weights do differ
    np.testing.assert_allclose(seen, 9.0, rtol=1e-5)


def test_push_sum_keeps_its_mass_when_links_drop() -> None:
    algorithm = PushSum(lr=Exponential(0.1))
    topo = build_topology("digraph", nodes=9, weights="column", seed=1, p=0.4, dropout=0.5)
    a, b, x0 = problem(9, seed=7)
    state = train(algorithm, topo, a, b, x0, 200)
    assert float(state.w.double().sum()) == pytest.approx(9.0, rel=1e-5)
