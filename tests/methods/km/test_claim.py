"""Theorem 1 of DP-dKM, with its double sum written out."""

from __future__ import annotations

import pytest

from gossamer.mechanism.clipping import Constant
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.mechanism.noise.shaped import Laplace, TruncatedGaussian, TruncatedLaplace
from gossamer.mechanism.sampling import Single
from gossamer.methods.claims import Draws
from gossamer.methods.km.claim import Theorem1

ALPHAS = (1.0, 0.8, 0.5, 0.4, 0.1)
RULE = Theorem1(ALPHAS, 0.2, 0.7, 60)


def test_the_sensitivity_is_the_double_sum() -> None:
    for K in range(1, 6):
        drift = sum((1 + 2 * ALPHAS[k]) * ALPHAS[j] * 0.7 ** (k - 1 - j) for k in range(K) for j in range(k))
        expected = 2 * 0.2 * sum(ALPHAS[:K]) / 60 + 4 * 0.2 * drift
        assert RULE.sensitivity(K) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("noise", [Laplace(), TruncatedLaplace(), TruncatedGaussian(), Gaussian()])
def test_the_noise_of_a_budget_is_claimed_to_cost_it(noise: object) -> None:
    run = Draws(5, Constant(1.0), noise, Single(), 1.0, 10)  # type: ignore[arg-type]
    sigma, end = RULE.noise(run, 0.1, 0.5, 1e-3)
    assert end is not None
    assert RULE.claim(run, sigma, 0.1, 1e-3, 5).epsilon == pytest.approx(0.5, rel=1e-6)
    assert RULE.covers(run.noise)
    assert sigma > 0


def test_laplace_is_sensitivity_over_epsilon() -> None:
    run = Draws(5, Constant(1.0), Laplace(), Single(), 1.0, 10)
    sigma, end = RULE.noise(run, 0.1, 0.5, 1e-3)
    assert sigma == pytest.approx(RULE.sensitivity(5) / 0.5)
    assert end == float("inf")
