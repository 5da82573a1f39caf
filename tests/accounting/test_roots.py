"""Brent's method against closed forms and scipy's."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from gossamer.accounting.profiles import gdp_delta, root

FUNCTIONS = [
    (lambda x: x * x - 2, 0.0, 2.0, math.sqrt(2)),
    (lambda x: math.cos(x) - x, 0.0, 1.0, 0.7390851332151607),
    (lambda x: math.exp(x) - 1e6, -50.0, 50.0, math.log(1e6)),
    (lambda x: -1.0 if x < 0.7 else 1.0, 0.0, 1.0, 0.7),
    (lambda x: x, 0.0, 1.0, 0.0),
    (lambda x: x - 1, 0.0, 1.0, 1.0),
]


@pytest.mark.parametrize(("f", "low", "high", "at"), FUNCTIONS)
def test_known_roots(f, low, high, at):
    found = root(f, low, high, xtol=1e-12)
    assert found == pytest.approx(at, abs=1e-11)
    assert found == pytest.approx(brentq(f, low, high, xtol=1e-12), abs=2e-12)


@settings(deadline=None, max_examples=50)
@given(st.floats(0.01, 30.0), st.floats(1e-12, 0.4))
def test_profiles_are_inverted_as_scipy_inverts_them(mu, delta):
    if gdp_delta(mu, 0.0) <= delta:
        return
    ends = 0.0, mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9
    calls = []

    def excess(epsilon):
        calls.append(epsilon)
        return gdp_delta(mu, epsilon) - delta

    found = root(excess, *ends, xtol=1e-12, rtol=1e-13)
    expected, more = brentq(lambda e: gdp_delta(mu, e) - delta, *ends, xtol=1e-12, rtol=1e-13, full_output=True)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-11)
    assert len(calls) <= more.function_calls + 2


def test_ends_of_one_sign_hold_no_root():
    with pytest.raises(ValueError, match="same sign at 1 and at 2"):
        root(lambda x: x, 1, 2, xtol=1e-9)
