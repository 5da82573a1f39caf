"""Result files: what is taken over, what is left out, and what they say of a run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import expect_refusal
from tests.support.tables import TINY

from gossamer.studies.reproduce import Mode, PaperCell, paper_cells
from reproductions.definition import Definition, read
from reproductions.known import Known, settings_of
from reproductions.record import Place, known_figures, record, write_record

MODE: Mode = "paper"
RESULTS = Path(__file__).parents[2] / "reproductions" / "results"
RECORDED = sorted(file.relative_to(RESULTS).as_posix() for file in RESULTS.rglob("*.json"))


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[Definition, list[PaperCell]]:
    (tmp_path / "tiny.toml").write_text(TINY)
    definition = read(str(tmp_path / "tiny.toml"))
    return definition, paper_cells(definition, "book")


def result(accuracy: float, **more: Any) -> dict[str, Any]:
    return {
        "accuracy_mean": accuracy, "accuracy_min": accuracy - 0.1, "seconds": 2.0, "epsilon_claimed": 1.0,
        "epsilon_proven": 3.0, "not_proven_because": None, "delta": 1e-4, "adjacency": "add-remove",
        "unit": "one record of one node", "observer": "everyone", "stamp": None, **more,
    }  # fmt: skip


def results(cells: list[PaperCell]) -> dict[tuple[str, Mode], list[dict[str, Any]]]:
    return {(c.label, m): [result(0.5), result(0.75)] for c in cells for m in c.runs}


def test_a_record_holds_every_seed_in_per_cent_with_its_settings(tiny: Any) -> None:
    definition, cells = tiny
    made = record("x/tiny", definition, cells, results(cells), ["cut"])
    first = made["cells"][0]["modes"]["paper"]
    assert first["values"] == [50.0, 75.0]
    assert first["worst_node"] == [40.0, 65.0]
    assert first["seeds"] == [0, 1]
    settings = {**made["settings"], **first["settings"]}
    assert settings.pop("privacy.epsilon", "absent") is None  # the recipe has one, and the cell takes it away
    assert settings == settings_of(cells[0].runs["paper"][0])
    assert "seed" not in made["settings"]
    assert made["made"]["seconds"] == 12.0  # three rows of two runs


def test_the_worst_epsilon_counts_and_none_where_one_seed_has_none(tiny: Any) -> None:
    definition, cells = tiny
    found = results(cells)
    found[cells[0].label, MODE] = [result(0.5), result(0.5, epsilon_proven=4.0)]
    made = record("x/tiny", definition, cells, found, [])
    assert made["cells"][0]["modes"]["paper"]["epsilon_proven"] == 4.0
    found[cells[0].label, MODE] = [result(0.5), result(0.5, epsilon_proven=None, not_proven_because="so")]
    made = record("x/tiny", definition, cells, found, [])
    assert made["cells"][0]["modes"]["paper"]["epsilon_proven"] is None
    assert made["cells"][0]["modes"]["paper"]["not_proven_because"] == "so"


def test_a_cell_without_all_its_seeds_is_left_out_and_taken_up_later(tiny: Any, tmp_path: Path) -> None:
    definition, cells = tiny
    found = results(cells)
    found[cells[0].label, MODE] = [result(0.5)]
    made = record("x/tiny", definition, cells, found, [])
    assert "paper" not in made["cells"][0]["modes"]
    write_record(tmp_path, "x/tiny", made)
    known = known_figures(tmp_path, "x/tiny", cells).same
    assert (cells[0].label, MODE) not in known
    assert len(known) == len(found) - 1
    again = record("x/tiny", definition, cells, {(cells[0].label, MODE): [result(0.25)] * 2}, [], known)
    assert again["cells"][0]["modes"]["paper"]["values"] == [25.0, 25.0]
    assert again["cells"][1] == made["cells"][1] or again["settings"] != made["settings"]


def test_other_settings_or_seeds_are_another_experiment(tiny: Any, tmp_path: Path) -> None:
    definition, cells = tiny
    assert known_figures(tmp_path, "x/tiny", cells).same == {}
    made = json.loads(json.dumps(record("x/tiny", definition, cells, results(cells), [])))

    def known(changed: Any) -> Known[Place]:
        write_record(tmp_path, "x/tiny", changed)
        return known_figures(tmp_path, "x/tiny", cells)

    assert len(known(made).same) == 3
    changed = json.loads(json.dumps(made))
    changed["settings"]["nodes"] = 5
    assert known(changed).same == {}
    assert len(known(changed).anew) == 3
    changed["settings"]["nodes"] = -5
    with expect_refusal(key="tiny.json", names="3 cells D²P 1 paper nodes 5"):
        known(changed)
    changed = json.loads(json.dumps(made))
    changed["cells"][0]["labels"]["method"] = "Dyn"
    assert known(changed).gone == ["Dyn, σ = 1, paper mode", "Dyn, σ = 1, sound mode"]
    made["cells"][0]["labels"] = dict(reversed(made["cells"][0]["labels"].items()))
    made["cells"][0]["modes"]["paper"]["seeds"] = [0, 2]
    assert len(known(made).same) == 2
    del made["cells"][1]["modes"]
    with expect_refusal(key="tiny.json", names="modes"):
        known(made)


@pytest.fixture(scope="session")
def history() -> set[str]:
    """Every commit that HEAD comes from."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=RESULTS, capture_output=True, text=True, check=True).stdout

    try:
        if git("rev-parse", "--is-shallow-repository").strip() == "true":
            pytest.skip("a shallow clone has no history; `git fetch --unshallow` gets it")
        found = {commit[:12] for commit in git("rev-list", "HEAD").split()}
    except (OSError, subprocess.SubprocessError):
        pytest.skip("no git, or no checkout: there is no history to look in")
    if not any(found & commits_of(file) for file in RECORDED):
        pytest.skip("a history without any of these commits is not the project's own")
    return found


def commits_of(file: str) -> set[str]:
    cells = json.loads((RESULTS / file).read_text())["cells"]
    return {one["commit"] for cell in cells for one in cell.get("modes", {"": cell}).values()}


@pytest.mark.parametrize("file", RECORDED)
def test_every_commit_that_a_result_file_names_is_in_the_history(file: str, history: set[str]) -> None:
    named = commits_of(file)
    assert named
    assert named <= history, f"{file} names commits that nobody can check out"
