"""Moments of composed losses against those of the normal distribution."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

from gossamer.accounting.law import Moments
from gossamer.accounting.pairs import GaussianPair
from gossamer.accounting.profiles import gdp_epsilon


def test_moments_of_composed_gaussians_are_those_of_a_normal_loss():
    """The loss of μ is N(μ²/2, μ²), so Λ(t) = (t + t²) μ²/2, Λ′ = (1 + 2t) μ²/2, Λ″ = μ²."""
    for mu in (1e-5, 0.8, 300.0):
        moments = Moments([(GaussianPair(mu), 7)], 1e-20, False)
        for t in (-1.0 / mu, 0.5 / mu, 3.0 / mu):
            value, mean, spread = moments.at(t)
            assert value == pytest.approx(7 * (t + t * t) * mu**2 / 2, rel=0.01, abs=1e-3)
            assert mean == pytest.approx(7 * (1 + 2 * t) * mu**2 / 2, rel=0.01, abs=0.01 * mu)
            assert spread == pytest.approx(7 * mu**2, rel=0.01)


def test_moments_are_never_below_those_of_the_releases():
    for mu in (0.3, 2.0):
        moments = Moments([(GaussianPair(mu), 1)], 1e-25, False)
        for t in (0.5, 1.0, 2.0):
            assert moments.at(t)[0] >= (t + t * t) * mu**2 / 2 - 1e-12


@settings(deadline=None, max_examples=15)
@given(st.floats(1e-4, 2.0), st.integers(1, 1000), st.floats(1.0, 30.0), st.sampled_from([1, -1]))
def test_beyond_leaves_at_most_what_it_says(mu, count, r, sign):
    """Under the tilted law the loss is normal around Λ′(t): the tail beyond y is known."""
    deviation = mu * math.sqrt(count)
    moments, t = Moments([(GaussianPair(mu), count)], 1e-25, False), 2.0 / deviation
    order, edge = moments.beyond(t, r, sign)
    mean = deviation**2 * (0.5 + t)
    assert (order - t) * sign > 0
    assert log_ndtr(-sign * (edge - mean) / deviation) <= -0.98 * r + 0.05
    assert sign * (edge - mean) / deviation <= 1.2 * math.sqrt(2 * r) + 0.1


@settings(deadline=None, max_examples=30)
@given(st.floats(1e-4, 50.0), st.integers(1, 10_000), st.floats(-15.0, -0.5))
def test_one_moment_bounds_epsilon(mu, count, exponent):
    delta, deviation = 10**exponent, mu * math.sqrt(count)
    _, epsilon = Moments([(GaussianPair(mu), count)], 1e-5 * delta / count, False).epsilon(delta)
    exact = gdp_epsilon(deviation, delta)
    assert exact <= epsilon <= 1.5 * exact + deviation


def test_the_tilt_puts_the_mean_where_it_is_asked_for():
    moments = Moments([(GaussianPair(0.5), 16)], 1e-20, False)  # N(2, 4)
    assert moments.tilt_for(10.0) == pytest.approx(2.0, abs=0.05)
    assert moments.tilt_for(1.0) == 0.0


def test_infinite_losses_are_taken_off_delta():
    moments = Moments([(GaussianPair(1.0), 100)], 1e-6, False)
    assert moments.infinite == pytest.approx(1e-4, rel=0.01)
    assert moments.epsilon(5e-5)[1] == math.inf
    assert moments.epsilon(1e-3)[1] >= gdp_epsilon(10.0, 1e-3)
