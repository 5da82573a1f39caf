"""The display of a comparison: a line for every cell, and text of users as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.configurations import configured

from gossamer.studies.compare.grid import Cell
from gossamer.studies.compare.progress import Display, show
from gossamer.studies.compare.table import Table

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
    monkeypatch.setattr("gossamer.studies.compare.cells.result", lambda out, cell: result)
    with Display(Path("out"), 3, quiet=False) as display:
        display.started(CELL)
        display.tick()
        display.done(CELL, error)
    assert capsys.readouterr().out == f"1/3  [a] cell: {says}\n"


def test_with_json_all_of_it_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(Path("out"), 3, quiet=True) as display:
        display.say("2 cells")
    table = Table(("method", "ε"), (("x", "1"),), ("a caption",))
    show(table, quiet=True)
    out = capsys.readouterr()
    assert out.out == ""
    assert "a caption" in out.err


def test_brackets_of_users_stay_in_header_rows_and_caption(capsys: pytest.CaptureFixture[str]) -> None:
    show(Table(("data.ranges[x]", "[b]"), (("[bold]1[/bold]", "y" * 150),), ("[c] as given",)), quiet=False)
    out = capsys.readouterr().out
    for piece in ("data.ranges[x]", "[b]", "[bold]1[/bold]", "y" * 150, "[c] as given"):
        assert piece in out
    assert "\\[" not in out
