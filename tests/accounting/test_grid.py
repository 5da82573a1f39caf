"""The loss grid against sums that are written out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.accounting import grid
from gossamer.accounting.gaussian import gdp_delta
from gossamer.accounting.pairs import GaussianPair


def test_a_window_counts_from_its_first_index():
    window = grid.Window(0.5, -3, 6, 1.0, 1.0)
    assert window.losses.tolist() == [-1.5, -1.0, -0.5, 0.0, 0.5, 1.0]
    assert window.top == 1.0


@settings(deadline=None, max_examples=15)
@given(st.floats(0.1, 3.0), st.floats(0.01, 1.0), st.sampled_from([0.05, 0.2]), st.booleans())
def test_connecting_the_dots_keeps_both_masses(mu, rate, h, reverse):
    """Σ m = P and Σ m e^{−loss} = Q: what is moved to the ends of a cell weighs the same under both."""
    cells = grid.turned(GaussianPair(mu, rate).cells(h, centred=False), reverse)
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
    losses, mass, orders = np.array([-1.0, 2.0]), np.array([0.25, 0.75]), [0.5, 3.0, 500.0]
    found = grid.log_moments(np.log(mass), losses, orders)
    exact = [math.log(0.25 * math.exp(-t) + 0.75 * math.exp(2 * t)) for t in orders[:2]]
    assert found[:2] == pytest.approx(exact, rel=1e-12)
    assert found[2] == pytest.approx(1000 + math.log(0.75))  # where e^{tℓ} itself would overflow


def test_moments_of_composed_gaussians_are_those_of_a_normal_loss():
    """The loss of μ is N(μ²/2, μ²), so log E e^{tℓ} = (t + t²) μ²/2 and log E e^{−tℓ} = (t² − t) μ²/2."""
    mu, count, orders = 0.8, 7, [0.5, 2.0]
    up, down = grid.loss_moments([(GaussianPair(mu), count)], 1e-3, False, orders)
    assert up == pytest.approx([count * (t + t * t) * mu**2 / 2 for t in orders], abs=1e-4)
    assert down == pytest.approx([count * (t * t - t) * mu**2 / 2 for t in orders], abs=1e-4)


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
    assert error <= grid.rounding_error(found, count + 1)


def test_the_power_zero_is_no_loss_at_all():
    spectrum = grid.transform(np.array([0.2, 0.8]), 8)
    np.testing.assert_allclose(
        grid.back(grid.power(spectrum, 0), grid.Window(1, 0, 8, 1, 1), 0), np.eye(8)[0]
    )


def test_a_mass_longer_than_the_circle_wraps_around():
    mass = np.arange(10.0)
    wrapped = np.array([0 + 4 + 8, 1 + 5 + 9, 2 + 6, 3 + 7], dtype=float)
    np.testing.assert_allclose(grid.transform(mass, 4), np.fft.rfft(wrapped))


def test_work_counts_points_filled_and_transformed():
    pair, window = GaussianPair(1.0), grid.Window(0.1, 0, 1000, 1.0, 1.0)
    assert grid.work_of([(pair, 5), (pair, 1)], window) == pytest.approx(2 * (pair.span / 0.1 + 1000))
