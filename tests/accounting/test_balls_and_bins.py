"""A pass of balls and bins: against closed forms, quadrature, draws of the exact pair, and an adaptive opponent."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.balls import sampled_losses, shown_delta

from gossamer.accounting.composer import Composition
from gossamer.accounting.pairs import GaussianPair
from gossamer.accounting.passes import BallsAndBinsPair, ratio
from gossamer.accounting.profiles import gdp_epsilon


def profile(pair, epsilon, *, upper):
    """δ(ε) of (P, Q) and (Q, P) straight from the bounding law."""
    law = ratio(pair.shifts, pair.lots, upper, pair.points)
    alpha = math.exp(epsilon)
    return (
        float(law.q @ np.maximum(law.x - alpha, 0)) + law.excess,
        float(law.q @ np.maximum(1 - alpha * law.x, 0)),
    )


def test_sixty_lots_cost_what_they_should():
    """0.62 by draws of the exact pair, 0.74 with Poisson lots, 3.80 as a full batch."""
    pair = BallsAndBinsPair(((1.0, 60),), 60)
    found = Composition([(pair, 1)]).bounds(1e-4)
    assert found.lower == pytest.approx(0.6158, abs=5e-4)
    assert found.lower < found.upper < 0.6170
    assert Composition([(GaussianPair(1.0, 1 / 60), 60)]).bounds(1e-4).lower > 0.73
    assert gdp_epsilon(1.0, 1e-4) > 3.5


@pytest.mark.parametrize("mu", [0.01, 1.0, 4.0])
def test_a_single_lot_is_a_full_batch(mu):
    found = Composition([(BallsAndBinsPair(((mu, 1),), 1), 3)]).bounds(1e-5)
    exact = gdp_epsilon(math.sqrt(3) * mu, 1e-5)
    assert found.lower <= exact <= found.upper <= exact * 1.01


@pytest.mark.parametrize(("mu", "lots"), [(1.0, 60), (3.0, 5), (0.1, 300)])
def test_one_released_lot_of_many_is_a_poisson_release(mu, lots):
    pair, poisson = BallsAndBinsPair(((mu, 1),), lots), GaussianPair(mu, 1 / lots)
    ours, theirs = (Composition([(one, 4)]).bounds(1e-5) for one in (pair, poisson))
    assert ours.upper >= theirs.lower
    assert ours.upper == pytest.approx(theirs.upper, rel=0.01)


@pytest.mark.parametrize(("one", "two"), [(1.0, 1.0), (2.0, 0.5)])
@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.5])
def test_two_lots_by_quadrature(one, two, epsilon):
    step = 0.01
    z = np.arange(-9, 9 + max(one, two), step)
    x, y = np.meshgrid(z, z)
    weight = np.exp(-(x**2 + y**2) / 2) * step**2 / (2 * math.pi)
    density = (np.exp(one * x - one**2 / 2) + np.exp(two * y - two**2 / 2)) / 2
    alpha = math.exp(epsilon)
    exact = [float((weight * np.maximum(gain, 0)).sum()) for gain in (density - alpha, 1 - alpha * density)]
    shifts = ((one, 2),) if one == two else ((two, 1), (one, 1))
    pair = BallsAndBinsPair(shifts, 2)
    for low, true, high in zip(
        profile(pair, epsilon, upper=False), exact, profile(pair, epsilon, upper=True), strict=True
    ):
        assert low - 1e-9 <= true <= high + 1e-9
        assert high - low <= 2e-3 * true


def test_both_directions_are_composed():
    """Below ε = 0 the other direction decides, and in a composition what is below 0 counts."""
    pair = BallsAndBinsPair(((1.0, 10),), 10)
    for epsilon in (-0.6, -0.2, 0.2, 0.6):
        found = Composition([(pair, 1)]).delta(epsilon, 1e-3)
        ways = profile(pair, epsilon, upper=False)
        assert (ways[1] > ways[0]) == (epsilon < 0)
        assert max(ways) <= found <= max(profile(pair, epsilon, upper=True)) + 1e-5


CASES = [(2, 1.0, None), (10, 0.5, None), (60, 1.0, None), (60, 1.0, 20), (120, 0.6, None), (40, 4.0, None)]


@pytest.mark.parametrize(("lots", "sigma", "released"), CASES)
def test_draws_of_the_exact_pair_stay_within_the_bounds(lots, sigma, released):
    """An attack: 40,000 outcomes a direction, at five ε each. 4.9 standard errors: a true bound fails one in 10⁶."""
    count = lots if released is None else released
    pair = BallsAndBinsPair(((1 / sigma, count),), lots)
    drawn = sampled_losses(np.full(count, 1 / sigma), lots, 40_000, seed=lots)
    top = Composition([(pair, 1)]).bounds(1e-3).upper
    for share in (0.0, 0.2, 0.4, 0.7, 1.0):
        low, high = (profile(pair, share * top, upper=upper) for upper in (False, True))
        for way, losses in enumerate(drawn):
            delta, error = shown_delta(losses, share * top)
            assert low[way] - 4.9 * error - 20 / 40_000 <= delta <= high[way] + 4.9 * error


def test_an_opponent_who_turns_and_shortens_what_is_added_gains_nothing():
    """Adaptive: the next direction and length follow what was seen; in two dimensions, the exact likelihood ratio.

    It is at most the priced profile by 4.9 standard errors, and a fixed full-length direction attains it.
    """
    lots, runs, sigma = 6, 60_000, 1.0
    rng = np.random.default_rng(3)
    pair = BallsAndBinsPair(((1 / sigma, lots),), lots)

    def losses(*, present: bool, adaptive: bool) -> np.ndarray:
        chosen = rng.integers(0, lots, runs)
        seen = np.zeros((runs, 2))
        terms = []
        for t in range(lots):
            angle = seen[:, 0] * 3 if adaptive else np.zeros(runs)
            length = 1 / (1 + np.exp(-2 * seen[:, 1] - 1)) if adaptive else np.ones(runs)
            part = length[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
            inside = (chosen == t) & present
            seen = inside[:, None] * part + sigma * rng.standard_normal((runs, 2))
            terms.append(((part * seen).sum(1) - (part**2).sum(1) / 2) / sigma**2)
        ratio_log = np.logaddexp.reduce(np.stack(terms), axis=0) - math.log(lots)
        return ratio_log if present else -ratio_log

    for adaptive in (True, False):
        for way, present in enumerate((True, False)):
            found = losses(present=present, adaptive=adaptive)
            for epsilon in (0.1, 0.5, 1.0):
                delta, error = shown_delta(found, epsilon)
                priced = profile(pair, epsilon, upper=True)[way]
                assert delta <= priced + 4.9 * error
                if not adaptive:
                    assert delta >= priced * 0.999 - 4.9 * error


@settings(max_examples=25, deadline=None)
@given(mu=st.floats(1e-3, 5.0), lots=st.integers(1, 400), data=st.data())
def test_less_noise_and_more_released_lots_never_cost_less(mu, lots, data):
    released = data.draw(st.integers(1, lots))
    epsilon = data.draw(st.floats(0, 2)) * min(mu, 1.0)
    points = 240
    base = profile(BallsAndBinsPair(((mu, released),), lots, points), epsilon, upper=False)
    for worse in (
        BallsAndBinsPair(((mu * 1.05, released),), lots, points),
        BallsAndBinsPair(((mu, lots),), lots, points),
        BallsAndBinsPair(((mu, 1),), 1, points),  # all in one lot: a full batch
    ):
        assert all(a <= b + 1e-12 for a, b in zip(base, profile(worse, epsilon, upper=True), strict=True)), worse


@pytest.mark.parametrize("shifts", [(), ((1.0, 4),), ((1.0, 2), (0.5, 2))])
def test_no_more_lots_can_be_released_than_there_are(shifts):
    with pytest.raises(ValueError, match="lots"):
        BallsAndBinsPair(shifts, 3)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("lots", [2, 60, 1000, 10_000])
def test_bounds_meet_over_the_whole_range(lots, sigma, delta):
    found = Composition([(BallsAndBinsPair(((1 / sigma, lots),), lots), 1)]).bounds(delta)
    assert found.upper <= gdp_epsilon(1 / sigma, delta) * 1.001
    assert found.upper - found.lower <= 0.02 * max(found.upper, 0.01)
