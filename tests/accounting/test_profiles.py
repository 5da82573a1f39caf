import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from tests.support.refusals import expect_refusal
from tests.support.releases import composed_delta

from gossamer.accounting.profiles import Noise, gaussian, gdp_delta, laplace
from gossamer.methods.claims import km_noise
from reproductions.noises import exact_delta, exact_epsilon
from reproductions.noises import variance as variance_of

NOISES = [
    gaussian(1.0),
    gaussian(1.0, 2.5),
    laplace(2.0),
    laplace(1.3, 4.0),
    Noise(1.5, 1.5, 3.0),
    Noise(1.5, 4.0),
    Noise(0.8, 0.7, 5.0),
]


def density(noise, z):
    reach = noise.reach()
    total = 2 * quad(lambda t: math.exp(-((t / noise.scale) ** noise.shape)), 0, reach, limit=400)[0]
    return math.exp(-((abs(z) / noise.scale) ** noise.shape)) / total if abs(z) <= noise.bound else 0.0


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_the_profile_is_the_integral(noise, epsilon):
    shift = 0.9
    reach = min(noise.reach(), 30.0)
    points = sorted({-reach, shift - reach, 0.0, shift / 2, shift, reach, shift + reach})
    x = np.concatenate([np.linspace(a, b, 20001)[1:] for a, b in itertools.pairwise(points)])
    middle = (x[1:] + x[:-1]) / 2
    scale = density(noise, 0.0)

    def values(z):
        inside = np.abs(z) <= noise.bound
        return scale * np.exp(-((np.abs(z) / noise.scale) ** noise.shape)) * inside

    gain = values(middle - shift) - math.exp(epsilon) * values(middle)
    expected = float(np.sum(np.maximum(gain, 0) * np.diff(x)))
    assert exact_delta(noise, shift, epsilon) == pytest.approx(expected, rel=2e-3, abs=1e-6)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_masses_and_variance_by_quadrature(noise):
    reach = min(noise.reach(), 60.0)
    inside = quad(lambda z: density(noise, z), 0.2, 1.1, limit=200)[0]
    assert float(noise.between(np.array(0.2), np.array(1.1))) == pytest.approx(inside, rel=1e-6)
    across = quad(lambda z: density(noise, z), -0.4, 1.1, points=[0.0], limit=200)[0]
    assert float(noise.between(np.array(-0.4), np.array(1.1))) == pytest.approx(across, rel=1e-5)
    variance = 2 * quad(lambda z: z * z * density(noise, z), 0, reach, limit=400)[0]
    assert variance_of(noise) == pytest.approx(variance, rel=1e-5)


def test_a_gaussian_is_a_gaussian():
    assert variance_of(gaussian(2.0)) == pytest.approx(4.0)
    for epsilon in (0.0, 0.5, 2.0):
        assert exact_delta(gaussian(2.0), 1.0, epsilon) == pytest.approx(gdp_delta(0.5, epsilon), rel=1e-9)
    assert gaussian(2.0).identifying(1.0) == 0.0


def test_theorem_6_is_false():
    """The truncated Gaussian prescribed for (0.5, 10⁻³) has δ = 0.238."""
    noise = gaussian(*km_noise("truncated-gaussian", 0.5, 1e-3, 1.0))
    assert noise.identifying(1.0) == pytest.approx(1e-3, rel=1e-6)
    assert exact_delta(noise, 1.0, 0.5) == pytest.approx(0.238, abs=5e-4)


def test_the_truncated_laplace_is_right_for_one_release():
    scale, bound = km_noise("truncated-laplace", 0.5, 1e-3, 1.0)
    assert exact_delta(laplace(scale, bound), 1.0, 0.5) == pytest.approx(1e-3, rel=1e-6)
    assert exact_epsilon(laplace(scale, bound), 1.0, 1e-3 * (1 + 1e-6)) == pytest.approx(0.5, rel=1e-5)


def test_bounded_noise_composes_badly():
    """500 rounds in 20 dimensions: the mass that identifies a record outright reaches 0.84."""
    noise = laplace(*km_noise("truncated-laplace", 0.5, 1e-3, 1.0))
    assert noise.identifying(1 / math.sqrt(20), 500 * 20) == pytest.approx(0.84, abs=0.01)


def test_composition_keeps_the_identifying_mass():
    noise = laplace(*km_noise("truncated-laplace", 0.5, 1e-3, 1.0))
    identifying = noise.identifying(1.0, 50)
    for epsilon in (1.0, 5.0, 50.0):
        assert composed_delta(noise, [1.0] * 50, epsilon) >= identifying * (1 - 1e-9)
    assert composed_delta(noise, [1.0] * 50, 50.0) == pytest.approx(identifying, rel=1e-3)
    assert composed_delta(gaussian(2.0), [0.5, 0.5, -0.5, 0.5], 0.5) == pytest.approx(gdp_delta(0.5, 0.5), rel=5e-3)
    assert exact_epsilon(noise, 1.0, 1e-4) == math.inf


def test_wrong_noise_is_refused():
    with expect_refusal(key="bound", value="-2.0"):
        laplace(1.0, -2.0)
