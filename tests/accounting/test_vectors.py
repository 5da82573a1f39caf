"""Vectors of independent noises by their norm, against exact profiles and direct sums."""

from __future__ import annotations

import math

import pytest
from scipy.optimize import minimize_scalar

from gossamer.accounting.profiles import concentrated_delta, concentrated_epsilon, gdp_epsilon
from gossamer.accounting.releases import TruncatedLaplace


def test_concentrated_epsilon_is_above_the_exact_gaussian_and_not_by_much() -> None:
    for mu in (0.05, 0.3, 1.0, 3.0):
        exact, found = gdp_epsilon(mu, 1e-4), concentrated_epsilon(mu**2 / 2, 1e-4)
        assert exact <= found < 1.2 * exact + 1e-3


def test_concentrated_epsilon_is_the_least_over_orders():
    """ρα + log(1/(δα))/(α − 1) + log(1 − 1/α), minimised by another search."""
    for rho, delta in ((0.01, 1e-5), (0.5, 1e-3), (20.0, 1e-6)):
        best = minimize_scalar(
            lambda log, rho=rho, delta=delta: (
                rho * (1 + math.exp(log))
                - math.log(delta * (1 + math.exp(log))) / math.exp(log)
                - math.log1p(math.exp(-log))
            ),
            bounds=(-6, 11),
            method="bounded",
        )
        assert best.fun * (1 - 1e-9) <= concentrated_epsilon(rho, delta) <= best.fun * (1 + 1e-4)
    assert concentrated_epsilon(1e-12, 0.5) == 0.0


def truncated(sensitivity, bound, dimensions, rate=1.0):
    sampling = "full" if rate == 1 else "poisson"
    one = TruncatedLaplace(
        sigma=1.0, bound=bound, dimensions=dimensions, sensitivity=sensitivity, sampling=sampling, rate=rate,
        adjacency="add-remove",
    )  # fmt: skip
    return one.by_norm("add-remove")


def test_crossing_bounds_every_way_to_spread_the_change():
    """A Laplace density: what a change of norm Δ carries beyond the bound, spread over 1, 4 or 16 of 16 coordinates."""
    scale, bound, shift = 1.0, 6.0, 2.0
    tail = math.exp(-bound / scale)
    upper = truncated(shift, bound, 16).crossing
    for moved in (1, 4, 16):
        each = shift / math.sqrt(moved)
        beyond = moved * (math.exp(-(bound - each) / scale) - tail) / 2 / (1 - tail)
        assert beyond <= upper


def test_crossing_is_not_known_of_sampled_releases_or_changes_as_wide_as_the_bound():
    assert truncated(1.0, 6.0, 4, rate=0.5).crossing == math.inf
    assert truncated(6.0, 6.0, 4).crossing == math.inf


@pytest.mark.parametrize("rho", [0.01, 0.5, 3.0])
def test_the_delta_of_concentrated_privacy_is_the_inverse_of_its_epsilon(rho: float) -> None:
    for delta in (1e-6, 1e-3, 1e-2):
        epsilon = concentrated_epsilon(rho, delta)
        assert concentrated_delta(rho, epsilon) == pytest.approx(delta, rel=1e-3)
    assert concentrated_delta(rho, 0.0) <= 1.0
