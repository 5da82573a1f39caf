"""The papers' formulas: references, conditions, and values by hand."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.integrate import quad
from tests.support.refusals import expect_refusal

from gossamer.accounting.profiles import gdp_epsilon, gdp_mu
from gossamer.methods import claims


def test_adad2p_as_in_the_paper():
    assert claims.adad2p_sigma(1.0, 2200, 3000, 1e-5) == pytest.approx(0.053, abs=5e-4)
    assert claims.adad2p_sigma(1.0, 3500, 2500, 1e-5) == pytest.approx(0.080, abs=5e-4)
    claim = claims.adad2p(claims.adad2p_sigma(0.7, 2200, 3000, 1e-5), 2200, 3000, 1e-5)
    assert claim.epsilon == pytest.approx(0.7)
    assert any("constant not in the paper" in flag for flag in claim.flags)
    assert claims.adad2p(0.0, 10, 10, 1e-5).epsilon == math.inf


def test_nonsense_is_refused_0():
    with expect_refusal(key="delta", value="2.0", remedy=True):
        claims.adad2p(0.1, 10, 10, 2.0)


CLAIMS = {
    "dyn-d2p": claims.dyn_d2p([0.2] * 10, 0.5, 1e-5),
    "adad2p": claims.adad2p(4.0, 0.01, 100, 1e-5),
    "dp-consensus": claims.rdp_sampled_gaussian(2.0, 0.01, 100, 1e-5),
    "without-replacement": claims.without_replacement(0.1, 1.0, 1e-5),
    "dp-dkm": claims.km("gaussian", 2.0, 1e-5, 1.0),
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_names_its_place_and_cannot_be_changed(claim):
    assert isinstance(claim, claims.Claim)
    assert claim.epsilon > 0
    assert any(character.isdigit() for character in claim.reference)  # a theorem, an equation, a year
    assert all(flag == flag.strip() and "\n" not in flag for flag in claim.flags)
    with pytest.raises(FrozenInstanceError):
        claim.epsilon = 0.1


def test_a_formula_may_give_no_figure():
    claim = claims.Claim(None, "Theorem 1")
    assert (claim.epsilon, claim.flags) == (None, ())


def test_rdp_of_the_sampled_gaussian():
    sigma = claims.rdp_noise_multiplier(1.0, 256 / 6000, 2000, 1e-5)
    claim = claims.rdp_sampled_gaussian(sigma, 256 / 6000, 2000, 1e-5)
    assert claim.epsilon == pytest.approx(1.0, rel=1e-6)
    assert "add/remove" in claim.flags[0]
    # at rate 1 a Gaussian's Rényi curve is α/(2σ²): never below the exact figure, and near it
    exact = gdp_epsilon(math.sqrt(4) / 5, 1e-5)
    assert exact <= claims.rdp_sampled_gaussian(5.0, 1.0, 4, 1e-5).epsilon <= 1.1 * exact


def test_km_theorem_1_term_by_term():
    steps, mixing, bound = [0.5, 0.4, 0.3, 0.2], 0.6, 2.0
    double = sum((1 + 2 * steps[k]) * sum(steps[j] * mixing ** (k - 1 - j) for j in range(k)) for k in range(4))
    expected = 2 * bound * sum(steps) / (100 * 5) + 4 * bound * double
    found = claims.km_sensitivity(bound, steps, 100, 5, mixing)
    assert found == pytest.approx(expected)


def test_km_noises():
    assert claims.km_noise("laplace", 0.5, 1e-3, 1.0) == (2.0, math.inf)
    scale, bound = claims.km_noise("truncated-laplace", 0.5, 1e-3, 1.0)
    assert (scale, bound) == (2.0, pytest.approx(2 * math.log(1 + (math.exp(0.5) - 1) / 2e-3)))
    sigma, bound = claims.km_noise("truncated-gaussian", 0.5, 1e-3, 1.0)
    assert sigma == pytest.approx(1.0)
    # the paper's two series are ∫₀^A and ∫_{A−Δ}^A of exp(−z²/s²), s² = Δ²/ε
    whole = quad(lambda z: math.exp(-z * z * 0.5), 0, bound)[0]
    last = quad(lambda z: math.exp(-z * z * 0.5), bound - 1, bound)[0]
    assert 0.5 * last / whole == pytest.approx(1e-3, rel=1e-8)


def test_nonsense_is_refused_1():
    with expect_refusal(key="delta", value="0.7", remedy=True):
        claims.km_noise("truncated-gaussian", 0.5, 0.7, 1.0)


@pytest.mark.parametrize("ratio", [0.3, 1.0, 2.0, 5.0])
def test_equation_8_spends_what_it_should(ratio):
    mu_0 = claims.initial_budget(0.3, 1 / 2500, 3500, ratio)
    mus = np.array([mu_0 * ratio ** (k / 3500) for k in range(3500)])
    assert pytest.approx(np.sum(np.exp(mus**2) - 1), rel=1e-9) == 2500**2 * 0.3**2
    assert np.allclose(claims.schedule(mu_0, 3500, ratio), mus)


def test_equation_9_is_equation_8_without_growth():
    flat = claims.uniform_budget(0.3, 1 / 2500, 3500)
    assert flat == pytest.approx(math.sqrt(math.log(2500**2 * 0.3**2 / 3500 + 1)))
    assert claims.initial_budget(0.3, 1 / 2500, 3500, 1.0) == pytest.approx(flat)


def test_equation_10_and_its_range():
    clips, shape = np.full(100, 2.0), np.full(100, 0.5)
    scale = claims.general_scale(clips, shape, 0.02, 0.2)
    assert scale == pytest.approx(0.02 / 0.2 * math.sqrt(2 * 100 * 16))
    with expect_refusal(key="eq.", names="μ_k 1.12"):
        claims.general_scale(clips, shape, 0.0005, 0.2)
    edge = claims.EQ10_LARGEST_MU
    assert math.exp(edge**2) - 1 <= 2 * edge**2 < math.exp((edge + 0.01) ** 2) - 1 + 0.02


def test_dyn_d2p_claims_the_budget_and_flags_the_limit():
    mus = claims.schedule(claims.initial_budget(gdp_mu(1.0, 1e-4), 1 / 2500, 3500, 5), 3500, 5)
    claim = claims.dyn_d2p(mus, 1 / 2500, 1e-4)
    assert claim.epsilon == pytest.approx(1.0, rel=1e-6)
    assert len(claim.flags) == 2
    assert "skewness" in claim.flags[1]
    mild = claims.dyn_d2p([0.2] * 1000, 0.5, 1e-5)
    assert len(mild.flags) == 1
    assert claims.dyn_d2p([40.0] * 3, 0.5, 1e-5).epsilon == math.inf


def test_nonsense_is_refused_2():
    with expect_refusal(key="rounds", value="0", remedy=True):
        claims.schedule(1.0, 0, 2.0)


def test_the_classical_gaussian_ends_at_one():
    sigma = claims.classical_gaussian_sigma(0.5, 1e-5, 2.0)
    assert sigma == pytest.approx(2 * math.sqrt(2 * math.log(1.25e5)) / 0.5)
    assert gdp_epsilon(2.0 / sigma, 1e-5) <= 0.5
    with expect_refusal(key="epsilon", value="1.5"):
        claims.classical_gaussian_sigma(1.5, 1e-5, 1.0)
    claim = claims.without_replacement(sigma, 2.0, 1e-5)
    assert claim.epsilon == pytest.approx(0.5)
    assert claim.flags == ()
    assert "ε < 1" in claims.without_replacement(0.1, 1.0, 1e-5).flags[0]


def test_lemma_4_and_its_condition():
    assert claims.lemma4_flags(0.1, 1.0) == ()
    assert "1/(2μ)" in claims.lemma4_flags(0.9, 1.0)[0]


@pytest.mark.parametrize("rate", [0.001, 0.04, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("sigma", [0.5, 0.8, 2.0, 7.8, 30.0])
def test_the_renyi_figure_is_dp_accountings(sigma, rate):
    one = GaussianDpEvent(sigma)
    for steps in (1, 100, 5000):
        accountant = RdpAccountant(claims.RDP_ORDERS.tolist())
        accountant.compose(one if rate == 1 else PoissonSampledDpEvent(rate, one), steps)
        expected = accountant.get_epsilon(1e-5)
        assert claims.rdp_sampled_gaussian(sigma, rate, steps, 1e-5).epsilon == pytest.approx(expected, rel=1e-9)
