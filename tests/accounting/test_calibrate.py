"""What a budget allows, held against what is proven of it."""

import math

import pytest
from tests.support.refusals import expect_refusal
from tests.support.releases import DELTA, RATE, dyn_d2p, gaussian

from gossamer.accounting import calibrate
from gossamer.accounting.calibrate import MOST_LEVELS, Target, affordable, common_factor, levelled
from gossamer.accounting.profiles import gdp_epsilon, gdp_mu
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import collate


def target(epsilon, delta=DELTA, adjacency="add-remove"):
    return Target(epsilon=epsilon, delta=delta, adjacency=adjacency)


def check_factor(claim, ratio, expected=None):
    releases = dyn_d2p(claim, ratio)
    factor = common_factor([r.sigma for r in releases], target(claim), sampling="poisson", rate=RATE)
    found = proven(collate([r.scaled(factor) for r in releases]), DELTA, "add-remove")
    assert 0.99 * claim <= found.epsilon <= claim
    assert 1.13 <= factor <= 1.31
    if expected:
        assert factor == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("claim", "ratio", "expected"), [(1.0, 1, 1.22), (3.0, 5, 1.197)])
def test_the_sound_factor_of_dyn_d2p(claim, ratio, expected):
    check_factor(claim, ratio, expected)


@pytest.mark.slow
@pytest.mark.parametrize("claim", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("ratio", [1, 2, 5])
def test_all_sound_factors_of_dyn_d2p(claim, ratio):
    check_factor(claim, ratio)


def test_a_full_batch_factor_is_closed_form():
    factor = common_factor([2.0, 4.0], target(1.0, 1e-5, "replace-one"), sampling="full", rate=1.0)
    mu = 2 * math.sqrt(0.25 + 0.0625) / factor
    assert gdp_epsilon(mu, 1e-5) == pytest.approx(1.0, rel=1e-6)
    once = common_factor([2.0, 4.0], target(1.0, 1e-5), sampling="one-pass", rate=1.0)
    assert once == pytest.approx(0.5 / gdp_mu(1.0, 1e-5), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.05, 2.0, 30.0])
def test_factors_far_from_one(epsilon):
    factor = common_factor([1.0] * 200, target(epsilon, 1e-5, "replace-one"), sampling="poisson", rate=0.02)
    found = proven([(gaussian(factor, rate=0.02), 200)], 1e-5, "replace-one").epsilon
    assert 0.98 * epsilon <= found <= epsilon


@pytest.mark.parametrize("epsilon", [1e-9, 1e-6])
def test_a_budget_of_next_to_nothing_is_met_without_a_long_search(epsilon, monkeypatch):
    evaluations = []

    def counted(*args, **kwargs):
        evaluations.append(proven(*args, **kwargs))
        return evaluations[-1]

    monkeypatch.setattr(calibrate, "proven", counted)
    factor = common_factor([1.0] * 40, target(epsilon, 1e-4), sampling="poisson", rate=0.2)
    assert len(evaluations) <= 15  # there were 47
    assert proven([(gaussian(factor, rate=0.2), 40)], 1e-4, "add-remove").epsilon <= epsilon
    assert proven([(gaussian(0.998 * factor, rate=0.2), 40)], 1e-4, "add-remove").epsilon > epsilon


def test_many_different_noises_are_searched_as_fewer():
    multipliers = [1 + k / 30_000 for k in range(20_000)]
    levels = levelled(multipliers)
    assert len(set(levels)) <= MOST_LEVELS + 1
    assert all(0.999 * m < level <= m for level, m in zip(levels, multipliers, strict=True))
    assert levelled(multipliers[:100]) == multipliers[:100]


def test_many_different_noises_meet_the_budget_one_by_one(monkeypatch):
    """Not only as the levels that the search began with: all of them are priced, by what `proven` says of them."""
    monkeypatch.setattr(calibrate, "MOST_LEVELS", 50)
    multipliers = [20.0 - 10.0 * k / 300 for k in range(300)]
    factor = common_factor(multipliers, target(2.0, 1e-5), sampling="poisson", rate=0.05)
    every = [gaussian(factor * m, rate=0.05) for m in multipliers]
    assert 2.0 * 0.99 <= proven(collate(every), 1e-5, "add-remove").epsilon <= 2.0


def test_affordable_steps_by_counting():
    sigmas = [1.0 - k / 400 for k in range(200)]
    steps = affordable(sigmas, target(1.0), sampling="poisson", rate=0.01)
    fits, over = (proven(collate([gaussian(s) for s in sigmas[:k]]), DELTA, "add-remove") for k in (steps, steps + 2))
    assert fits.epsilon <= 1.0 < over.epsilon * 1.01
    assert affordable([100.0] * 7, target(1.0), sampling="poisson", rate=0.01) == 7
    assert affordable([0.05] * 7, target(0.1), sampling="poisson", rate=0.5) == 0


@pytest.mark.parametrize(("epsilon", "delta", "rate", "count"), [(1e4, 1e-15, 0.01, 1000), (1.0, 1e-15, 1e-4, 1000)])
def test_extreme_budgets_are_met(epsilon, delta, rate, count):
    for start in (1e-3, 1e6):
        factor = common_factor([start] * count, target(epsilon, delta), sampling="poisson", rate=rate)
        found = proven([(gaussian(start * factor, rate=rate), count)], delta, "add-remove").epsilon
        assert 0.9 * epsilon <= found <= epsilon


def test_a_budget_that_needs_no_noise_says_so():
    with expect_refusal(key="epsilon", value="1", remedy=True):
        common_factor([1.0] * 10, target(1.0, 1e-3), sampling="poisson", rate=1e-6)


def test_an_impossible_budget_is_a_users_mistake():
    with expect_refusal(key="epsilon", value="-1"):
        target(-1)
    with expect_refusal(key="multipliers", names="empty"):
        affordable([], target(1.0), sampling="poisson", rate=0.1)
