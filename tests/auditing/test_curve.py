"""The same scores against the whole proven curve: closed forms, exact enumeration, real runs with thinner noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from tests.support.audits import on_axes, outlined, verdict_of
from tests.support.mechanism import thinner

from gossamer.accounting.observers import EVERYONE
from gossamer.accounting.profiles import TradeOff, gdp_delta, gdp_mu
from gossamer.auditing import bounds
from gossamer.auditing import verdict as verdicts
from gossamer.auditing.attacks import Axes, attack_of
from gossamer.auditing.bounds import Coins

DELTA, COINS = 1e-4, 20_048


def gaussian(epsilon: float) -> tuple[float, TradeOff]:
    """(μ, the curve) of the Gaussian that is (ε, 1e-4)-DP."""
    mu = gdp_mu(epsilon, DELTA)
    points = [(e, gdp_delta(mu, e)) for e in np.linspace(0, 1.25 * epsilon, 60).tolist()]
    return mu, TradeOff(tuple(points))


def normal_scores(mu: float, seed: int, count: int = COINS) -> Coins:
    rng = np.random.default_rng(seed)
    heads = rng.random(count) < 0.5
    return Coins(rng.standard_normal(count) + mu * heads, heads, np.zeros(count, dtype=np.int64))


@pytest.mark.parametrize(("epsilon", "share"), [(8.0, 0.9), (1.0, 0.7)])
def test_thinner_noise_is_outside_of_the_curve_and_inside_of_the_point(epsilon: float, share: float) -> None:
    mu, proven = gaussian(epsilon)
    for seed in range(3):
        coins = normal_scores(mu / share, seed)
        found = verdicts.rates(coins, proven, 0.999)
        assert found.violated
        assert found.shown["hit_rate"] > found.shown["hit_rate_allowed"]
        assert bounds.threshold(coins, DELTA, 0.999).epsilon < epsilon
        assert not verdicts.rates(normal_scores(mu, seed), proven, 0.999).violated
        # Held against the one point alone, the same event is no violation.
        point = TradeOff(((epsilon, DELTA),))
        assert not verdicts.rates(coins, point, 0.999).violated


@pytest.mark.slow
def test_a_violation_is_declared_as_seldom_as_it_is_said() -> None:
    """Scores on the very edge of the curve, 300 audits at 90%: a right test errs in at most 30 on average; 50 or more
    would have probability below 3e-4."""
    mu, proven = gaussian(4.0)
    wrong = sum(verdicts.rates(normal_scores(mu, seed, 300), proven, 0.9).violated for seed in range(300))
    assert wrong < 50


def test_outside_is_exact_for_few_coins() -> None:
    """By enumeration of all outcomes at a fine grid of the curve's edge: what is declared has a chance of at most α."""
    _, proven = gaussian(2.0)
    of, out_of, slope, alpha = 9, 11, 1.5, 0.02
    declared = np.array(
        [[verdicts.outside(proven, a, of, b, out_of, slope, alpha) for b in range(out_of + 1)] for a in range(of + 1)]
    )
    assert declared.any()
    largest = 0.0
    for alarm in np.linspace(0, 1, 500):
        hit = float(proven.most_hits(alarm))
        mass = np.outer(binom.pmf(range(of + 1), of, hit), binom.pmf(range(out_of + 1), out_of, alarm))
        largest = max(largest, float(mass[declared].sum()))
    assert largest <= alpha
    # And it leaves no more on the table than the next outcome would cost.
    assert largest > alpha / 4
    assert not verdicts.outside(proven, 0, of, out_of, out_of, slope, alpha)


def test_two_intervals_side_by_side_declare_less() -> None:
    """At the same false alarms, Clopper–Pearson on both rates needs more hits than the two tested together."""
    _, proven = gaussian(1.0)
    slope, high = proven.tightest(0.5)[2], bounds.at_most(100, 200, 5e-4)
    apart = next(h for h in range(201) if bounds.at_least(h, 200, 5e-4) > proven.most_hits(high))
    exact = next(h for h in range(120, 201) if verdicts.outside(proven, h, 200, 100, 200, slope, 1e-3))
    assert 130 < exact < apart - 5
    assert verdicts.outside(proven, apart, 200, 100, 200, slope, 1e-3)


def test_a_leak_in_few_cases_is_found_too() -> None:
    """Two in a hundred records are told outright: an event that only its own neighbourhood of one shows."""
    mu, proven = gaussian(1.0)
    plain = normal_scores(mu, 5)
    told = plain.heads & (np.random.default_rng(6).random(COINS) < 0.02)
    found = verdicts.rates(Coins(np.where(told, 9.0, plain.scores), plain.heads, plain.run), proven, 0.999)
    assert found.violated
    assert found.shown["false_alarms"] <= 5


def test_guesses_that_tell_all_are_outside_and_fewer_are_not() -> None:
    """Scores may depend on each other here: a mechanism that tells all coins at once, rarely, keeps to the curve."""
    mu, proven = gaussian(1.0)
    coins = normal_scores(mu, 0, 4000)
    assert not verdicts.guesses(coins, proven, 0.999).violated
    everything = Coins(coins.heads.astype(float), coins.heads, coins.run)
    found = verdicts.guesses(everything, proven, 0.999)
    assert found.violated
    assert found.shown["correct"] > found.shown["correct_allowed"]
    assert found.shown["guesses"] >= found.shown["correct"]
    # With probability δ(ε) anything may happen, so at a confidence beyond that nothing is certain.
    lax = TradeOff(((0.0, 1e-3),))
    assert not verdicts.guesses(everything, lax, 1 - 5e-4).violated
    assert verdicts.guesses(everything, lax, 0.99).violated


def test_few_coins_tell_nothing_and_do_not_fail() -> None:
    _, proven = gaussian(1.0)
    for count in (1, 2, 5, 12):
        for test in (verdicts.rates, verdicts.guesses):
            assert not test(normal_scores(9.0, 1, count), proven, 0.999).violated


# --- real runs ----------------------------------------------------------------------------------------------


def real(seed: int, **changes: Any) -> Any:
    return outlined(**{"privacy__sampling": {"kind": "full"}, "privacy__delta": DELTA, "seed": seed, **changes})


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "share"), [(8.0, 0.9), (1.0, 0.7)])
def test_thinner_noise_of_a_real_run_is_declared_in_nine_of_ten_seeds(epsilon: float, share: float) -> None:
    """The run's own mechanism, its levels scaled under the planned price; 20,048 coins, 99.9%."""
    declared = by_point = 0
    for seed in range(10):
        o = real(seed, privacy__epsilon=epsilon)
        attack = Axes(thinner(on_axes(o), 1 / share), EVERYONE)
        verdict = verdict_of(attack, o)
        assert attack.independent
        declared += verdict.violated == ("proven",)
        by_point += verdict.above_one_point == ("proven",)
    assert declared >= 9
    assert by_point == 0  # what the one point alone would have told


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("sampling", [{"kind": "full"}, {"kind": "poisson", "rate": 0.25}], ids=["full", "poisson"])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_sound_runs_of_every_kind_are_not_accused(epsilon: float, sampling: Any, adjacency: str) -> None:
    """Five of each of eight kinds: at 99.9% a right test accuses 0.04 of all forty on average."""
    accused = []
    for seed in range(5):
        o = real(100 + seed, privacy__epsilon=epsilon, privacy__sampling=sampling, privacy__adjacency=adjacency)
        if verdict_of(attack_of(o, "all", None), o).violated:
            accused.append(seed)
    assert accused == []
