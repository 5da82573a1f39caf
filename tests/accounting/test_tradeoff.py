"""What proven guarantees leave an attacker, against closed forms and the two inequalities of the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from gossamer.accounting.profiles import TradeOff, gdp_delta


def of_gaussian(mu: float, top: float = 10.0) -> TradeOff:
    epsilons = np.linspace(0.0, top, 400).tolist()
    made = TradeOff.of(epsilons, [gdp_delta(mu, epsilon) for epsilon in epsilons])
    assert made is not None
    return made


def test_the_region_is_that_of_the_definition() -> None:
    """The largest t with t ≤ e^ε f + δ and 1 − f ≤ e^ε (1 − t) + δ, on a grid."""
    rates = np.linspace(0, 1, 100_001)
    for epsilon, delta in ((0.0, 0.0), (0.5, 1e-3), (2.0, 0.1)):
        for alarms in (0.0, 0.01, 0.2, 0.7, 1.0):
            grow = math.exp(epsilon)
            allowed = (rates <= grow * alarms + delta) & (1 - alarms <= grow * (1 - rates) + delta)
            found = float(TradeOff(((epsilon, delta),)).most_hits(alarms))
            assert found == pytest.approx(float(rates[allowed].max()), abs=2e-5)
    assert float(TradeOff(((1e6, 0.0),)).most_hits(1e-3)) == 1.0


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
def test_many_points_of_a_gaussian_are_its_trade_off_function(mu: float) -> None:
    """T(a) = Φ(Φ⁻¹(a) + μ) from above, and closely where the list of ε reaches."""
    alarms = np.linspace(0.01, 0.99, 99)
    exact = norm.cdf(norm.ppf(alarms) + mu)
    found = of_gaussian(mu).most_hits(alarms)
    assert (found >= exact).all()
    assert (found <= exact + 2e-4).all()
    one_point = TradeOff(((1.0, gdp_delta(mu, 1.0)),)).most_hits(alarms)
    assert (one_point >= found - 2e-4).all()  # of this list of ε the one is no point
    assert (one_point > found + 0.01).any()


@settings(deadline=None)
@given(
    points=st.lists(st.tuples(st.floats(0, 40), st.floats(0, 0.9)), min_size=1, max_size=8),
    hits=st.floats(0, 1),
)
def test_least_false_alarms_are_those_of_every_line(points: list[tuple[float, float]], hits: float) -> None:
    """By brute force over the lines; never more than the largest, for that would accuse."""
    lines = [0.0]
    for epsilon, delta in points:
        lines += [(hits - delta) * math.exp(-epsilon), 1 - delta - math.exp(epsilon) * (1 - hits)]
    found = TradeOff(tuple(points)).least_false_alarms(hits)
    assert found <= max(lines) + 1e-9
    assert found >= max(lines) - 1e-6


@settings(deadline=None)
@given(st.floats(0.05, 3.0), st.floats(0.001, 0.999))
def test_hits_and_false_alarms_are_each_others_inverse(mu: float, alarms: float) -> None:
    curve = of_gaussian(mu)
    hits = float(curve.most_hits(alarms))
    if hits < 1:
        assert curve.least_false_alarms(hits) == pytest.approx(alarms, abs=1e-9)


def test_the_tightest_guarantee_is_the_tangent() -> None:
    """At false alarms a the slope of Φ(Φ⁻¹(a) + μ) is e^{±ε} with ε where the likelihood ratio is."""
    mu = 1.0
    for alarms in (0.05, 0.3085, 0.6):
        epsilon, delta, slope = of_gaussian(mu).tightest(alarms)
        exact = math.exp(-mu * norm.ppf(alarms) - mu**2 / 2)
        assert slope == pytest.approx(exact, rel=0.03)
        assert abs(math.log(slope)) == pytest.approx(epsilon, abs=1e-9)
        assert delta == pytest.approx(gdp_delta(mu, epsilon))


def test_guarantees_that_say_nothing_are_left_out() -> None:
    assert TradeOff.of([1.0, 600.0], [1.0, 0.1]) is None
    kept = TradeOff.of([1.0, 2.0], [1.0, 0.1])
    assert kept is not None
    assert [epsilon for epsilon, _ in kept.points] == [2.0]
    for wrong in ((), ((-1.0, 0.1),), ((1.0, math.nan),)):
        with pytest.raises(ValueError, match="guarantee"):
            TradeOff(wrong)
