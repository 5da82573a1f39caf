"""What a notebook shows: escaped, without a script, and no ε without what it is about."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.certificates import certificate

from gossamer.results.notebook import (
    fragment,
    outcome_html,
    outcome_text,
    plan_html,
    plan_text,
    quality,
)
from gossamer.results.terminal import Table
from gossamer.training.api import plan

RESULT = {
    "accuracy_mean": 0.875, "rounds": 20, "nodes": 8, "seconds": 1.5, "run_dir": "runs/<q>", "not_private": None,
}  # fmt: skip
TERMS = ("δ = 1e-05", "add-remove", "unit: one record of one node", "observer: everyone")


def test_everything_that_is_text_is_escaped() -> None:
    made = fragment("<t>", Table(["<h>"], [["<c>"], ["d"]], bold=1), notes=["<n>"])
    assert all(f"&lt;{x}&gt;" in made and f"<{x}>" not in made for x in "thcn")
    assert made.count("font-weight:bold") == 2  # the head and one row


def test_text_columns_line_up() -> None:
    assert str(Table(["a", "long"], [["wider", "x"]])) == "a      long\nwider  x"


def test_quality_says_what_it_is_and_whether_it_may_be_passed_on() -> None:
    assert quality(RESULT) == "accuracy 87.50%"
    assert quality({"rmse_mean": 0.25}) == "RMSE 0.25"
    assert quality({}) == ""
    assert quality({"not_private": {"because": "x", "accuracy_mean": 0.5}}) == "accuracy 50.00% (not private)"


def test_a_plan_shows_its_nodes_and_how_epsilon_grows() -> None:
    planned = plan("quickstart", {"rounds": 4, "nodes": 4})
    for text in (plan_text(planned), plan_html(planned)):
        assert "dyn-d2p, mode sound, 4 nodes, 4 rounds" in text
        assert all(
            term in text for term in ("δ = ", "add-remove", "unit: one record of one node", "observer: everyone")
        )
    html = plan_html(planned)
    assert "1–3" in html
    assert "<svg" in html
    assert "<script" not in html


def test_an_outcome_shows_its_statement_and_how_epsilon_grew(tmp_path: Path) -> None:
    rows = [{"round": r, "epsilon_claimed": None, "epsilon_proven": r / 10, "accuracy_mean": 0.5} for r in (10, 20)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = certificate(epsilon_proven=2.0)
    html, text = outcome_html(RESULT, made, tmp_path), outcome_text(RESULT, made)
    assert "accuracy 87.50%" in html
    assert "accuracy 87.50%" in text
    assert all(term in text and term in html for term in TERMS)
    assert "runs/&lt;q&gt;" in html
    assert html.count("<svg") == 1
    assert "<svg" not in outcome_html(RESULT, made, tmp_path / "elsewhere")
