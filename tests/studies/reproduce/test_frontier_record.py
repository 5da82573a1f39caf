"""The frontier's result file: what it has is not run again, and only while it is the same experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gossamer.config import recipes
from gossamer.studies.compare.grid import Cell, cells
from gossamer.studies.compare.statistics import summarise
from gossamer.studies.reproduce.frontier_record import Place, Shown, known_cells, write_cells

PLACE: Place = ("digits", 1.0, "pixels")


def runs(changes: dict[str, Any] | None = None, seeds: int = 2) -> dict[Place, tuple[Cell, ...]]:
    return {PLACE: cells(recipes.read("quickstart"), changes or {}, "digits, pixels, ε = 1", seeds)}


def shown(seeds: int) -> Shown:
    return Shown({**summarise([]), "seeds": seeds, "accuracy_mean": 0.5}, ["everyone"], False, 2.2)


def test_the_same_experiment_is_known_and_another_is_not(tmp_path: Path) -> None:
    name = "frontier/some"
    assert known_cells(tmp_path, name, runs()) == {}
    write_cells(tmp_path, name, "Some", runs(), {PLACE: shown(2)})
    (found,) = known_cells(tmp_path, name, runs()).values()
    assert (found.row, found.observers, found.replace_one) == (shown(2).row, ["everyone"], 2.2)
    assert found.commit
    assert known_cells(tmp_path, name, runs({"rounds": 7})) == {}
    assert known_cells(tmp_path, name, runs(seeds=3)) == {}
    assert known_cells(tmp_path, name, {("digits", 3.0, "pixels"): runs()[PLACE]}) == {}


def test_a_cell_keeps_the_commit_it_was_made_at_and_an_unfinished_one_is_left_out(tmp_path: Path) -> None:
    name = "frontier/some"
    made = Shown(**{**vars(shown(2)), "commit": "0123456789ab"})
    write_cells(tmp_path, name, "Some", runs(), {PLACE: made})
    assert known_cells(tmp_path, name, runs())[PLACE].commit == "0123456789ab"
    write_cells(tmp_path, name, "Some", runs(), {PLACE: shown(1)})
    assert known_cells(tmp_path, name, runs()) == {}
