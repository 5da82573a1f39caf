"""Every paper's claim says where it stands, in sentences, and cannot be changed afterwards."""

from dataclasses import FrozenInstanceError

import pytest

from gossamer.accounting import claimed

CLAIMS = {
    "dyn-d2p": claimed.dyn_d2p([0.2] * 10, 0.5, 1e-5),
    "adad2p": claimed.adad2p(4.0, 0.01, 100, 1e-5),
    "dp-consensus": claimed.rdp_sampled_gaussian(2.0, 0.01, 100, 1e-5),
    "without-replacement": claimed.without_replacement(0.1, 1.0, 1e-5),
    "dp-dkm": claimed.km_composition([0.5] * 5, [1e-3] * 5, 1e-3),
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_names_its_place_and_cannot_be_changed(claim):
    assert isinstance(claim, claimed.Claim)
    assert claim.epsilon > 0
    assert any(character.isdigit() for character in claim.reference)  # a theorem, an equation, a year
    assert all(flag == flag.strip() and "\n" not in flag for flag in claim.flags)
    with pytest.raises(FrozenInstanceError):
        claim.epsilon = 0.1


def test_a_formula_may_give_no_figure():
    claim = claimed.Claim(None, "Theorem 1")
    assert (claim.epsilon, claim.flags, claim.delta) == (None, (), None)
