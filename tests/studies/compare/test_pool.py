"""Workers of a comparison: one that dies is named, and two comparisons do not share a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.configurations import configured

from gossamer.errors import UserError
from gossamer.studies.compare.grid import Cell
from gossamer.studies.compare.pool import Worker, alone_in, run_cells

# Answers every line with what the job's `out` says: an error, none, or its own end.
CHILD = """
import json, os, signal, sys
for line in sys.stdin:
    out = os.path.basename(json.loads(line)["out"])
    if out == "dies": os._exit(3)
    if out == "killed": os.kill(os.getpid(), signal.SIGKILL)
    print(json.dumps({"error": None if out == "fine" else out}), flush=True)
"""


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: Worker) -> Any:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    monkeypatch.setattr(Worker, "_start", start)


def test_a_worker_answers_dies_and_is_started_again(children: None, tmp_path: Path) -> None:
    with open(tmp_path / "log", "w") as log:
        worker = Worker(log)
        assert worker.run({"out": "fine"}) is None
        assert worker.run({"out": "a sentence"}) == "a sentence"
        assert worker.run({"out": "dies"}) == "its process ended with exit code 3."
        assert worker.run({"out": "fine"}) is None
        assert worker.run({"out": "killed"}) == "its process was ended by signal 9 (out of memory?)."
        worker.stop()
        assert worker.run({"out": "fine"}) == "it was stopped."


def test_a_cell_that_fails_stops_no_other(
    children: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [Cell(configured(rounds=6, seed=seed), f"cell {seed}") for seed in range(3)]
    places = dict(zip((cell.name for cell in made), ("fine", "no room", "fine"), strict=True))
    monkeypatch.setattr("gossamer.studies.compare.cells.folder", lambda out, cell: out / places[cell.name])
    started: list[str] = []
    done: list[tuple[str, str | None]] = []
    failed = run_cells(
        made, tmp_path, jobs=2, on_start=lambda cell: started.append(cell.label),
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
