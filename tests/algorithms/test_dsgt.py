"""Gradient tracking: what the tracker is, and what it is good for."""

from __future__ import annotations

import numpy as np
import torch
from tests.support.quadratics import optimum

from gossamer.algorithms.base import Exponential
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run
from gossamer.testing.quadratics import Quadratic, problem, train
from gossamer.topology.kinds import build as build_topology


def test_tracking_reaches_the_optimum_where_plain_descent_stops_short() -> None:
    a, b, x0 = problem(6, seed=3)
    topo = build_topology("ring", nodes=6, weights="doubly", seed=0)
    best = optimum(np.eye(6), a, b, 0.0)
    reached = {rule: train(rule(lr=Exponential(0.1)), topo, a, b, x0, 1500).x.numpy() for rule in (DSGD, DSGT)}
    assert np.abs(reached[DSGT] - best).max() < 1e-4
    assert np.abs(reached[DSGD] - best).max() > 1e-2


def test_trackers_average_the_gradients_at_every_step() -> None:
    a, b, x0 = problem(6, seed=4)
    topo = build_topology("ring", nodes=6, weights="doubly", seed=0)
    algorithm = DSGT(lr=Exponential(0.05))
    gaps = []
    run(
        algorithm, algorithm.init(torch.from_numpy(x0).float()), Quadratic(a, b), SimulatedExchange(topo), rounds=50,
        after_round=lambda t, s: gaps.append(float((s.y.mean(0) - s.g.mean(0)).abs().max())),
    )  # fmt: skip
    assert max(gaps) < 1e-5
