"""The verdict of an audit in words."""

from __future__ import annotations

from tests.support.certificates import audit, certificate, movement, search

from gossamer.results.words import trials, verdict


def test_a_verdict_names_what_is_broken_and_only_that() -> None:
    quiet = certificate(epsilon_audited=0.7, audit=audit(), violation=False)
    assert verdict(quiet) == "No violation found: the attack shows ε ≥ 0.7 at 0.95 confidence."
    loud = certificate(epsilon_audited=2.0, audit=audit(), violation=True, violated=["claimed"])
    assert verdict(loud) == ("Violation: the attack shows ε ≥ 2 at 0.95 confidence, above the claimed ε = 1.25.")


def test_a_verdict_says_what_was_attacked_and_that_nothing_was_trained() -> None:
    drawn = audit(attacked="the mechanism alone (no model was trained)", trained=False)
    quiet = certificate(epsilon_audited=0.7, audit=drawn, violation=False)
    assert verdict(quiet).startswith("No violation found: the attack on the mechanism alone (no model was trained)")
    assert trials(drawn) == "4,000 draws of the mechanism, in one dimension, in 1.5 s; no model was trained"
    assert trials(audit(trained=True)).startswith("4,000 trainings in 1.5 s")


TEST = {
    "name": "rates, whole curve", "says": "an event in 60% & 40%", "violated": True, "confidence": 0.95, "rests_on": "coins",
}  # fmt: skip


def test_what_is_outside_of_the_whole_curve_is_said_with_the_one_point_beside_it() -> None:
    whole = {"curve_tests": [TEST], "proven_curve": [(0.0, 0.3), (2.5, 1e-5)]}
    loud = certificate(
        epsilon_audited=0.7, violation=True, violated=["proven"], audit=audit(**whole, above_one_point=[])
    )
    assert verdict(loud) == (
        "Violation: the attack is outside of what is proven at 0.95 confidence: an event in 60% & 40%. "
        "The one point (ε, δ) alone would not tell: the attack shows ε ≥ 0.7 at 0.95 confidence."
    )
    both = {**loud, "violated": ["claimed", "proven"], "epsilon_audited": 2.0}
    assert "ε ≥ 2 at 0.95 confidence, above the claimed ε = 1.25." in verdict(both)
    kept = audit(**{**whole, "curve_tests": [{**TEST, "violated": False}]}, above_one_point=[])
    quiet = certificate(epsilon_audited=0.7, violation=False, audit=kept)
    assert verdict(quiet).endswith("It is inside of the whole proven curve.")


def test_an_observer_who_holds_more_than_was_planned_for_is_told_both_figures() -> None:
    held = {
        "colluders": 2, "epsilon_proven": 2.0, "colluders_planned": 1, "epsilon_proven_as_planned": 1.25,
    }  # fmt: skip
    more = certificate(epsilon_audited=1.5, audit=audit(held_against=held), violation=False)
    assert verdict(more) == (
        "No violation found: the attack shows ε ≥ 1.5 at 0.95 confidence. This observer has the secrets of 2 nodes, "
        "more than was planned for. Proven is ε = 2 against it, by which it is judged, and ε = 1.25 against any 1, as "
        "planned. The attack shows more than the planned figure, which does not cover this observer."
    )
    fewer = {**held, "colluders": 0, "epsilon_proven": 1.0}
    said = verdict(certificate(epsilon_audited=0.5, audit=audit(held_against=fewer), violation=False))
    assert "has the secrets of 0 nodes. Proven is ε = 1 against it" in said
    assert "more than" not in said
    broken = certificate(epsilon_audited=2.5, audit=audit(held_against=held), violation=True, violated=["proven"])
    assert verdict(broken).startswith("Violation: the attack shows ε ≥ 2.5 at 0.95 confidence, above the proven ε = 2.")


def test_a_search_has_a_verdict_of_its_own_and_comes_first_where_it_is_broken() -> None:
    own = movement(place="its own node's sum", moved=7.123, priced=1.0)
    loud = certificate(epsilon_audited=0.7, audit=audit(sensitivity=search(own)), violated=["sensitivity"])
    assert verdict(loud) == (
        "Violation: one record moves its own node's sum by 7.123 bounds, where 1 is allowed: no ε printed for this "
        "module holds. By coins alone the attack shows ε ≥ 0.7 at 0.95 confidence."
    )
    quiet = certificate(epsilon_audited=0.7, audit=audit(sensitivity=search(broken=False)), violated=[])
    assert verdict(quiet) == (
        "No violation found: the attack shows ε ≥ 0.7 at 0.95 confidence. "
        "No record of 1,234 tried moves more than its bound."
    )
    alone = certificate(audit=audit(bounds=[], sensitivity=search()), violated=["sensitivity"])
    assert verdict(alone).startswith("Violation: one record moves a later sum to a value that is not finite, where 0")
