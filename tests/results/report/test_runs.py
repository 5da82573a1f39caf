"""What a report reads of runs, finished or still growing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tests.support.refusals import expect_refusal

from gossamer.results.headline import of_an_evaluation
from gossamer.results.report import figures, page, read_runs


def test_equal_names_are_told_apart(runs: dict[str, Path], copy: Path) -> None:
    assert [run.label for run in read_runs([runs["plain"], copy])] == [
        "quickstart (plain)",
        "quickstart (copy)",
    ]


def test_a_line_that_is_being_written_is_not_read_and_a_finished_run_has_its_certificate(copy: Path) -> None:
    (whole,) = read_runs([copy])
    assert whole.certificate is not None
    assert (whole.quality, whole.budgets, whole.stamp, whole.warnings) == ("accuracy", [8.0], None, [])
    (copy / "certificate.json").unlink()
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_text("".join(lines[:2]) + lines[2][:30])
    (part,) = read_runs([copy])
    assert part.certificate is None
    assert part.metrics == whole.metrics[:2]


def test_why_figures_must_stay_here(runs: dict[str, Path], copy: Path) -> None:
    (seeded,) = read_runs([runs["seeded"]])
    assert seeded.stamp == "seeded noise: no privacy"
    assert any("not private" in reason for reason in seeded.warnings)
    rows = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    (copy / "metrics.jsonl").write_text("".join(json.dumps({**row, "hold_out": "ours"}) + "\n" for row in rows))
    (own,) = read_runs([copy])
    assert own.warnings == ["The hold-out is ours."]


def test_budgets_are_what_was_asked_for(copy: Path) -> None:
    (run,) = read_runs([copy])
    asked = {"privacy": {"epsilon": [2.0, 1.0, 2.0]}}
    assert replace(run, config=asked).budgets == [1.0, 2.0]
    assert replace(run, config={**asked, "baseline": "non-private"}).budgets == []
    assert replace(run, config={"privacy": {}}).budgets == []


def test_what_is_no_run_is_refused(copy: Path, tmp_path: Path) -> None:
    with expect_refusal(key="nowhere", names="directory"):
        read_runs([tmp_path / "nowhere"])
    (copy / "manifest.json").write_text("{")
    with expect_refusal(key="manifest.json", names="damaged"):
        read_runs([copy])


def test_figures_that_no_epsilon_covers_are_read_with_a_warning(copy: Path) -> None:
    rows = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    moved = [
        {
            **{key: value for key, value in row.items() if not of_an_evaluation(key)},
            "not_private": {
                "because": "local models are judged",
                **{k: v for k, v in row.items() if of_an_evaluation(k)},
            },
        }
        for row in rows
    ]
    (copy / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in moved))
    (run,) = read_runs([copy])
    assert run.quality == "accuracy"
    assert run.warnings == [
        "Accuracies, losses and distances are not private, no ε covers them: local models are judged."
    ]
    text = page([run])
    assert "(not private)</p>" in text
    assert "Do not pass this report on" in text
    assert {figure.title for figure in figures([run])} >= {
        "Accuracy (not private)",
        "Consensus distance (not private)",
    }
