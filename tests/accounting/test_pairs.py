"""Dominating pairs: each against brute force, a density or its exact profile."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import dblquad

from gossamer.accounting.composer import Composition
from gossamer.accounting.pairs import GaussianPair, NoisePair
from gossamer.accounting.profiles import Noise, gaussian, laplace
from reproductions.noises import exact_delta


def normal(x, y, a, b):
    return math.exp(-((x - a) ** 2 + (y - b) ** 2) / 2) / (2 * math.pi)


@pytest.mark.parametrize(("v", "w"), [((1.2, 0.0), (0.0, 1.2)), ((1.2, 0.0), (0.5, -0.9)), ((0.7, 0.2), (-1.0, 0.6))])
@pytest.mark.parametrize("epsilon", [0.05, 0.4])
def test_opposite_contributions_are_the_worst_replacement(v, w, epsilon):
    """Poisson, replace-one: two contributions of at most C in any directions, by quadrature in the plane."""
    rate, c = 0.3, 1.2
    alpha = math.exp(epsilon)

    def excess(y, x):
        here = (1 - rate) * normal(x, y, 0, 0)
        return max(0.0, here + rate * normal(x, y, *v) - alpha * (here + rate * normal(x, y, *w)))

    found, _ = dblquad(excess, -6, 6, -6, 6, epsabs=2e-5)
    assert found <= Composition([(GaussianPair(c, rate, "two-sided"), 1)]).delta(epsilon, 1e-3) + 1e-4


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
def test_fixed_size_lots_by_brute_force(epsilon):
    """One of three records per lot, one record replaced: the true mixture never exceeds the swap pair."""
    x = np.linspace(-15, 15, 60001)
    rng = np.random.default_rng(0)
    bound = Composition([(GaussianPair(2.0, 1 / 3, "symmetrised"), 1)]).delta(epsilon, 1e-3)

    def density(values):
        return np.mean([np.exp(-((x - v) ** 2) / 2) for v in values], axis=0) / math.sqrt(2 * math.pi)

    worst = 0.0
    others = [rng.uniform(-1, 1, 2) for _ in range(20)] + [np.array([-1.0, -1.0])]
    for rest in others:
        for old, new in ((1.0, -1.0), (-1.0, 1.0), (0.3, -0.8)):
            gain = density([*rest, old]) - math.exp(epsilon) * density([*rest, new])
            worst = max(worst, float(np.sum(np.maximum(gain, 0)) * (x[1] - x[0])))
    assert worst <= bound + 1e-7  # the sum over x is that good
    assert worst == pytest.approx(bound, rel=1e-3)  # attained: all others at −C


def test_the_symmetrised_profile_is_the_larger_direction():
    pair = GaussianPair(1.5, 0.2)
    for epsilon in (-0.5, -0.1, 0.1, 0.5):
        both = Composition([(pair, 1)]).delta(epsilon, 1e-4)
        one = Composition([(GaussianPair(1.5, 0.2, "symmetrised"), 1)]).delta(epsilon, 1e-4)
        assert one == pytest.approx(both, rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.45])
def test_one_laplace_release_in_closed_form(epsilon):
    exact = -math.expm1((epsilon - 0.5) / 2)
    assert exact_delta(laplace(2.0), 1.0, epsilon) == pytest.approx(exact, rel=1e-9)
    upper = Composition([(NoisePair(laplace(2.0), 1.0), 1)]).delta(epsilon, 1e-3)
    assert exact <= upper <= exact + 3e-4


@pytest.mark.slow
@pytest.mark.parametrize("noise", [gaussian(1.0, 4.0), laplace(1.0, 6.0), Noise(1.2, 3.0, 2.5)], ids=str)
@pytest.mark.parametrize("kind", ["one-sided", "symmetrised"])
def test_sampled_truncated_noise_against_its_exact_profile(noise, kind):
    rate, shift = 0.1, 0.8
    pair = NoisePair(noise, shift, rate, kind)
    for epsilon in (0.05, 0.5, 2.0):
        exact = rate * exact_delta(noise, shift, math.log1p(math.expm1(epsilon) / rate))
        upper = Composition([(pair, 1)]).delta(epsilon, 1e-3)
        assert exact - 1e-12 <= upper <= exact * 1.01 + 1e-4
    found = Composition([(pair, 20)]).bounds(20 * rate * noise.identifying(shift) + 1e-3)
    assert found.lower <= found.upper <= 1.02 * found.lower + 0.01


@settings(deadline=None, max_examples=20)
@given(
    st.floats(0.1, 5.0),
    st.floats(0.01, 1.0),
    st.sampled_from(["one-sided", "two-sided", "symmetrised"]),
    st.sampled_from([0.02, 0.3]),
    st.booleans(),
)
def test_cells_hold_all_mass_and_the_loss_they_say(mu, rate, kind, h, centred):
    """Both masses add up to 1, and log(p/q) of every cell lies within its range."""
    cells = GaussianPair(mu, rate, kind).cells(h, centred=centred)
    assert cells.p.sum() + cells.p_only + cells.p_cut == pytest.approx(1, abs=1e-12)
    assert cells.q.sum() + cells.q_only + cells.q_cut == pytest.approx(1, abs=1e-12)
    some = (cells.p > 1e-200) & (cells.q > 1e-200)
    loss = np.log(cells.p[some] / cells.q[some])
    slack = (h / 2 if centred else 0) + 1e-6
    if kind == "symmetrised":  # what is left over lies at 0 and weighs the same under both
        some &= (cells.first != 0) | (cells.last != 0)
        loss = np.log(cells.p[some] / cells.q[some])
    assert (loss >= cells.first[some] * h - slack).all()
    assert (loss <= cells.last[some] * h + slack).all()


def test_turning_a_pair_around_exchanges_its_masses():
    cells = NoisePair(laplace(1.0, 3.0), 0.5, 0.2).cells(0.1, centred=False)
    turned = cells.turned(True)
    assert (turned.p_only, turned.q_only, turned.p_cut) == (cells.q_only, cells.p_only, cells.q_cut)
    np.testing.assert_array_equal(turned.first, -cells.last)
    np.testing.assert_array_equal(turned.turned(True).p, cells.p)


@pytest.mark.parametrize(
    ("pair", "both"),
    [
        (GaussianPair(1.0), False),  # its own mirror image
        (GaussianPair(1.0, 0.5), True),
        (GaussianPair(1.0, 0.5, "two-sided"), False),
        (GaussianPair(1.0, 0.5, "symmetrised"), False),
        (NoisePair(laplace(1.0), 1.0, 0.5, "symmetrised"), False),
    ],
)
def test_which_pairs_have_to_be_composed_both_ways(pair, both):
    assert pair.both_ways is both
    for tail in (1e-6, 1e-25):
        cells = pair.cells(0.1, centred=False, tail=tail)
        assert (cells.last.max() - cells.first.min()) * 0.1 <= 2 * pair.extent(tail) + 0.4
        assert cells.p_cut <= tail
        assert cells.q_cut <= tail


@pytest.mark.parametrize("rate", [0.5, 1e-5, 1e-9])
def test_outcomes_rise_with_the_loss_however_large_it_is(rate):
    """e^loss / q must not overflow: the mass at losses beyond would be lost from the upper bound."""
    cells = GaussianPair(500.0, rate).cells(2.0, centred=False, tail=1e-22)
    large = cells.first * 2.0 > 1000
    assert (cells.p >= 0).all()
    assert cells.p[large].sum() == pytest.approx(rate, rel=1e-9)
    pieces = GaussianPair(500.0, rate).pieces(1e-22)
    assert pieces.p[pieces.first > 1000].sum() == pytest.approx(rate, rel=1e-9)
