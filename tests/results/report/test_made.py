"""`gossamer.report`: a page on disk, and what a notebook shows of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gossamer


def test_runs_and_outcomes_are_reported_side_by_side(runs: dict[str, Path], tmp_path: Path) -> None:
    outcome = SimpleNamespace(directory=runs["plain"])
    made = gossamer.report([outcome, str(runs["seeded"])], out=tmp_path / "r.html")
    assert made.path.read_text().startswith("<!doctype html>")
    assert [run.path for run in made.runs] == [runs["plain"], runs["seeded"]]
    assert made.unverified == ()
    html, text = made._repr_html_(), repr(made)
    for words in (html, text):
        for piece in (
            "proven ε",
            "dp-dsgt",
            "add-remove",
            "observer: everyone",
            "SEEDED NOISE: NO PRIVACY",
            str(made.path),
        ):
            assert piece in words
    assert "<b>ring</b>" in text
    assert "<b>ring</b>" not in html
    assert html.count("<polyline") == 2
    assert "<script" not in html


def test_one_run_need_not_be_a_list_and_what_does_not_verify_is_said(copy: Path) -> None:
    assert gossamer.report(copy).path == copy / "report.html"
    ledger = copy / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-20])
    made = gossamer.report(str(copy))
    assert len(made.unverified) == 1
    assert made.unverified[0] in repr(made)
