import math

import pytest

from gossamer.accounting import claimed
from gossamer.accounting.gaussian import gdp_epsilon
from gossamer.errors import UserError


def test_the_classical_gaussian_ends_at_one():
    sigma = claimed.classical_gaussian_sigma(0.5, 1e-5, 2.0)
    assert sigma == pytest.approx(2 * math.sqrt(2 * math.log(1.25e5)) / 0.5)
    assert gdp_epsilon(2.0 / sigma, 1e-5) <= 0.5
    with pytest.raises(UserError, match=r"epsilon = 1\.5"):
        claimed.classical_gaussian_sigma(1.5, 1e-5, 1.0)
    claim = claimed.without_replacement(sigma, 2.0, 1e-5)
    assert claim.epsilon == pytest.approx(0.5)
    assert claim.flags == ()
    assert "ε < 1" in claimed.without_replacement(0.1, 1.0, 1e-5).flags[0]


def test_lemma_4_and_its_condition():
    assert claimed.lemma4_sensitivity([0.1, 0.05], 1.0, 50, 1.0) == (pytest.approx(0.004), ())
    value, flags = claimed.lemma4_sensitivity([0.1, 0.9], 1.0, 50, 1.0)
    assert value == pytest.approx(0.036)
    assert "1/(2μ)" in flags[0]
