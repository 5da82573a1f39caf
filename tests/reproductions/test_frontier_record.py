"""The frontier's result file: what it has is not run again, and only while it is the same experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.refusals import expect_refusal

from gossamer.config import recipes
from gossamer.studies.cells import Cell, cells
from gossamer.studies.compare import summarise
from reproductions.frontier_record import Place, Shown, known_shown, shown_of, write_cells

PLACE: Place = ("digits", 1.0, "pixels")


def runs(changes: dict[str, Any] | None = None, seeds: int = 2) -> dict[Place, tuple[Cell, ...]]:
    return {PLACE: cells(recipes.read("quickstart"), changes or {}, "digits, pixels, ε = 1", seeds)}


def shown(seeds: int) -> Shown:
    return Shown({**summarise([]), "seeds": seeds, "accuracy_mean": 0.5}, ["everyone"], False, 2.2)


def test_the_same_experiment_is_known_and_another_is_not(tmp_path: Path) -> None:
    name = "frontier/some"
    assert known_shown(tmp_path, name, runs()).same == {}
    write_cells(tmp_path, name, "Some", runs(), {PLACE: shown(2)})
    (found,) = shown_of(known_shown(tmp_path, name, runs())).values()
    assert (found.row, found.observers, found.replace_one) == (shown(2).row, ["everyone"], 2.2)
    assert found.commit
    for changed in (runs({"rounds": 7}), runs(seeds=3)):
        found_anew = known_shown(tmp_path, name, changed)
        assert (found_anew.same, found_anew.anew) == ({}, ["digits, pixels, ε = 1"])
    other = known_shown(tmp_path, name, {("digits", 3.0, "pixels"): runs()[PLACE]})
    assert (other.same, other.gone) == ({}, ["digits, pixels, ε = 1"])


def test_a_cell_keeps_the_commit_it_was_made_at_and_an_unfinished_one_is_left_out(tmp_path: Path) -> None:
    name = "frontier/some"
    made = Shown(**{**vars(shown(2)), "commit": "0123456789ab"})
    write_cells(tmp_path, name, "Some", runs(), {PLACE: made})
    assert shown_of(known_shown(tmp_path, name, runs()))[PLACE].commit == "0123456789ab"
    write_cells(tmp_path, name, "Some", runs(), {PLACE: shown(1)})
    assert known_shown(tmp_path, name, runs()).same == {}


def test_a_cell_that_cannot_be_read_here_is_refused(tmp_path: Path) -> None:
    name = "frontier/some"
    write_cells(tmp_path, name, "Some", runs(), {PLACE: shown(2)})
    file = tmp_path / f"{name}.json"
    found = json.loads(file.read_text())
    found["cells"][0]["settings"]["a_key_of_tomorrow"] = 1
    file.write_text(json.dumps(found))
    with expect_refusal(key="some.json", names="1"):
        known_shown(tmp_path, name, runs())
    del found["cells"][0]["seeds"]
    file.write_text(json.dumps(found))
    with expect_refusal(key="some.json", names="seeds"):
        known_shown(tmp_path, name, runs())
