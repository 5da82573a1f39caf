import math

import pytest
from scipy.integrate import quad

from gossamer.accounting import claimed
from gossamer.errors import UserError


def test_km_theorem_1_term_by_term():
    steps, mixing, bound = [0.5, 0.4, 0.3, 0.2], 0.6, 2.0
    double = sum(
        (1 + 2 * steps[k]) * sum(steps[j] * mixing ** (k - 1 - j) for j in range(k)) for k in range(4)
    )
    expected = 2 * bound * sum(steps) / (100 * 5) + 4 * bound * double
    found, flags = claimed.km_sensitivity(bound, steps, 100, 5, mixing)
    assert found == pytest.approx(expected)
    assert "expected" in flags[0]


def test_km_theorem_4_takes_the_least_of_three():
    claim = claimed.km_composition([0.5] * 5, [1e-3] * 5, 1e-3)
    assert claim.epsilon == pytest.approx(2.5)  # the plain sum
    assert claim.delta is not None
    part = 1e-3 / (1 + math.exp(0.5))
    assert claim.delta == pytest.approx(2 - (1 - math.exp(-0.5) * part) ** 5 - (1 - part) ** 5)
    many = claimed.km_composition([0.01] * 10000, [0.0] * 10000, 1e-5)
    assert many.epsilon < 100 * 0.1
    assert many.delta == 0


def test_km_noises():
    assert claimed.km_laplace(0.5, 1.0) == 2.0
    scale, bound = claimed.km_truncated_laplace(0.5, 1e-3, 1.0)
    assert (scale, bound) == (2.0, pytest.approx(2 * math.log(1 + (math.exp(0.5) - 1) / 2e-3)))
    sigma, bound = claimed.km_truncated_gaussian(0.5, 1e-3, 1.0)
    assert sigma == pytest.approx(1.0)
    # the paper's two series are ∫₀^A and ∫_{A−Δ}^A of exp(−z²/s²), s² = Δ²/ε
    whole = quad(lambda z: math.exp(-z * z * 0.5), 0, bound)[0]
    last = quad(lambda z: math.exp(-z * z * 0.5), bound - 1, bound)[0]
    assert 0.5 * last / whole == pytest.approx(1e-3, rel=1e-8)


def test_nonsense_is_refused():
    with pytest.raises(UserError, match="must"):
        claimed.km_truncated_gaussian(0.5, 0.7, 1.0)
