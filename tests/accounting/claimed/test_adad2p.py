import math

import pytest

from gossamer.accounting import claimed
from gossamer.errors import UserError


def test_adad2p_as_in_the_paper():
    assert claimed.adad2p_sigma(1.0, 2200, 3000, 1e-5) == pytest.approx(0.053, abs=5e-4)
    assert claimed.adad2p_sigma(1.0, 3500, 2500, 1e-5) == pytest.approx(0.080, abs=5e-4)
    claim = claimed.adad2p(claimed.adad2p_sigma(0.7, 2200, 3000, 1e-5), 2200, 3000, 1e-5)
    assert claim.epsilon == pytest.approx(0.7)
    assert any("constant not in the paper" in flag for flag in claim.flags)
    assert claimed.adad2p(0.0, 10, 10, 1e-5).epsilon == math.inf


def test_nonsense_is_refused():
    with pytest.raises(UserError, match="must"):
        claimed.adad2p(0.1, 10, 10, 2.0)
