"""The composed loss, tilted or not, against closed forms, exact sums and convolutions that are written out."""

import math
from dataclasses import dataclass, replace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.accounting.composer import Composition
from gossamer.accounting.law import UpperLaw, Window, dots, lower_epsilon, suffix_sums
from gossamer.accounting.pairs import Cells, GaussianPair
from gossamer.accounting.profiles import gdp_delta, gdp_epsilon
from gossamer.accounting.proven import profile
from gossamer.accounting.releases import Event, Gaussian

TAIL = 1e-25


@dataclass(frozen=True)
class Coin:
    """Randomised response, true with probability p: its composition is a binomial sum."""

    p: float
    both_ways = False

    @property
    def distance(self):
        return 2 * self.p - 1

    def extent(self, tail=0.0):
        return 2 * self.loss

    @property
    def loss(self):
        return math.log(self.p / (1 - self.p))

    def pieces(self, tail=0.0):
        ends = np.array([-self.loss, self.loss])
        return Cells(ends, ends, np.array([1 - self.p, self.p]), np.array([self.p, 1 - self.p]))

    def cells(self, h, *, centred, tail=0.0):
        free = self.pieces()
        if centred:
            index = np.rint(free.first / h).astype(int)
            return Cells(index, index, free.p, free.q)
        return Cells(np.floor(free.first / h).astype(int), np.ceil(free.last / h).astype(int), free.p, free.q)

    def exact_delta(self, count, epsilon):
        """Σ_k C(n, k) (p^k r^{n−k} − e^ε r^k p^{n−k})₊ with fifty digits."""
        with mpmath.workdps(50):
            p, r, total = mpmath.mpf(self.p), 1 - mpmath.mpf(self.p), mpmath.mpf(0)
            for k in range(count + 1):
                gain = p**k * r ** (count - k) - mpmath.exp(epsilon) * r**k * p ** (count - k)
                total += mpmath.binomial(count, k) * max(gain, 0)
            return total


def window_for(mu, count, h, tilt, reach=9.0):
    """Around the tilted loss of composed Gaussians, N(μ²n/2 + tμ²n, μ²n)."""
    variance = mu * mu * count
    mean, deviation = variance * (0.5 + tilt), math.sqrt(variance)
    start = math.floor((mean - reach * deviation) / h)
    more = reach / deviation
    return Window(h, start, math.ceil(2 * reach * deviation / h), tilt + more, tilt - more, tilt)


def saddle(mu, count, delta):
    variance = mu * mu * count
    return max(0.0, gdp_epsilon(math.sqrt(variance), delta) / variance - 0.5)


@settings(deadline=None, max_examples=25)
@given(st.floats(0.1, 1.5), st.integers(1, 200), st.sampled_from([1e-2, 1e-4, 1e-6]), st.floats(0.3, 1.2))
def test_tilted_and_plain_composition_agree_where_both_work(mu, count, delta, share):
    pairs = [(GaussianPair(mu), count)]
    deviation = mu * math.sqrt(count)
    exact = gdp_epsilon(deviation, delta)
    found = []
    for tilt in (0.0, share * saddle(mu, count, delta)):
        window = window_for(mu, count, mu / 20, tilt)
        found.append(UpperLaw(window, pairs, False, TAIL).epsilon(delta))
        assert found[-1] >= exact
        assert lower_epsilon(window, pairs, False, delta, TAIL) <= exact * (1 + 1e-9)
    assert found[0] == pytest.approx(found[1], rel=1e-4, abs=1e-4 * deviation)


@settings(deadline=None, max_examples=60)
@given(
    st.floats(0.1, 1.5),
    st.integers(1, 50),
    st.just(0.0) | st.floats(1e-6, 1.5),  # no tilt, or one that a saddle point may have
    st.floats(0.3, 6.0),
    st.floats(0.3, 6.0),
)
def test_what_comes_into_a_window_too_short_shows_no_loss(mu, count, share, reach, orders):
    """A good part of the losses lies outside and comes back at the other end: less is shown, never too much."""
    exact, deviation = gdp_epsilon(mu * math.sqrt(count), 1e-4), mu * math.sqrt(count)
    tilt = share * saddle(mu, count, 1e-4)
    window = window_for(mu, count, mu / 20, tilt, reach)
    window = replace(window, order_up=tilt + orders / deviation, order_down=tilt - orders / deviation)
    assert lower_epsilon(window, [(GaussianPair(mu), count)], False, 1e-4, TAIL) <= exact * (1 + 1e-9)


@pytest.mark.parametrize("delta", [1e-9, 1e-12, 1e-15, 1e-30])
@pytest.mark.parametrize(("mu", "count"), [(0.5, 16), (0.02, 1000), (3.0, 40)])
def test_a_tilted_gaussian_is_exact_at_any_delta(mu, count, delta):
    """Without the tilt the rounding of the transforms alone is larger than these δ."""
    pairs, exact = [(GaussianPair(mu), count)], gdp_epsilon(mu * math.sqrt(count), delta)
    window = window_for(mu, count, mu / 40, saddle(mu, count, delta))
    upper = UpperLaw(window, pairs, False, 1e-5 * delta / count).epsilon(delta)
    lower = lower_epsilon(window, pairs, False, delta, 1e-5 * delta / count)
    assert lower <= exact <= upper
    assert upper == pytest.approx(exact, rel=2e-3)
    assert lower == pytest.approx(exact, rel=5e-3)
    plain = UpperLaw(window_for(mu, count, mu / 40, 0.0, 14.0), pairs, False, 1e-5 * delta / count)
    assert delta > 1e-12 or math.isinf(plain.epsilon(delta))


@settings(deadline=None, max_examples=15)
@given(st.floats(0.51, 0.9), st.integers(1, 60), st.floats(-15, -1), st.sampled_from([0.01, 0.002]))
def test_many_coins_against_their_binomial_sum(p, count, exponent, tolerance):
    coin, delta = Coin(p), 10**exponent
    found = Composition([(coin, count)]).bounds(delta, tolerance)
    assert coin.exact_delta(count, found.upper) <= delta
    assert found.lower == 0 or coin.exact_delta(count, found.lower * (1 - 1e-9)) >= delta * (1 - 1e-9)
    # From above it may lie as far off as was asked for.
    assert found.upper <= count * coin.loss * (1 + max(1e-3, tolerance)) + 1e-6


@pytest.mark.parametrize("reverse", [False, True])
def test_a_convolution_written_out_is_never_undercut(reverse):
    """Sums of products of positive numbers keep their digits in the far tail, where a plain transform has none."""
    pair, h, count = GaussianPair(1.2, 0.05), 0.02, 4
    cells = pair.cells(h, centred=False, tail=TAIL)
    first, mass, infinite = dots(cells.turned(reverse), h)
    exact = np.ones(1)
    for _ in range(count):
        exact = np.convolve(exact, mass)
    losses = h * (count * first + np.arange(len(exact)))
    for epsilon in (0.1, 1.0, 5.0) if not reverse else (0.02, 0.1):
        expected = count * infinite + exact @ np.maximum(0.0, -np.expm1(epsilon - losses))
        found = Composition([(pair, count)]).delta(epsilon, h) if not reverse else None
        tilt = 3.0 if not reverse else 40.0
        window = Window(h, -200, 3000, tilt + 1.0, tilt - 1.0, tilt)
        law = UpperLaw(window, [(pair, count)], reverse, TAIL)
        assert law.delta(epsilon) >= expected * (1 - 1e-12)
        assert found is None or found >= expected * (1 - 1e-9)
        if expected > 1e-12:
            assert law.delta(epsilon) == pytest.approx(expected, rel=1e-3)


def test_a_window_that_begins_above_epsilon_says_nothing_of_it():
    law = UpperLaw(Window(0.1, 20, 64, 2.0, 0.5, 1.0), [(GaussianPair(1.0), 1)], False, TAIL)
    assert law.delta(1.0) == 1.0
    assert law.epsilon(0.5) >= 2.0
    assert gdp_delta(1.0, law.epsilon(1e-3)) <= 1e-3


def test_suffix_sums_by_hand():
    found = suffix_sums(np.array([1.0, 2.0, 4.0]), math.log(2))
    assert found == pytest.approx([1 + 1 + 1, 2 + 2, 4])


def test_noise_too_small_for_doubles_is_no_proof_and_no_warning():
    """Warnings are errors in this suite; the masses there are 0 and their weights infinite."""
    draw = Gaussian(sigma=0.001, sensitivity=1.0, sampling="poisson", rate=0.08, adjacency="add-remove")
    events = [Event(k, draw) for k in range(100)]
    assert profile(events, [0.0, 1.0, 1e6], 1e-2, "add-remove") == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("fall", [0.0, 1e-4, 0.03, 2.0, 50.0, -0.01])
def test_suffix_sums_are_those_of_the_recurrence(fall: float) -> None:
    values = np.random.default_rng(0).exponential(size=3001)
    expected, after = np.empty(len(values)), 0.0
    for j in reversed(range(len(values))):
        expected[j] = after = values[j] + math.exp(-fall) * after
    np.testing.assert_allclose(suffix_sums(values, fall), expected, rtol=1e-12)
