"""A batch of cells: checked before anything is written, and never into a folder of something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from tests.support.configurations import configured
from tests.support.own_records import on_table, write_table
from tests.support.refusals import expect_refusal

from gossamer.accounting.recompute import worst_epsilon
from gossamer.results.terminal import Table, terminal
from gossamer.studies import cells as module
from gossamer.studies.cells import Cell, Display, Row, alone_in
from reproductions.known import finished_rows

FIXED: dict[str, Any] = {"rounds": 2, "privacy__epsilon": None, "privacy__noise__multiplier": 50.0}


def row(label: str = "quickstart", seeds: int = 1, **changes: Any) -> Row:
    cells = [Cell(configured(**FIXED, seed=seed, **changes), f"{label} {seed}") for seed in range(seeds)]
    return Row(label, {}, None, tuple(cells))


def run(rows: list[Row], out: Path, jobs: int | None = 1) -> module.Batch:
    return module.run_rows(rows, out, jobs=jobs, data_dir=None, quiet=True)


def test_mistakes_are_found_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with expect_refusal(key="--jobs", value="0", names="1", remedy=True):
        run([row()], out, jobs=0)
    with expect_refusal(key="privacy.clip.kind", value="none"):
        run([row(), row("the second", privacy__clip={"kind": "none"})], out)
    assert not out.exists()
    (tmp_path / "thesis.txt").write_text("precious")
    with expect_refusal(key="--out", names="comparison", remedy=True):
        run([row()], tmp_path)
    with expect_refusal(key="--as-is", names="comparison"):
        finished_rows([row()], tmp_path)


def fake_cells(monkeypatch: pytest.MonkeyPatch, failing: str = "") -> list[str]:
    """Cells that write their files at once."""
    from gossamer.results.rundir import RunDirectory

    ran: list[str] = []

    def work(cells: list[Cell], out: Path, *rest: Any, **options: Any) -> dict[str, str]:
        failed = {}
        for cell in cells:
            ran.append(cell.label)
            if cell.label == failing:
                failed[cell.name] = "no room"
                continue
            made = RunDirectory.create(out / "cells" / cell.name)
            made.write_config(cell.config.model_dump())
            made.append_metrics({"round": 2, "seed": cell.config.seed})
            made.write_json("certificate.json", {"epsilon_proven": 1.0})
        return failed

    monkeypatch.setattr("gossamer.studies.cells.run_cells", work)
    monkeypatch.setattr(Cell, "verify", lambda cell, out: None)
    return ran


def test_a_batch_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, rows = tmp_path / "out", [row(seeds=3), row(seeds=3)]  # the same cells twice are run once
    ran = fake_cells(monkeypatch, failing="quickstart 1")
    first = run(rows, out)
    assert ran == ["quickstart 0", "quickstart 1", "quickstart 2"]
    assert (first.ran, first.kept, first.failed) == (3, 0, {"quickstart 1": "no room"})
    assert [[found["seed"] for found in line] for line in first.results] == [[0, 2], [0, 2]]
    as_is = finished_rows(rows, out)
    assert (as_is.ran, [len(line) for line in as_is.results]) == (0, [2, 2])
    again = fake_cells(monkeypatch)
    second = run(rows, out)
    assert again == ["quickstart 1"]
    assert (second.ran, second.kept, second.failed) == (1, 2, {})
    mark = json.loads((out / module.MARK).read_text())
    assert [cell["label"] for cell in mark["rows"][0]["cells"]] == [f"quickstart {seed}" for seed in range(3)]
    assert second.summary["cells_kept"] == 2


@pytest.mark.slow
def test_cells_on_own_records_share_an_account_and_its_cap(tmp_path: Path) -> None:
    """The composition over cells, not only each cell's own ε; and none begins where all would pass the cap."""
    table = write_table(tmp_path / "all.csv")
    (tmp_path / "study.toml").write_text(tomli_w.dumps(on_table(table)))
    rows = module.lay_out([str(tmp_path / "study.toml")], overs={"algorithm.lr": [0.1, 0.2]})
    found = module.run_rows(rows, tmp_path / "out", jobs=1, data_dir=None, quiet=True)
    ledgers = sorted((tmp_path / "out" / "cells").iterdir())
    assert found.summary["budget"]["epsilon"] == pytest.approx(worst_epsilon(ledgers), rel=1e-9)
    assert found.summary["budget"]["epsilon"] > 1.4 > max(r[0]["epsilon_proven"] for r in found.results)
    assert (found.summary["budget"]["runs"], found.summary["budget"]["epsilon_before"]) == (2, 0.0)
    more = module.lay_out(
        [str(tmp_path / "study.toml")], sets={"privacy.cap": 2.0}, overs={"algorithm.lr": [0.3, 0.4, 0.5]}
    )
    with expect_refusal("privacy.cap", 2):
        module.run_rows(more, tmp_path / "more", jobs=1, data_dir=None, quiet=True)
    assert not (tmp_path / "more").exists()
    # What is finished is taken as it was signed, or not at all.
    metrics = next(path / "metrics.jsonl" for path in ledgers)
    metrics.write_text(metrics.read_text().replace('"round"', '"round" ', 1))
    for take in (lambda: run(rows, tmp_path / "out"), lambda: finished_rows(rows, tmp_path / "out")):
        with expect_refusal("metrics.jsonl", remedy=True):
            take()


def test_cells_of_the_same_records_come_one_after_another() -> None:
    """A cache holds one data set: cells that take turns would have them read again every time."""
    kinds = [("a", "mnist"), ("b", "fashion-mnist"), ("c", "mnist"), ("d", "fashion-mnist")]
    cells = [cell for label, kind in kinds for cell in row(label, seeds=2, data__kind=kind).cells]
    ordered = module.by_records(cells, None)
    assert [cell.label for cell in ordered] == ["a 0", "a 1", "c 0", "c 1", "b 0", "b 1", "d 0", "d 1"]


def test_a_folder_is_one_comparisons(tmp_path: Path) -> None:
    with (
        alone_in(tmp_path),
        expect_refusal(key="--out", names="comparison", remedy=True),
        alone_in(tmp_path),
    ):
        pass
    with alone_in(tmp_path):
        pass


CELL = Cell(configured(rounds=6), "[a] cell")


@pytest.mark.parametrize(
    ("result", "error", "says"),
    [
        ({}, "no room", "failed: no room"),
        ({"consensus_distance": 0.1, "accuracy_mean": 0.5, "seconds": 2.0}, None, "accuracy 50.00%, 2.0 s"),
        ({"consensus_distance": 0.1, "rmse_mean": 0.25, "seconds": 2.0}, None, "RMSE 0.25, 2.0 s"),
        ({"consensus_distance": None, "accuracy_mean": 0.5, "seconds": 2.0}, None, "diverged, 2.0 s"),
        ({"consensus_distance": 0.1, "seconds": 2.0}, None, "done, 2.0 s"),
    ],
)
def test_a_cell_ends_in_one_line(
    result: dict[str, Any], error: str | None, says: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(Cell, "result", lambda cell, out: result)
    with Display(Path("out"), 3, quiet=False) as display:
        display.started(CELL)
        display.tick()
        display.done(CELL, error)
    assert capsys.readouterr().out == f"1/3  [a] cell: {says}\n"


def test_with_json_all_of_it_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(Path("out"), 3, quiet=True) as display:
        display.say("2 cells")
    Table(("method", "ε"), (("x", "1"),), ("a caption",)).show(terminal(to_stderr=True))
    out = capsys.readouterr()
    assert out.out == ""
    assert "a caption" in out.err
