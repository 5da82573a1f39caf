"""The named methods as data: every preset is whole, and fills in only what was left out."""

from __future__ import annotations

from typing import Any

import pytest

from gossamer.algorithms import RULES
from gossamer.config.layers import resolve
from gossamer.config.methods import MEANINGS, PRESETS, expand_preset, method_names, preset_of

BASE: dict[str, Any] = {
    "nodes": 4,
    "rounds": 10,
    "data": {"kind": "digits", "scale": "unit-ball"},
    "model": {"kind": "softmax"},
    "topology": {"kind": "ring"},
    "privacy": {"epsilon": 1.0},
}


@pytest.mark.parametrize("kind", PRESETS)
def test_a_preset_uses_a_rule_there_is_and_known_keys_only(kind: str) -> None:
    preset = PRESETS[kind]
    assert preset["rule"] in RULES
    assert set(preset) <= {"rule", "options", "privacy", "sound", "paper", "alone"}
    assert kind in MEANINGS
    for mode in ("sound", "paper"):
        privacy = expand_preset(kind, mode)["privacy"]
        assert {"clip", "noise", "sampling"} <= set(privacy)


def test_the_two_modes_of_adad2p() -> None:
    """Sound: a private quantile; paper: noise by the record's own norm, one sample by an independent trial."""
    sound, paper = (expand_preset("adad2p", mode)["privacy"] for mode in ("sound", "paper"))
    assert (sound["clip"]["kind"], paper["clip"]["kind"]) == ("quantile", "none")
    assert (sound["noise"]["schedule"]["kind"], paper["noise"]["schedule"]["kind"]) == (
        "constant",
        "own-norm",
    )
    assert paper["sampling"] == {"kind": "poisson", "lot": 1}
    assert "claim" not in sound  # the mechanism is not the paper's


def test_dyn_d2p_and_its_by_products_are_two_choices() -> None:
    chosen = {
        kind: (expand_preset(kind, "sound")["privacy"]["clip"]["kind"],
               expand_preset(kind, "sound")["privacy"]["noise"]["schedule"]["kind"])
        for kind in ("const-d2p", "dyn-c-d2p", "dyn-mu-d2p", "dyn-d2p")
    }  # fmt: skip
    assert chosen == {
        "const-d2p": ("constant", "constant"),
        "dyn-c-d2p": ("decaying", "constant"),
        "dyn-mu-d2p": ("constant", "growing-budget"),
        "dyn-d2p": ("decaying", "growing-budget"),
    }


def test_every_rule_is_reached_by_a_method() -> None:
    reached = {preset_of(name)["rule"] for name in method_names()}
    assert reached == set(RULES)
    assert len(set(method_names())) == len(method_names())


def test_a_rule_without_a_preset_gets_one_that_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "newcomer", "nowhere:Newcomer")
    assert method_names()[-1] == "newcomer"
    found = expand_preset("newcomer", "sound")
    assert found["algorithm"] == {"kind": "newcomer"}
    assert found["privacy"]["claim"] == "none"
    assert found["privacy"]["sampling"]["kind"] == "poisson"


def test_what_the_user_says_wins_over_the_preset() -> None:
    algorithm = {"kind": "dyn-d2p", "lr": 0.1}
    plain = resolve({**BASE, "algorithm": algorithm})
    assert (plain.privacy.clip.kind, plain.privacy.clip.ratio) == ("decaying", 3.0)
    said = resolve({**BASE, "algorithm": algorithm}, {"privacy.clip.ratio": 5.0})
    assert (said.privacy.clip.kind, said.privacy.clip.ratio) == ("decaying", 5.0)


def test_expanding_hands_out_data_of_its_own() -> None:
    """A caller that writes into what it got must not change the method for everyone."""
    before = repr(PRESETS)
    config = resolve({**BASE, "algorithm": {"kind": "dp-dsgd", "lr": 0.1}}, {"privacy.sampling.lot": 7})
    assert config.privacy.sampling.lot == 7
    assert repr(PRESETS) == before
