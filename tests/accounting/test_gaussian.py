import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm
from tests.support.refusals import expect_refusal

from gossamer.accounting.profiles import gdp_delta, gdp_epsilon, gdp_mu


@settings(deadline=None, max_examples=60)
@given(st.floats(0.01, 8.0), st.floats(0.0, 20.0))
def test_equation_4_is_the_integral(mu, epsilon):
    start = epsilon / mu + mu / 2

    def excess(z):
        return norm.pdf(z - mu) - math.exp(epsilon) * norm.pdf(z)

    expected = quad(excess, start, start + 40, epsabs=1e-14, limit=200)[0]
    assert gdp_delta(mu, epsilon) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.floats(0.05, 10.0), st.sampled_from([1e-2, 1e-5, 1e-9]))
def test_equation_4_inverts(epsilon, delta):
    mu = gdp_mu(epsilon, delta)
    assert gdp_delta(mu, epsilon) == pytest.approx(delta, rel=1e-8)
    assert gdp_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-7)


def test_nonsense_is_refused():
    with expect_refusal(key="delta", value="0.0", remedy=True):
        gdp_mu(1.0, 0.0)
    with expect_refusal(key="epsilon", value="-1.0", remedy=True):
        gdp_mu(-1.0, 1e-5)


@pytest.mark.parametrize("mu", [1e5, 1e7, 1e30, 1e200])
def test_huge_shifts_have_an_upper_bound_or_none(mu: float) -> None:
    found = gdp_epsilon(mu, 1e-5)
    assert found >= mu * mu / 2
    assert found <= mu * mu / 2 * (1 + 1e-3)
