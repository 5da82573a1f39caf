"""Sums of likelihood ratios: never below from above, never above from below, and both close."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from gossamer.accounting.passes import ROUNDING, Law, add, log_normal, log_normals


def mean(law: Law) -> float:
    return float(law.q @ law.x) + law.excess


def call(law: Law, strike: float) -> float:
    """E (X − K)₊: what H_α(P‖Q) is made of."""
    return float(law.q @ np.maximum(law.x - strike, 0)) + law.excess


def put(law: Law, strike: float) -> float:
    """E (K − X)₊: what H_α(Q‖P) is made of."""
    return float(law.q @ np.maximum(strike - law.x, 0))


@pytest.mark.parametrize("mu", [1e-4, 0.01, 0.3, 1.0, 3.3, 6.0])
def test_a_log_normal_against_its_closed_form(mu):
    above, below = log_normal(mu, upper=True), log_normal(mu, upper=False)
    assert mean(above) == pytest.approx(1, abs=ROUNDING) == mean(below)
    for z in np.linspace(-3, 3 + mu, 9):
        strike = math.exp(mu * z - mu * mu / 2)
        exact = ndtr(mu - z) - strike * ndtr(-z)  # Black and Scholes
        assert call(below, strike) - ROUNDING <= exact <= call(above, strike) + ROUNDING
        assert call(above, strike) - call(below, strike) <= 5e-3 * exact + 1e-8 * mu
        slack = 1e-12 * max(1, strike)
        assert put(below, strike) - slack <= exact - 1 + strike <= put(above, strike) + slack


weights = st.lists(st.floats(1e-6, 1), min_size=1, max_size=25)


@settings(max_examples=80, deadline=None)
@given(one=weights, two=weights, scale=st.floats(0.1, 12), seed=st.integers(0, 10**6), points=st.integers(6, 300))
def test_an_addition_bounds_every_convex_function_from_both_sides(one, two, scale, seed, points):
    """Random laws, values from e^−scale to e^scale and 0, a few points or many: calls and puts at any strike."""
    rng = np.random.default_rng(seed)
    laws = []
    for masses in (one, two):
        x = np.unique(np.append(np.exp(rng.uniform(-scale, scale, len(masses))), 0.0 if seed % 2 else 1.0))
        q = rng.dirichlet(np.ones(len(x)))
        laws.append(Law(x, q, 0.01 if seed % 3 == 0 else 0.0))
    a, b = laws
    exact = Law(np.add.outer(a.x, b.x).ravel(), np.outer(a.q, b.q).ravel(), a.excess + b.excess)
    above = add(a, b, upper=True, points=points)
    bare = [Law(law.x, law.q) for law in laws]
    below = add(*bare, upper=False, points=points)
    assert above.q.sum() == pytest.approx(1) == below.q.sum()
    assert mean(above) == pytest.approx(mean(exact), rel=1e-12)
    for strike in np.exp(rng.uniform(-scale - 1, scale + 1, 8)):
        slack = 1e-12 * (mean(exact) + strike)  # sums of numbers of that size are rounded
        assert call(above, strike) >= call(exact, strike) - slack
        assert put(above, strike) >= put(exact, strike) - slack
        assert call(below, strike) <= call(exact, strike) - exact.excess + slack
        assert put(below, strike) <= put(exact, strike) + slack


@pytest.mark.parametrize("count", [1, 2, 3, 13, 64])
def test_many_log_normals_keep_their_mean_and_variance(count):
    above, below = (log_normals(0.5, count, upper=upper) for upper in (True, False))
    variance = count * math.expm1(0.25)
    assert mean(above) == pytest.approx(count, rel=1e-13) == mean(below)
    spread = [float(law.q @ (law.x - count) ** 2) for law in (below, above)]
    assert spread[0] <= variance * (1 + 1e-9)
    assert spread[1] >= variance * (1 - 1e-9)
    assert spread[1] / spread[0] < 1.002


def test_what_is_cut_off_goes_to_infinity_and_to_zero():
    """Far tails may not vanish: their mean is what only P has, their mass what only Q has."""
    law = log_normals(2.0, 8, upper=True)
    assert 0 < law.excess < 1e-15
    assert law.x[0] == 0
    assert 0 < law.q[0] < 1e-15
