"""What becomes of the cells of a result file: kept, run anew, gone and said, or refused; never lost in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import expect_refusal

from gossamer.config import recipes
from gossamer.studies.cells import Cell, cells
from reproductions.known import Known, Recorded, as_today, known_cells, settings_of

QUICK = cells(recipes.read("quickstart"), {}, "quick", 2)
WANTED: dict[str, tuple[Cell, ...]] = {"a": QUICK, "b": QUICK}


def recorded(name: str, *, seeds: tuple[int, ...] = (0, 1), without: str = "", **changed: Any) -> Recorded:
    settings = {**settings_of(QUICK[0]), **{key.replace("__", "."): v for key, v in changed.items()}}
    settings.pop(without, None)
    return Recorded(name, settings, seeds, {"values": [1.0, 2.0]})


def known(tmp_path: Path, **found: Recorded) -> Known[str]:
    return known_cells(tmp_path / "item.json", found, WANTED)


def test_the_same_settings_and_seeds_are_kept_and_the_rest_has_a_name(tmp_path: Path) -> None:
    found = known(tmp_path, a=recorded("A"), b=recorded("B", rounds=7), c=recorded("C"))
    assert list(found.same) == ["a"]
    assert found.same["a"] == {"values": [1.0, 2.0], "settings": settings_of(QUICK[0])}
    assert (found.anew, found.gone) == (["B"], ["C"])
    assert known(tmp_path, a=recorded("A", seeds=(0, 2))).anew == ["A"]
    # A key that came since has its default.
    assert list(known(tmp_path, a=recorded("A", without="evaluation.diagnostics")).same) == ["a"]


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        ({"a_key_of_tomorrow": 1}, "a_key_of_tomorrow"),
        ({"algorithm__kind": "no-such-method"}, "no-such-method"),
        ({"rounds": -3}, "rounds = -3"),
        ({"rounds__deep": 3}, "rounds"),
    ],
)
@pytest.mark.parametrize("place", ["b", "not in the definition"])
def test_settings_that_are_no_configuration_here_are_refused(
    tmp_path: Path, place: str, changed: dict[str, Any], because: str
) -> None:
    with expect_refusal("item.json", names=["2", "'B'", because], remedy=True):
        known(tmp_path, a=recorded("A"), **{place: recorded("B", **changed), "c": recorded("C", rounds=-1)})


def test_what_is_run_anew_and_what_goes_is_said(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "item.json").write_text("{}")
    found = known(tmp_path, a=recorded("A", rounds=7), c=recorded("C"))
    found.announce(as_is=False, quiet=True)
    assert capsys.readouterr().out == ""
    found.announce(as_is=False, quiet=False)
    said = capsys.readouterr().out
    assert f"0 cells are in {tmp_path / 'item.json'} already" in said
    assert "1 cell of that file has other settings or seeds in the definition now and is run anew, first 'A'" in said
    assert "1 cell of that file is not in the definition any more and goes, first 'C'" in said


def test_a_changed_cell_is_refused_where_nothing_is_run(tmp_path: Path) -> None:
    known(tmp_path, a=recorded("A"), c=recorded("C")).announce(as_is=True, quiet=True)
    with expect_refusal(key="item.json", names="1 A --as-is"):
        known(tmp_path, a=recorded("A", rounds=7)).announce(as_is=True, quiet=True)


def test_a_file_that_somebody_changed_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "item.json"
    found = known(tmp_path, a=recorded("A"))
    found.refuse_changed()
    file.write_text("{}")
    with expect_refusal(key="item.json", names="command", remedy=True):
        found.refuse_changed()
    known(tmp_path, a=recorded("A")).refuse_changed()


def test_settings_of_today_are_what_they_were() -> None:
    settings = json.loads(json.dumps(settings_of(QUICK[0])))
    assert as_today(settings) == settings
    assert "seed" not in settings
