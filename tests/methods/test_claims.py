"""Rules of claims: what a budget buys costs that budget again, by formulas written out here."""

from __future__ import annotations

import math

import pytest
from scipy.stats import norm
from tests.support.refusals import expect_refusal

from gossamer.mechanism.clipping import Constant, Geometric, Schedule
from gossamer.mechanism.noise.base import OwnNorm
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.mechanism.noise.shaped import Laplace, TruncatedGaussian
from gossamer.mechanism.sampling import Poisson
from gossamer.methods.claims import CLAIMS, Draws, NoClaim

RATE, DELTA, K = 0.02, 1e-5, 1000


def run(shape: Schedule = Constant(1.0), ratio: float = 1.0) -> Draws:  # noqa: B008
    return Draws(K, shape, Gaussian(), Poisson(rate=RATE), ratio, 10)


RUNS = {
    "gdp-clt": run(Geometric(1.0, 1 / 4, K), 4.0),
    "gdp-clt-lot": Draws(K, Constant(1.0), Gaussian(), Poisson(lot=16.0), 1.0, 10),
    "gdp-general": run(Geometric(1.0, 1 / 2, K)),
    "adad2p": run(),
    "rdp": run(),
}


def test_every_rule_has_a_run() -> None:
    assert set(RUNS) == set(CLAIMS)


@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_the_noise_of_a_budget_is_claimed_to_cost_it(name: str, epsilon: float) -> None:
    rule, draws = CLAIMS[name], RUNS[name]
    factor, end = rule.noise(draws, RATE, epsilon, DELTA)
    assert end is None
    found = rule.claim(draws, factor, RATE, DELTA, K).epsilon
    assert found is not None
    if name == "gdp-general":  # eq. (10) takes e^x − 1 for up to 2x
        assert 0.6 * epsilon < found <= epsilon
    else:
        assert found == pytest.approx(epsilon, rel=0.01 if name == "rdp" else 1e-6)
    more = rule.claim(draws, 2 * factor, RATE, DELTA, K).epsilon
    assert more is not None
    assert more < epsilon


def test_dyn_d2ps_claim_is_its_central_limit_theorem() -> None:
    """μ = q √Σ (e^(μ_k²) − 1), and ε from δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2)."""
    found = CLAIMS["gdp-clt"].claim(RUNS["gdp-clt"], 2.0, RATE, DELTA, K).epsilon
    assert found is not None
    multipliers = [2.0 * 4 ** (-k / K) for k in range(K)]
    mu = RATE * math.sqrt(sum(math.expm1(z**-2) for z in multipliers))
    delta = norm.cdf(-found / mu + mu / 2) - math.exp(found) * norm.cdf(-found / mu - mu / 2)
    assert delta == pytest.approx(DELTA, rel=1e-6)


def test_a_lot_in_the_place_of_one_sample_is_the_formula_at_one_over_the_records() -> None:
    lots = RUNS["gdp-clt-lot"]
    found = CLAIMS["gdp-clt-lot"].claim(lots, 0.5, RATE, DELTA, K)
    assert found == CLAIMS["gdp-clt"].claim(lots, 0.5, RATE / 16, DELTA, K)
    with expect_refusal(key="privacy.claim", value="gdp-clt-lot", names="privacy.sampling.lot", remedy=True):
        CLAIMS["gdp-clt-lot"].noise(RUNS["gdp-clt"], RATE, 1.0, DELTA)


def test_rules_speak_of_gaussians() -> None:
    for rule in CLAIMS.values():
        assert rule.covers(Gaussian())
        assert rule.covers(OwnNorm())  # AdaD2P's own: Gaussian, of another size
        assert not rule.covers(Laplace())
        assert not rule.covers(TruncatedGaussian())


def test_equal_rules_are_equal() -> None:
    """A comparison's cells share the figures of equal rules."""
    assert len(set(CLAIMS.values())) == len(CLAIMS)
    assert all(type(rule)() == rule and hash(type(rule)()) == hash(rule) for rule in CLAIMS.values())


def test_no_claim_is_none_and_buys_nothing() -> None:
    rule = NoClaim("mine")
    assert rule.claim(run(), 1.0, RATE, DELTA, K).epsilon is None
    assert not rule.covers(Gaussian())
    with expect_refusal(key="algorithm.kind", value="mine"):
        rule.noise(run(), RATE, 1.0, DELTA)
