"""The loss grid against sums that are written out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.accounting import law as grid
from gossamer.accounting.pairs import GaussianPair
from gossamer.accounting.profiles import gdp_delta


def test_a_window_counts_from_its_first_index():
    window = grid.Window(0.5, -3, 6, 1.0, 1.0)
    assert window.losses.tolist() == [-1.5, -1.0, -0.5, 0.0, 0.5, 1.0]
    assert window.top == 1.0


@settings(deadline=None, max_examples=15)
@given(st.floats(0.1, 3.0), st.floats(0.01, 1.0), st.sampled_from([0.05, 0.2]), st.booleans())
def test_connecting_the_dots_keeps_both_masses(mu, rate, h, reverse):
    """Σ m = P and Σ m e^{−loss} = Q: what is moved to the ends of a cell weighs the same under both."""
    cells = GaussianPair(mu, rate).cells(h, centred=False).turned(reverse)
    first, mass, infinite = grid.dots(cells, h)
    losses = h * (first + np.arange(len(mass)))
    assert (mass >= 0).all()
    assert mass.sum() == pytest.approx(cells.p.sum(), rel=1e-12)
    assert mass @ np.exp(-losses) == pytest.approx(cells.q.sum(), rel=1e-9)
    assert infinite == cells.p_only + cells.p_cut


def test_dots_lie_above_the_exact_profile():
    mu, h = 1.0, 0.1
    first, mass, infinite = grid.dots(GaussianPair(mu).cells(h, centred=False), h)
    losses = h * (first + np.arange(len(mass)))
    for epsilon in (0.0, 0.33, 1.5):
        found = infinite + mass @ np.maximum(0.0, -np.expm1(epsilon - losses))
        assert gdp_delta(mu, epsilon) - 1e-15 <= found <= gdp_delta(mu, epsilon) + h**2


def test_moments_of_two_losses_by_hand():
    losses, mass = np.array([-1.0, 2.0]), np.array([0.25, 0.75])
    for order in (0.5, 3.0):
        exact = math.log(0.25 * math.exp(-order) + 0.75 * math.exp(2 * order))
        assert grid.tilted(np.log(mass), losses, order)[1] == pytest.approx(exact, rel=1e-12)
        weights, scale = grid.tilted(np.log(mass), losses, order)
        assert scale == pytest.approx(exact, rel=1e-12)
        np.testing.assert_allclose(weights, mass * np.exp(order * losses - exact), rtol=1e-12)
    # where e^{tℓ} itself would overflow
    assert grid.tilted(np.log(mass), losses, 500.0)[1] == pytest.approx(1000 + math.log(0.75))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_power_of_the_spectrum_is_the_repeated_convolution(count):
    mass = np.array([0.2, 0.5, 0.3])
    exact = np.ones(1)
    for _ in range(count):
        exact = np.convolve(exact, mass)
    window = grid.Window(1.0, -count, 32, 1.0, 1.0)
    found = grid.back(grid.power(grid.transform(mass, 32), count), window, -count)  # losses −1, 0, 1
    np.testing.assert_allclose(found[: len(exact)], exact, atol=1e-15)
    np.testing.assert_allclose(found[len(exact) :], 0, atol=1e-15)
    error = np.abs(found[: len(exact)] - exact).max()
    assert error <= grid.rounding_error(32, count, count * float(np.linalg.norm(mass)))


def test_the_power_zero_is_no_loss_at_all():
    spectrum = grid.transform(np.array([0.2, 0.8]), 8)
    np.testing.assert_allclose(grid.back(grid.power(spectrum, 0), grid.Window(1, 0, 8, 1, 1), 0), np.eye(8)[0])


def test_a_mass_longer_than_the_circle_wraps_around():
    mass = np.arange(10.0)
    wrapped = np.array([0 + 4 + 8, 1 + 5 + 9, 2 + 6, 3 + 7], dtype=float)
    np.testing.assert_allclose(grid.transform(mass, 4), np.fft.rfft(wrapped))


def test_work_counts_points_filled_and_transformed():
    pair, window = GaussianPair(1.0), grid.Window(0.1, 0, 1000, 1.0, 1.0)
    work = grid.work_of([(pair, 5), (pair, 1)], window, 1e-9)
    assert work == pytest.approx(2 * (pair.extent(1e-9) / 0.1 + 1000))
