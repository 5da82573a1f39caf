"""DSGD on quadratics: every error mode of a ring shrinks by its own factor."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gossamer.algorithms.base import Exponential
from gossamer.algorithms.dsgd import DSGD
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run
from gossamer.topology.kinds import build as build_topology


@pytest.mark.parametrize("mode", [0, 1, 3])
def test_a_mode_of_the_graph_shrinks_by_its_eigenvalue_less_the_step(mode: int) -> None:
    """All f_i = ½‖x‖²: x(t) = (W − ηI)^t x(0), and a cosine around the ring is an eigenvector of W."""
    n, lr, rounds = 6, 0.05, 9
    topology = build_topology("ring", nodes=n, weights="doubly", seed=0)
    wave = np.cos(2 * np.pi * mode * np.arange(n) / n)
    eigenvalue = (1 + 2 * np.cos(2 * np.pi * mode / n)) / 3
    algorithm = DSGD(lr=Exponential(lr))
    x0 = torch.from_numpy(wave[:, None] * [1.0, -2.0])
    state = run(algorithm, algorithm.init(x0), lambda x: x, SimulatedExchange(topology), rounds=rounds)
    expected = (eigenvalue - lr) ** rounds * x0
    torch.testing.assert_close(algorithm.model(state), expected, rtol=1e-9, atol=1e-12)


def test_the_gradient_is_taken_before_mixing() -> None:
    """Two nodes that average: x ← mean − η g(own old point)."""
    seen = []

    def grad(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.clone())
        return x.square()

    algorithm = DSGD(lr=Exponential(0.1))
    x0 = torch.tensor([[1.0], [3.0]])
    state = algorithm.step(algorithm.init(x0), grad, lambda x: x.mean(0).expand(2, 1), 0)
    assert torch.equal(seen[0], x0)
    torch.testing.assert_close(algorithm.model(state), torch.tensor([[2 - 0.1], [2 - 0.9]]))
