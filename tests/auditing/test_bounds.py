"""Bounds come out where theory puts them on exact scores, and never above what is true."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gossamer.accounting.profiles import gdp_epsilon
from gossamer.auditing import bounds
from gossamer.auditing.bounds import Coins

DELTA = 1e-5


def normal_scores(mu: float, count: int, seed: int = 0) -> Coins:
    rng = np.random.default_rng(seed)
    heads = rng.random(count) < 0.5
    return Coins(rng.standard_normal(count) + mu * heads, heads, np.zeros(count, dtype=np.int64))


def randomised_response(epsilon: float, count: int, rng: np.random.Generator) -> Coins:
    """Exactly ε-DP: the coin itself, told truthfully with probability e^ε / (1 + e^ε)."""
    heads = rng.random(count) < 0.5
    truthful = rng.random(count) < 1 / (1 + math.exp(-epsilon))
    return Coins((heads == truthful).astype(float), heads, np.zeros(count, dtype=np.int64))


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 500), share=st.floats(0, 1), alpha=st.sampled_from([0.05, 1e-3]))
def test_clopper_pearson_is_scipys(n: int, share: float, alpha: float) -> None:
    k = round(share * n)
    interval = stats.binomtest(k, n).proportion_ci(1 - 2 * alpha, "exact")
    assert float(bounds.at_least(k, n, alpha)) == pytest.approx(interval.low, abs=1e-9)
    assert float(bounds.at_most(k, n, alpha)) == pytest.approx(interval.high, abs=1e-9)


def best_threshold_bound(mu: float, count: int, delta: float, alpha: float) -> float:
    """The largest Clopper–Pearson ε over thresholds, at the expected counts of the judging part."""
    side = (1 - bounds.CHOOSING) * count / 2
    cuts = np.linspace(-4, mu + 4, 2000)
    hits, misses = side * stats.norm.sf(cuts - mu), side * stats.norm.sf(cuts)
    return float(np.max(bounds.ratio_epsilon(hits, side, misses, side, delta, alpha)))


@pytest.mark.parametrize("mu", [0.5, 2.0, 4.0])
def test_exact_gaussian_scores_give_the_bounds_theory_gives(mu: float) -> None:
    """40,000 coins, fixed seed, 99.9%. The threshold bound may miss the best threshold, not by much."""
    coins, truth = normal_scores(mu, 40_000), gdp_epsilon(mu, DELTA)
    by_threshold = bounds.threshold(coins, DELTA, 0.999)
    best = best_threshold_bound(mu, len(coins), DELTA, 1e-3)
    assert by_threshold.epsilon == pytest.approx(best, abs=0.25 + 0.1 * best)
    assert by_threshold.epsilon < truth
    gaussian = bounds.gaussian(coins, DELTA, 0.999)
    assert gaussian.shown["mu_point"] == pytest.approx(mu, abs=0.04)
    assert 0.85 * truth < gaussian.epsilon < truth
    for bound in (bounds.one_run(coins, DELTA, 0.999), bounds.one_run_fdp(coins, DELTA, 0.999)):
        assert 0.2 * min(truth, 10) < bound.epsilon < truth
    # What believes in Gaussians gets further than what believes in nothing.
    assert bounds.one_run_fdp(coins, DELTA, 0.999).epsilon > bounds.one_run(coins, DELTA, 0.999).epsilon


def test_scores_that_know_nothing_show_nothing() -> None:
    coins = normal_scores(0.0, 20_000)
    for bound in bounds.all_bounds(coins, DELTA, 0.999, independent=True):
        assert bound.epsilon < 0.05, bound.name


@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_the_bounds_hold_as_often_as_they_say(epsilon: float) -> None:
    """Randomised response is the worst ε-DP mechanism. 300 audits at 90%: a right bound exceeds ε in at most 30 on average;
    50 or more would have probability below 3e-4."""
    rng = np.random.default_rng(1)
    for bound in (bounds.threshold, bounds.one_run):
        repeats = 300 if bound is bounds.threshold else 12
        over = sum(bound(randomised_response(epsilon, 400, rng), 0.0, 0.9).epsilon > epsilon for _ in range(repeats))
        assert over <= max(repeats / 6, 4)


def test_one_run_without_delta_is_the_binomial_tail() -> None:
    for guesses, correct, epsilon in ((100, 90, 1.0), (1000, 760, 1.0), (50, 50, 3.0)):
        accuracy = 1 / (1 + math.exp(-epsilon))
        tail = stats.binom.sf(correct - 1, guesses, accuracy)
        assert bounds.one_run_p_value(guesses, guesses, correct, epsilon, 0.0) == pytest.approx(tail)


@settings(max_examples=40, deadline=None)
@given(
    guesses=st.integers(2, 60),
    spare=st.integers(0, 40),
    epsilon=st.floats(0.0, 3.0),
    delta=st.sampled_from([1e-4, 1e-2]),
    data=st.data(),
)
def test_the_grid_of_the_one_run_bound_is_on_the_safe_side(guesses, spare, epsilon, delta, data) -> None:  # type: ignore[no-untyped-def]
    """Against Theorem 5.2 spelled out, one i after the other."""
    correct = data.draw(st.integers(0, guesses))
    accuracy = 1 / (1 + math.exp(-epsilon))
    beta = stats.binom.sf(correct - 1, guesses, accuracy)
    alpha = max(
        (
            (stats.binom.cdf(correct - 1, guesses, accuracy) - stats.binom.cdf(correct - i - 1, guesses, accuracy)) / i
            for i in range(1, correct + 1)
        ),
        default=0.0,
    )
    exact = min(1.0, beta + 2 * (guesses + spare) * delta * alpha)
    found = bounds.one_run_p_value(guesses + spare, guesses, correct, epsilon, delta)
    assert found >= exact - 1e-12
    assert found <= 1.05 * exact + 1e-12


def test_a_mechanism_that_rarely_tells_everything_is_not_called_a_violation() -> None:
    """With probability δ all coins are published: (0, δ)-DP. One lucky run must not be significant beyond δ."""
    delta = 1e-3
    assert bounds.one_run_p_value(1000, 1000, 1000, 0.0, delta) >= delta
    everything = Coins(np.repeat([0.0, 1.0], 500), np.repeat([False, True], 500), np.zeros(1000, dtype=np.int64))
    assert bounds.one_run(everything, delta, 1 - delta / 2).epsilon == 0.0


def test_the_number_of_guesses_looks_at_neither_scores_nor_coins() -> None:
    """The theorems fix it before anything is released; ties and outliers must not move it."""
    rng = np.random.default_rng(3)
    heads = rng.random(1000) < 0.5
    for scores in (
        rng.standard_normal(1000),
        heads.astype(float),
        np.zeros(1000),
        np.repeat([0.0, 1e9], 500),
    ):
        coins = Coins(scores, heads, np.zeros(1000, dtype=np.int64))
        assert bounds.Guesses(0.1, 0.25).counts(coins)[:2] == (1000, 350)
        assert bounds.Guesses(0.7, 0.7).counts(coins)[:2] == (1000, 1000)
    told = Coins(heads.astype(float), heads, np.zeros(1000, dtype=np.int64))
    assert bounds.Guesses(0.1, 0.1).counts(told) == (1000, 200, 200)


def test_the_split_looks_at_neither_scores_nor_coins() -> None:
    one, two = normal_scores(1.0, 1000, seed=1), normal_scores(3.0, 1000, seed=2)
    places = Coins(np.arange(1000.0), one.heads, one.run)
    chosen, judged = places.split()
    np.testing.assert_array_equal(chosen.scores, Coins(np.arange(1000.0), two.heads, two.run).split()[0].scores)
    assert len(chosen) == 250
    assert not set(chosen.scores) & set(judged.scores)


def test_few_coins_show_nothing_and_do_not_fail() -> None:
    for count in (1, 2, 5):
        for bound in bounds.all_bounds(normal_scores(9.0, count), DELTA, 0.999, independent=True):
            assert 0.0 <= bound.epsilon < 3.0
