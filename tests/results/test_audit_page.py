"""An audit for people: its verdict, and the region that (ε, δ) allows."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support.certificates import audit, certificate, movement, search

from gossamer.results.audit_page import most_hits, page, roc_picture, verdict


def test_the_region_drawn_is_that_of_the_definition() -> None:
    assert most_hits(0.0, 1.0, 1e-3) == pytest.approx(1e-3)
    assert most_hits(0.1, 0.0, 0.0) == pytest.approx(0.1)
    assert most_hits(0.1, 1.0, 0.0) == pytest.approx(0.1 * np.e)
    assert most_hits(1.0, 1.0, 0.0) == 1.0
    assert most_hits(1e-3, 1e6, 0.0) == 1.0


def brute_force(false_alarms: float, epsilon: float, delta: float) -> float:
    """The largest t with t ≤ e^ε f + δ and 1 − f ≤ e^ε (1 − t) + δ, on a grid."""
    rates = np.linspace(0, 1, 100_001)
    grow = np.exp(epsilon)
    allowed = (rates <= grow * false_alarms + delta) & (1 - false_alarms <= grow * (1 - rates) + delta)
    return float(rates[allowed].max())


def test_the_region_is_that_of_both_inequalities() -> None:
    for false_alarms in (0.0, 0.01, 0.2, 0.7, 1.0):
        for epsilon, delta in ((0.0, 0.0), (0.5, 1e-3), (2.0, 0.1)):
            assert most_hits(false_alarms, epsilon, delta) == pytest.approx(
                brute_force(false_alarms, epsilon, delta), abs=2e-5
            )


def test_a_verdict_names_what_is_broken_and_only_that() -> None:
    quiet = certificate(epsilon_audited=0.7, audit=audit(), violation=False)
    assert verdict(quiet) == "No violation found: the attack shows ε ≥ 0.7 at 0.95 confidence."
    loud = certificate(epsilon_audited=2.0, audit=audit(), violation=True, violated=["claimed"])
    assert verdict(loud) == (
        "Violation: the attack shows ε ≥ 2 at 0.95 confidence, above the claimed ε = 1.25."
    )


def test_the_declared_bound_comes_first_and_markup_is_text() -> None:
    text = page(certificate(epsilon_audited=0.7, audit=audit(), violation=False), "<i>run</i>")
    assert "<b>clopper-pearson</b>" in text
    assert "<b>one-run</b>" not in text
    assert "independent &lt;runs&gt;" in text
    assert "<i>run</i>" not in text
    assert text.count("<svg") == 2


def test_a_limit_that_does_not_exist_is_not_drawn() -> None:
    both = roc_picture(certificate(epsilon_audited=0.7, audit=audit()))
    one = roc_picture(certificate(epsilon_audited=0.7, audit=audit(), epsilon_proven=None))
    assert both.count("stroke-dasharray") == 2
    assert one.count("stroke-dasharray") == 1
    assert "proven ε" not in one


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
    assert verdict(alone).startswith("Violation: one record moves a later sum to what is not finite, where 0")


def test_a_page_of_a_search_alone_has_its_table_and_no_pictures() -> None:
    rounded = movement(place="another node's sum", moved=1e-4, rounding=2e-4, broken=False)
    searched = search(rounded, in_time=False, stopped="zeros: ValueError: <no>")
    text = page(certificate(audit=audit(bounds=[], sensitivity=searched), violated=["sensitivity"]), "run")
    assert "How far one record moves a sum" in text
    assert "ones &lt;labelled 3&gt;" in text
    assert "<td>0.0001<td>0 + 2e-04 rounding<td>" in text
    assert "to what is not finite" in text
    assert "cut short" in text
    assert "ValueError: &lt;no&gt;" in text
    assert "<svg" not in text
    both = page(
        certificate(epsilon_audited=0.7, audit=audit(sensitivity=searched), violated=["sensitivity"]), "run"
    )
    assert both.count("<svg") == 2
    assert "How far one record moves a sum" in both
