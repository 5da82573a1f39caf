import math

import pytest

from gossamer.accounting import claimed
from gossamer.accounting.gaussian import gdp_epsilon


def test_rdp_of_the_sampled_gaussian():
    sigma = claimed.rdp_noise_multiplier(1.0, 256 / 6000, 2000, 1e-5)
    claim = claimed.rdp_sampled_gaussian(sigma, 256 / 6000, 2000, 1e-5)
    assert claim.epsilon == pytest.approx(1.0, rel=1e-6)
    assert "add/remove" in claim.flags[0]
    # at rate 1 a Gaussian's Rényi curve is α/(2σ²): never below the exact figure, and near it
    exact = gdp_epsilon(math.sqrt(4) / 5, 1e-5)
    assert exact <= claimed.rdp_sampled_gaussian(5.0, 1.0, 4, 1e-5).epsilon <= 1.1 * exact
