"""The statement in words: no ε without δ, adjacency, unit and observer."""

from __future__ import annotations

import math

import pytest
from tests.support.certificates import certificate

from gossamer.results.certificate import NOT_COVERED, account, epsilon_text, statement


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"),
        (math.inf, "∞"),
        (0.0, "0"),
        (1.23456, "1.23"),
        (99.94, "99.9"),
        (123.4, "123"),
        (4.3e150, "4.3e+150"),
        (1e-4, "0.0001"),
    ],
)
def test_a_figure_in_three_digits(value: float | None, text: str) -> None:
    assert epsilon_text(value) == text


def test_the_statement_says_all_that_an_epsilon_needs() -> None:
    first, kinds, second, *rest = statement(certificate())
    assert first.startswith("proven ε = 2.5   claimed ε = 1.25   audited ε ≥ —")
    assert kinds == (
        "proven: by an accountant, from what is released; claimed: by a paper <eq. 3>; "
        "audited: not attacked (see gossamer audit)"
    )
    assert "(δ = 1e-05, add-remove, unit: one record of one node)" in first
    assert second == "observer: everyone"
    assert rest == ["about the claim: the claim is of one number"]


def test_no_privacy_is_said_first_and_a_missing_proof_has_its_reason() -> None:
    lines = statement(certificate(noise_source="seeded", epsilon_proven=None, not_proven_because="no clip"))
    assert lines[0].startswith("SEEDED NOISE: NO PRIVACY")
    assert "proven ε = —" in lines[1]
    assert "not proven: no clip" in lines


def test_what_is_not_covered_is_whole_sentences() -> None:
    for sentence in NOT_COVERED:
        assert sentence.endswith(".")
        assert "\n" not in sentence


def test_an_account_says_what_its_figure_is_of() -> None:
    spent = {
        "epsilon": 1.35, "runs": 2, "delta": 1e-5, "adjacency": "add-remove", "because": None, "provable": None,
        "unit": "a record", "observer": "everyone", "cap": 3.0, "unprotected": 0,
    }  # fmt: skip
    (line,) = account(spent)
    assert line.startswith("on these records: all 2 runs together: proven ε = 1.35; cap 3   (δ = 1e-05, add-remove, ")
    assert "unit: a record; observer: everyone" in line
    assert "of which 1 was spent before" in account({**spent, "epsilon_before": 1.0})[0]
    lines = account({**spent, "epsilon": None, "because": "a run: why", "provable": 0.5})
    assert lines[1] == "on these records nothing is proven any more: a run: why; without such runs ε = 0.5"
    assert len(account({**spent, "unprotected": 2})) == 2
    planned = {**spent, "account": "patients", "account_note": "it is new"}
    assert "'patients'" in account(planned)[0]
    assert account(planned)[1] == "their account: it is new"
    assert account(None) == account({**spent, "delta": None}) == []
    assert account(spent)[0] in statement(certificate(budget=spent))
