import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from gossamer.accounting import claimed
from gossamer.errors import UserError


@settings(deadline=None, max_examples=60)
@given(st.floats(0.01, 8.0), st.floats(0.0, 20.0))
def test_equation_4_is_the_integral(mu, epsilon):
    start = epsilon / mu + mu / 2

    def excess(z):
        return norm.pdf(z - mu) - math.exp(epsilon) * norm.pdf(z)

    expected = quad(excess, start, start + 40, epsabs=1e-14, limit=200)[0]
    assert claimed.gdp_delta(mu, epsilon) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.floats(0.05, 10.0), st.sampled_from([1e-2, 1e-5, 1e-9]))
def test_equation_4_inverts(epsilon, delta):
    mu = claimed.gdp_mu(epsilon, delta)
    assert claimed.gdp_delta(mu, epsilon) == pytest.approx(delta, rel=1e-8)
    assert claimed.gdp_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-7)


@pytest.mark.parametrize("ratio", [0.3, 1.0, 2.0, 5.0])
def test_equation_8_spends_what_it_should(ratio):
    mu_0 = claimed.initial_budget(0.3, 1 / 2500, 3500, ratio)
    mus = np.array([mu_0 * ratio ** (k / 3500) for k in range(3500)])
    assert pytest.approx(np.sum(np.exp(mus**2) - 1), rel=1e-9) == 2500**2 * 0.3**2
    assert np.allclose(claimed.schedule(mu_0, 3500, ratio), mus)


def test_equation_9_is_equation_8_without_growth():
    flat = claimed.uniform_budget(0.3, 1 / 2500, 3500)
    assert flat == pytest.approx(math.sqrt(math.log(2500**2 * 0.3**2 / 3500 + 1)))
    assert claimed.initial_budget(0.3, 1 / 2500, 3500, 1.0) == pytest.approx(flat)


def test_equation_10_and_its_range():
    clips, shape = np.full(100, 2.0), np.full(100, 0.5)
    scale, flags = claimed.general_scale(clips, shape, 0.02, 0.2)
    assert scale == pytest.approx(0.02 / 0.2 * math.sqrt(2 * 100 * 16))
    assert flags == ()
    with pytest.raises(UserError, match=r"μ_k ≤ 1\.12"):
        claimed.general_scale(clips, shape, 0.0005, 0.2)
    _, flags = claimed.general_scale(clips, shape, 0.0005, 0.2, strict=False)
    assert "1.12" in flags[0]
    edge = claimed.EQ10_LARGEST_MU
    assert math.exp(edge**2) - 1 <= 2 * edge**2 < math.exp((edge + 0.01) ** 2) - 1 + 0.02


def test_dyn_d2p_claims_the_budget_and_flags_the_limit():
    mus = claimed.schedule(claimed.initial_budget(claimed.gdp_mu(1.0, 1e-4), 1 / 2500, 3500, 5), 3500, 5)
    claim = claimed.dyn_d2p(mus, 1 / 2500, 1e-4)
    assert claim.epsilon == pytest.approx(1.0, rel=1e-6)
    assert len(claim.flags) == 2
    assert "skewness" in claim.flags[1]
    mild = claimed.dyn_d2p([0.2] * 1000, 0.5, 1e-5)
    assert len(mild.flags) == 1
    assert claimed.dyn_d2p([40.0] * 3, 0.5, 1e-5).epsilon == math.inf


def test_adad2p_as_in_the_paper():
    assert claimed.adad2p_sigma(1.0, 2200, 3000, 1e-5) == pytest.approx(0.053, abs=5e-4)
    assert claimed.adad2p_sigma(1.0, 3500, 2500, 1e-5) == pytest.approx(0.080, abs=5e-4)
    claim = claimed.adad2p(claimed.adad2p_sigma(0.7, 2200, 3000, 1e-5), 2200, 3000, 1e-5)
    assert claim.epsilon == pytest.approx(0.7)
    assert any("constant not in the paper" in flag for flag in claim.flags)
    assert claimed.adad2p(0.0, 10, 10, 1e-5).epsilon == math.inf


def test_rdp_of_the_sampled_gaussian():
    sigma = claimed.rdp_noise_multiplier(1.0, 256 / 6000, 2000, 1e-5)
    claim = claimed.rdp_sampled_gaussian(sigma, 256 / 6000, 2000, 1e-5)
    assert claim.epsilon == pytest.approx(1.0, rel=1e-6)
    assert "add/remove" in claim.flags[0]
    # at rate 1 a Gaussian's Rényi curve is α/(2σ²): never below the exact figure, and near it
    exact = claimed.gdp_epsilon(math.sqrt(4) / 5, 1e-5)
    assert exact <= claimed.rdp_sampled_gaussian(5.0, 1.0, 4, 1e-5).epsilon <= 1.1 * exact


def test_the_classical_gaussian_ends_at_one():
    sigma = claimed.classical_gaussian_sigma(0.5, 1e-5, 2.0)
    assert sigma == pytest.approx(2 * math.sqrt(2 * math.log(1.25e5)) / 0.5)
    assert claimed.gdp_epsilon(2.0 / sigma, 1e-5) <= 0.5
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


@pytest.mark.parametrize(
    "call",
    [
        lambda: claimed.gdp_mu(1.0, 0.0),
        lambda: claimed.gdp_mu(-1.0, 1e-5),
        lambda: claimed.adad2p(0.1, 10, 10, 2.0),
        lambda: claimed.schedule(1.0, 0, 2.0),
        lambda: claimed.km_truncated_gaussian(0.5, 0.7, 1.0),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(UserError, match="must"):
        call()
