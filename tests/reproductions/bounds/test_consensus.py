"""The error neighbourhood of the consensus family, against runs and closed forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov
from tests.support.refusals import expect_refusal

from gossamer.algorithms.base import Exponential
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run
from gossamer.topology.kinds import build as build_topology
from reproductions.bounds.consensus import neighbourhood


class NoisyQuadratic:
    """Gradients of ½ a_i ‖x − b_i‖² plus Gaussian noise."""

    def __init__(self, a: np.ndarray, b: np.ndarray, sigma: float, seed: int):
        self.a, self.b, self.sigma = torch.from_numpy(a)[:, None], torch.from_numpy(b), sigma
        self.rng = torch.Generator().manual_seed(seed)

    def __call__(self, points: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(points.shape, generator=self.rng, dtype=points.dtype)
        return self.a * (points - self.b) + self.sigma * noise


def setting() -> tuple[np.ndarray, np.ndarray, Any]:
    rng = np.random.default_rng(2)
    topo = build_topology("ring", nodes=6, weights="doubly", seed=0)
    return rng.uniform(0.5, 2.0, 6), rng.normal(size=(6, 5)), topo


def steady_error(rule: Any, sigma: float, seed: int, lr: float = 0.1, rounds: int = 3000) -> float:
    """Root mean square distance from where the method stops without noise, once the start is forgotten."""
    a, b, topo = setting()
    algorithm = rule(lr=Exponential(lr))
    start = algorithm.init(torch.zeros(6, 5, dtype=torch.float64))
    rest = run(algorithm, start, NoisyQuadratic(a, b, 0.0, 0), SimulatedExchange(topo), rounds=1500).x
    squares = []
    run(
        algorithm, start._replace(x=rest.clone()), NoisyQuadratic(a, b, sigma, seed), SimulatedExchange(topo), rounds=rounds,
        after_round=lambda t, s: squares.append(float((s.x - rest).square().sum())) if t > 300 else None,
    )  # fmt: skip
    return math.sqrt(np.mean(squares))


@pytest.mark.parametrize("rule", [DSGD, DSGT])
def test_error_neighbourhood_is_of_order_sigma(rule: Any) -> None:
    """dp-consensus, Theorem 5.1, each level with noise of its own."""
    errors = [steady_error(rule, sigma, seed) for seed, sigma in enumerate((0.1, 0.2, 0.4))]
    assert errors[1] / errors[0] == pytest.approx(2.0, rel=0.12)
    assert errors[2] / errors[1] == pytest.approx(2.0, rel=0.12)


def test_neighbourhood_bounds_dsgd_and_matches_its_closed_form() -> None:
    a, _, topo = setting()
    lr, sigma = 0.1, 0.2
    step = topo.weights(0).toarray() - lr * np.diag(a)
    exact = math.sqrt(5 * np.trace(solve_discrete_lyapunov(step, (lr * sigma) ** 2 * np.eye(6))))
    measured = steady_error(DSGD, sigma, seed=5, lr=lr)
    assert measured == pytest.approx(exact, rel=0.08)
    rho = float(np.linalg.norm(step, 2))
    bound = neighbourhood(contraction=rho, lr=lr, sigma=sigma, dim=30)
    assert measured < bound
    assert neighbourhood(contraction=rho, lr=lr, sigma=3 * sigma, dim=30) == pytest.approx(3 * bound)
    norms = np.linalg.norm(np.random.default_rng(0).normal(size=(20000, 30)), axis=1)
    assert neighbourhood(contraction=0.0, lr=1.0, sigma=1.0, dim=30) == pytest.approx(norms.mean(), rel=5e-3)


@pytest.mark.parametrize("contraction", [-0.1, 1.0, 1.5])
def test_a_method_that_does_not_contract_has_no_neighbourhood(contraction: float) -> None:
    with expect_refusal("contraction", contraction, remedy=True):
        neighbourhood(contraction=contraction, lr=0.1, sigma=1.0, dim=3)


@pytest.mark.parametrize("dim", [1, 2, 7, 1000])
def test_the_noise_counts_by_its_mean_norm(dim: int) -> None:
    """E‖N(0, I_d)‖ is between √(d − ½) and √d; at d = 1 it is √(2/π)."""
    found = neighbourhood(contraction=0.0, lr=1.0, sigma=1.0, dim=dim)
    assert math.sqrt(max(dim - 0.5, 0)) < found < math.sqrt(dim)
    if dim == 1:
        assert found == pytest.approx(math.sqrt(2 / math.pi))
    twice = neighbourhood(contraction=0.5, lr=2.0, sigma=3.0, dim=dim, lipschitz=5.0, scale=7.0)
    assert twice == pytest.approx(found * 2 * 3 * 5 * 7 / 0.5)
