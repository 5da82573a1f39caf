import math

import numpy as np
import pytest

from gossamer.accounting import claimed
from gossamer.accounting.gaussian import gdp_mu
from gossamer.errors import UserError


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
    mus = claimed.schedule(claimed.initial_budget(gdp_mu(1.0, 1e-4), 1 / 2500, 3500, 5), 3500, 5)
    claim = claimed.dyn_d2p(mus, 1 / 2500, 1e-4)
    assert claim.epsilon == pytest.approx(1.0, rel=1e-6)
    assert len(claim.flags) == 2
    assert "skewness" in claim.flags[1]
    mild = claimed.dyn_d2p([0.2] * 1000, 0.5, 1e-5)
    assert len(mild.flags) == 1
    assert claimed.dyn_d2p([40.0] * 3, 0.5, 1e-5).epsilon == math.inf


def test_nonsense_is_refused():
    with pytest.raises(UserError, match="must"):
        claimed.schedule(1.0, 0, 2.0)
