"""The composer against closed forms, dp-accounting and brute force: always above the truth, and close."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.accounting.composer import Composition
from gossamer.accounting.law import UpperLaw, Window
from gossamer.accounting.pairs import GaussianPair, Grouping, NoisePair
from gossamer.accounting.profiles import gdp_delta, gdp_epsilon, laplace

RELATIONS = {"one-sided": pld.NeighborRel.ADD_OR_REMOVE_ONE, "two-sided": pld.NeighborRel.REPLACE_ONE}


def library(mu, rate, kind, *, step):
    return pld.from_gaussian_mechanism(
        1 / mu,
        sampling_prob=rate,
        value_discretization_interval=step,
        neighboring_relation=RELATIONS[kind],
    )


@pytest.mark.parametrize("kind", ["one-sided", "two-sided"])
@pytest.mark.parametrize(("mu", "rate", "count"), [(1.0, 0.1, 50), (0.5, 1.0, 20), (2.0, 0.003, 300)])
def test_the_same_grid_gives_the_librarys_profile(kind, mu, rate, count):
    step = 5e-3
    theirs = library(mu, rate, kind, step=step).self_compose(count)
    ours = Composition([(GaussianPair(mu, rate, kind), count)])
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
        expected = theirs.get_delta_for_epsilon(epsilon)
        if expected > 1e-8:
            assert ours.delta(epsilon, step) == pytest.approx(expected, rel=1e-5)


@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.floats(0.02, 2.0), min_size=1, max_size=5),
    st.integers(1, 60),
    st.sampled_from([1e-3, 1e-5, 1e-8]),
)
def test_full_batch_gaussians_are_bracketed_exactly(mus, count, delta):
    found = Composition([(GaussianPair(mu), count) for mu in mus]).bounds(delta)
    exact = gdp_epsilon(math.sqrt(count * sum(mu * mu for mu in mus)), delta)
    assert found.lower <= exact * (1 + 1e-6)
    assert found.upper >= exact * (1 - 1e-9)
    assert found.upper - found.lower <= 0.0101 * max(found.upper, 0.01)


@settings(deadline=None, max_examples=10)
@given(
    st.floats(0.2, 4.0),
    st.floats(5e-4, 0.5),
    st.integers(1, 500),
    st.sampled_from(["one-sided", "two-sided"]),
    st.sampled_from([1e-4, 1e-6]),
)
def test_the_bounds_hold_the_librarys_figure(mu, rate, count, kind, delta):
    """The library's figure is an upper bound on the truth, its grid finer or coarser than ours."""
    found = Composition([(GaussianPair(mu, rate, kind), count)]).bounds(delta)
    theirs = library(mu, rate, kind, step=2e-3).self_compose(count).get_epsilon_for_delta(delta)
    assert found.lower <= theirs * (1 + 1e-6) + 1e-6
    assert found.upper - found.lower <= 0.0101 * max(found.upper, 0.01)


@settings(deadline=None, max_examples=40)
@given(
    st.floats(0.05, 6.0),
    st.floats(1e-4, 1.0),
    st.floats(-0.5, 5.0),
    st.sampled_from([1e-2, 1e-3]),
    st.sampled_from(["one-sided", "symmetrised"]),
)
def test_one_sampled_step_is_never_below_its_exact_profile(mu, rate, epsilon, step, kind):
    """δ(ε) = q δ_μ(log(1 + (e^ε − 1)/q)) and, for (Q, P), 1 − e^ε + e^ε δ(−ε)."""

    def forward(e):
        moved = 1 + math.expm1(e) / rate
        return -math.expm1(e) if moved <= 0 else rate * gdp_delta(mu, math.log(moved))

    exact = max(forward(epsilon), -math.expm1(epsilon) + math.exp(epsilon) * forward(-epsilon))
    found = Composition([(GaussianPair(mu, rate, kind), 1)]).delta(epsilon, step)
    assert found >= exact - 1e-13
    assert found <= exact + 2 * step * min(1.0, mu + rate)


@pytest.mark.parametrize("kind", ["one-sided", "two-sided"])
def test_many_different_sigmas_against_the_library(kind):
    rng = np.random.default_rng(3)
    mus = np.exp(rng.uniform(math.log(0.5), math.log(3.0), 16))
    theirs = None
    for mu in mus:
        one = library(mu, 0.01, kind, step=2e-3)
        theirs = one if theirs is None else theirs.compose(one)
    found = Composition([(GaussianPair(float(mu), 0.01, kind), 1) for mu in mus]).bounds(1e-5)
    expected = theirs.get_epsilon_for_delta(1e-5)
    assert found.lower <= expected
    assert found.upper == pytest.approx(expected, rel=0.012)
    assert found.upper >= expected * (1 - 2e-3)  # theirs is an upper bound too, 2e-3 is its own grid


def test_a_window_too_small_is_paid_for_not_hidden():
    """The mass that wraps around is added to δ: the bound stays a bound, however bad the window."""
    mu, count = 0.5, 16
    for length in (40, 80, 160, 320):
        window = Window(0.02, -length // 4, length, 2.0, 2.0)
        law = UpperLaw(window, [(GaussianPair(mu), count)], False, 1e-19)
        for epsilon in (0.5, 2.0, 4.0):
            assert law.delta(epsilon) >= gdp_delta(mu * math.sqrt(count), epsilon)


def test_prefixes_agree_with_separate_runs():
    order = [GaussianPair(0.5 + k / 100, 0.05) for k in range(60)]
    marks = [1, 10, 30, 60]
    found = Composition([(p, 1) for p in order]).prefixes(order, marks, [0.0] * 4, 1e-5, 0.01)
    for k, upper in zip(marks, found, strict=True):
        alone = Composition([(p, 1) for p in order[:k]]).bounds(1e-5)
        assert upper >= alone.lower
        assert upper <= alone.upper * 1.05 + 0.01
    assert found == sorted(found)


def test_tiny_and_huge_losses_survive():
    assert Composition([(GaussianPair(1e-4, 0.01), 10)]).bounds(1e-5).upper == 0.0
    big = Composition([(GaussianPair(60.0), 3)]).bounds(1e-5)
    assert big.lower <= gdp_epsilon(60 * math.sqrt(3), 1e-5) <= big.upper
    assert Composition([(GaussianPair(40.0, 0.5), 2)]).bounds(1e-5).upper < 1e5
    assert Composition([(GaussianPair(45.0, 0.01, "two-sided"), 2)]).bounds(1e-3).upper < 1e5


def test_small_delta_with_sampling_has_the_figure_known_for_it():
    """q = 0.001, K = 10⁴, σ = 1, δ = 1e-10: 0.853, where the rounding of a plain transform is larger than δ."""
    found = Composition([(GaussianPair(1.0, 0.001), 10_000)]).bounds(1e-10, 0.002)
    assert found.upper == pytest.approx(0.853, abs=2e-3)
    assert found.lower == pytest.approx(0.853, abs=5e-3)
    assert found.lower <= found.upper


@pytest.mark.parametrize("delta", [1e-5, 1e-15])
@pytest.mark.parametrize(("mu", "rate"), [(0.5, 0.01), (1.0, 0.001), (0.01, 0.02)])
def test_the_bounds_meet_for_many_releases(mu, rate, delta):
    found = Composition([(GaussianPair(mu, rate), 20_000)]).bounds(delta)
    assert 0 < found.lower <= found.upper <= 1.02 * found.lower


EXTREMES = [  # μ, rate, count
    (1.0, 1e-9, 100_000), (500.0, 1e-9, 100_000), (500.0, 0.3, 100_000), (1000.0, 1e-9, 1), (1e-6, 0.5, 100_000),
    (1e-6, 1e-9, 1), (500.0, 1e-3, 3), (20.0, 0.9, 1),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["one-sided", "two-sided", "symmetrised"])
@pytest.mark.parametrize(("mu", "rate", "count"), EXTREMES)
def test_extremes_have_a_finite_figure(mu, rate, count, kind):
    """Between what one release costs exactly and what the same releases cost without sampling."""
    for delta in (0.4, 1e-5, 1e-15):
        found = Composition([(GaussianPair(mu, rate, kind), count)]).bounds(delta, 0.05)
        swap = 2 if kind == "two-sided" else 1
        assert found.lower <= found.upper <= gdp_epsilon(swap * mu * math.sqrt(count), delta) * 1.05 + 1e-6
        moved = 1 + math.expm1(min(found.upper, 600.0)) / rate
        if found.upper < 600:
            assert rate * gdp_delta(mu, math.log(moved)) <= delta * (1 + 1e-9)


def test_a_few_releases_that_hardly_ever_tell_anything_are_paid_from_delta():
    ordinary = (GaussianPair(1.0, 0.01), 500)
    rare = (GaussianPair(500.0, 1e-9), 3)
    alone, together = (Composition(pairs).bounds(1e-5) for pairs in ([ordinary], [ordinary, rare]))
    assert alone.lower <= together.upper <= alone.upper * 1.01
    dear = Composition([ordinary, rare]).bounds(1e-10)  # 3e-9 of records that are shown outright is more than that
    assert dear.upper > 1.2e5
    order = [GaussianPair(1.0, 0.01)] * 500 + [GaussianPair(500.0, 1e-9)] * 3
    curve = Composition([ordinary, rare]).prefixes(order, [500, 503], [0.0, 0.0], 1e-5, 0.01)
    assert curve == pytest.approx([together.upper] * 2, rel=0.01)


def test_nothing_is_spent_where_delta_covers_everything():
    assert Composition([(GaussianPair(1000.0, 1e-6), 1000)]).bounds(2e-3).upper == 0.0


@settings(deadline=None, max_examples=8)
@given(st.floats(0.1, 3.0), st.floats(1e-4, 0.3), st.integers(1, 2000), st.floats(-14, -3))
def test_more_noise_more_delta_and_fewer_steps_cost_less(mu, rate, count, exponent):
    def bounds(mu, count, exponent):
        return Composition([(GaussianPair(mu, rate), count)]).bounds(10**exponent, 0.02)

    found = bounds(mu, count, exponent)
    for less in (bounds(0.8 * mu, count, exponent), bounds(mu, max(1, count // 2), exponent),
                 bounds(mu, count, exponent + 1)):  # fmt: skip
        assert less.lower <= found.upper


def test_laplace_composes_as_in_the_library():
    theirs = pld.from_laplace_mechanism(2.0, value_discretization_interval=1e-3, sampling_prob=0.2)
    ours = Composition([(NoisePair(laplace(2.0), 1.0, 0.2), 40)])
    found = ours.bounds(1e-5)
    expected = theirs.self_compose(40).get_epsilon_for_delta(1e-5)
    assert found.lower <= expected
    assert found.upper == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1.0, 5.0])
def test_a_whole_schedule_against_the_library(ratio):
    """3,500 steps of Dyn-D²P at 40 groups, pessimistic in both; the library takes most of the time."""
    from gossamer.accounting.profiles import gdp_mu
    from gossamer.methods.claims import initial_budget, schedule

    rate, delta = 1 / 2500, 1e-4
    mus = schedule(initial_budget(gdp_mu(1.0, delta), rate, 3500, ratio), 3500, ratio)
    pairs = Grouping([(GaussianPair(float(mu), rate), 1) for mu in mus], 40).pessimistic()
    theirs = None
    for pair, count in pairs:
        one = library(pair.mu, rate, "one-sided", step=1e-3).self_compose(count)
        theirs = one if theirs is None else theirs.compose(one)
    found = Composition(pairs).bounds(delta, 0.002)
    expected = theirs.get_epsilon_for_delta(delta)
    assert found.upper == pytest.approx(expected, rel=3e-3)
    assert found.lower <= expected


def test_what_is_remembered_is_of_the_same_releases_only():
    """One more release, another δ or tolerance is composed anew; a pair that is listed twice counts twice."""
    pair, other = GaussianPair(0.3, 0.2), GaussianPair(0.31, 0.2)
    once = Composition([(pair, 40)]).bounds(1e-5)
    assert Composition([(pair, 40)]).bounds(1e-5) == once
    twice = Composition([(pair, 40), (pair, 40)]).bounds(1e-5)
    assert twice.upper == pytest.approx(Composition([(pair, 80)]).bounds(1e-5).upper, rel=0.01)
    assert twice.upper > 1.2 * once.upper
    assert Composition([(pair, 40), (other, 1)]).bounds(1e-5).upper > once.upper
    assert Composition([(pair, 40)]).bounds(1e-6).upper > once.upper
    rough = Composition([(pair, 40)]).bounds(1e-5, 0.2)
    assert rough.upper - rough.lower > once.upper - once.lower
