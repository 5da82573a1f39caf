"""An audit on the terminal: its bounds, its verdict, and no ε without what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.certificates import audit, certificate, movement, search
from tests.support.refusals import expect_refusal

from gossamer.auditing.api import run_audit, show
from gossamer.results.terminal import terminal


def test_what_is_shown_has_the_bounds_the_verdict_and_the_terms(capsys: pytest.CaptureFixture[str]) -> None:
    found = certificate(epsilon_audited=0.7, violation=False, audit=audit(), audit_dir="a/[x]")
    show(found, terminal())
    out = capsys.readouterr().out
    for piece in (
        "observer: everyone", "4,000 coins: 4,000 trainings in 1.5 s (2,000,000 records/s)", "clopper-pearson",
        "note: x < y", "audited ε ≥ 0.7   (δ = 1e-05, add-remove, unit: one record of one node)", "No violation found",
        "in a/[x]: certificate.json, report.html",
    ):  # fmt: skip
        assert piece in out
    assert "NO PRIVACY" not in out
    show({**found, "stamp": "seeded noise: no privacy", "not_proven_because": "no clip"}, terminal())
    out = capsys.readouterr().out
    assert out.startswith("SEEDED NOISE: NO PRIVACY")
    assert "not proven: no clip" in out


def test_what_the_whole_curve_says_is_shown_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    test = {"name": "rates, whole curve", "says": "60% & 40%", "confidence": 0.95, "rests_on": "coins"}
    tests = [{**test, "violated": True}, {**test, "name": "guesses, whole curve", "violated": False}]
    found = certificate(
        epsilon_audited=0.7,
        violation=True,
        violated=["proven"],
        audit=audit(curve_tests=tests),
        audit_dir="a",
    )
    show(found, terminal())
    out = capsys.readouterr().out
    for piece in (
        "against the whole proven curve", "  outside: 60% & 40% (rates, whole curve, 0.95; rests on coins)",
        "  inside: 60% & 40% (guesses", "at one point, δ = 1e-05", "Violation: the attack is outside of what is proven",
        "alone would not tell: the attack shows ε ≥ 0.7",
    ):  # fmt: skip
        assert piece in out


def test_a_search_is_shown_within_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    searched = search(movement(place="its own node's sum", moved=7.123456, priced=1.0, broken=True))
    show(
        certificate(audit=audit(bounds=[], sensitivity=searched), violated=["sensitivity"], audit_dir="a"),
        terminal(),
    )
    out = capsys.readouterr().out
    assert "1,234 records tried in 2.5 s" in out
    assert "its own node's sum  7.12346     1 BROKEN" in out
    assert "a later sum         not finite  0 BROKEN" in out
    assert "its own node's sum: ones <labelled 3> (lot of 2)" in out
    assert "coins" not in out
    assert "no ε printed for this module holds" in out
    table = [line for line in out.splitlines() if "BROKEN" in line]
    assert max(map(len, table)) <= 80


def test_a_run_is_audited_as_it_was(tmp_path: Path) -> None:
    with expect_refusal(names="certificate.json TOML", remedy=True):
        run_audit(str(tmp_path), observer="all", runs=None)
    (tmp_path / "certificate.json").write_text("{}")
    (tmp_path / "config.toml").write_text(
        'nodes = 2\nrounds = 3\ndata = { kind = "digits" }\nmodel = { kind = "softmax" }\n'
        'topology = { kind = "complete" }\nalgorithm = { kind = "dp-dsgd", lr = 0.1 }\n'
    )
    with expect_refusal(key="--set", names="audit"):
        run_audit(str(tmp_path), sets=["rounds=4"], observer="all", runs=None)
