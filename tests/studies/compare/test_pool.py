"""Cells side by side: one that fails stops no other, and two comparisons do not share a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.children import scripted
from tests.support.configurations import configured

from gossamer.errors import UserError
from gossamer.studies.compare.grid import Cell
from gossamer.studies.compare.pool import alone_in, run_cells
from gossamer.studies.engine.local import Local


def test_a_cell_that_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch)
    made = [Cell(configured(rounds=6, seed=seed), f"cell {seed}") for seed in range(3)]
    places = dict(zip((cell.name for cell in made), ("fine", "no room", "fine"), strict=True))
    monkeypatch.setattr("gossamer.studies.compare.cells.folder", lambda out, cell: out / places[cell.name])
    started: list[str] = []
    done: list[tuple[str, str | None]] = []
    with Local(2).open(tmp_path / "errors.log", None) as executor:
        failed = run_cells(
            made, tmp_path, executor=executor, on_start=lambda cell: started.append(cell.label),
            on_done=lambda cell, error: done.append((cell.label, error)),
        )  # fmt: skip
    assert failed == {made[1].name: "no room"}
    assert sorted(started) == ["cell 0", "cell 1", "cell 2"]
    assert sorted(done, key=str) == [("cell 0", None), ("cell 1", "no room"), ("cell 2", None)]
    assert not (tmp_path / "errors.log").exists()  # nobody said anything


def test_a_folder_is_one_comparisons(tmp_path: Path) -> None:
    with (
        alone_in(tmp_path),
        pytest.raises(UserError, match="is in use by another comparison; wait for it"),
        alone_in(tmp_path),
    ):
        pass
    with alone_in(tmp_path):
        pass
