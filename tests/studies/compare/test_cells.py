"""Cells on disk: finished means finished with this very configuration, and nothing is ever lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.configurations import configured

from gossamer.results.rundir import RunDirectory
from gossamer.studies.cells import Cell, ledgers


def cell(**changes: Any) -> Cell:
    return Cell(configured(rounds=6, **changes), "a cell")


def begin(out: Path, made: Cell, rounds: int) -> RunDirectory:
    run = RunDirectory.create(made.folder(out))
    run.write_config(made.config.model_dump())
    for t in range(2, rounds + 1, 2):
        run.append_metrics({"round": t, "epsilon_proven": 0.1 * t, "accuracy_mean": 0.5})
    return run


def test_a_cell_is_finished_with_its_certificate_and_its_own_configuration(tmp_path: Path) -> None:
    made = cell()
    assert not made.is_finished(tmp_path)
    assert made.rounds_done(tmp_path) == 0
    run = begin(tmp_path, made, 4)
    assert not made.is_finished(tmp_path)
    assert made.rounds_done(tmp_path) == 4
    run.write_json("certificate.json", {"epsilon_proven": 1.0})
    assert made.is_finished(tmp_path)
    (run.path / "config.toml").write_text((run.path / "config.toml").read_text().replace("rounds = 6", "rounds = 7"))
    assert not made.is_finished(tmp_path)
    (run.path / "config.toml").write_text("not toml")
    assert not made.is_finished(tmp_path)


def test_other_settings_are_another_folder() -> None:
    names = {cell(seed=seed, privacy__epsilon=epsilon).name for seed in (0, 1) for epsilon in (1.0, 2.0)}
    assert len(names) == 4
    assert cell(seed=1).name == cell(seed=1).name


def test_a_result_is_the_last_evaluation_and_the_certificate_wins(tmp_path: Path) -> None:
    made = cell()
    begin(tmp_path, made, 6).write_json("certificate.json", {"epsilon_proven": 1.0})
    found = made.result(tmp_path)
    assert (found["round"], found["epsilon_proven"], found["cell"]) == (6, 1.0, made.name)
    assert [row["round"] for row in found["history"]] == [2, 4, 6]


def test_what_a_stopped_run_left_is_set_aside_every_time(tmp_path: Path) -> None:
    made = cell()
    assert made.set_aside(tmp_path) is None
    for count in (1, 2):
        begin(tmp_path, made, 2 * count)
        place = made.set_aside(tmp_path)
        assert place == tmp_path / "set-aside" / f"{made.name}-{count}"
        assert not made.folder(tmp_path).exists()
        assert json.loads((place / "metrics.jsonl").read_text().splitlines()[-1])["round"] == 2 * count


def test_a_line_that_is_being_written_counts_for_nothing(tmp_path: Path) -> None:
    made = cell()
    run = begin(tmp_path, made, 2)
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"rou')
    assert made.rounds_done(tmp_path) == 2


def test_figures_that_no_epsilon_covers_are_read_with_their_mark(tmp_path: Path) -> None:
    cell = Cell(configured(), "a")
    place = cell.folder(tmp_path)
    place.mkdir(parents=True)
    row = {"round": 1, "not_private": {"because": "why", "accuracy_mean": 0.5}}
    (place / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (place / "certificate.json").write_text(json.dumps({"epsilon_proven": 0.0}))
    found = cell.result(tmp_path)
    assert (found["accuracy_mean"], found["not_private"]["because"]) == (0.5, "why")
    assert found["history"][0]["accuracy_mean"] == 0.5


def test_what_was_lost_elsewhere_counts_as_a_whole_cell(tmp_path: Path) -> None:
    def place(name: str, *files: str) -> Path:
        for file in files:
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).write_text("")
        return tmp_path / name

    stopped = place("set-aside/b-1", "ledger.jsonl")
    whole = place("cells/a", "ledger.jsonl", "certificate.json")
    other = place("cells/b", "ledger.jsonl", "certificate.json")
    assert ledgers(tmp_path) == [whole, other, stopped]
