"""Files that a TOML file names are sought next to it, from whichever folder a command is typed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from tests.conftest import Command
from tests.support.own_records import write_table

import gossamer

STUDY = """
nodes = 3
rounds = 2
model = "net.py:make"
data = { kind = "csv", path = "rows.csv", test = "held/test.csv", accounts = "spent", label = "y", features = ["a", "b"], classes = 2, records = 30 }
topology = { kind = "matrix", matrix = "w.csv" }
algorithm = { kind = "dp-dsgd", lr = 0.5 }
privacy = { epsilon = 1.0, sampling = { kind = "full" }, clip = { kind = "constant", bound = 1.0 } }
"""
NET = "import torch\n\ndef make():\n    return torch.nn.Linear(2, 2)\n"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder = tmp_path / "a study"
    (folder / "held").mkdir(parents=True)
    write_table(folder / "rows.csv")
    write_table(folder / "held" / "test.csv", rows=30, seed=1)
    (folder / "w.csv").write_text("0.5,0.25,0.25\n0.25,0.5,0.25\n0.25,0.25,0.5\n")
    (folder / "net.py").write_text(NET)
    (folder / "study.toml").write_text(STUDY)
    return folder


def test_every_file_of_a_toml_is_sought_next_to_it(
    command: Command, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = tmp_path / "elsewhere"
    away.mkdir()
    write_table(tmp_path / "rows.csv", seed=9)  # of the same name in the working directory
    toml = str(study / "study.toml")
    code, _, errors = command("plan", "a study/study.toml")
    assert code == 0, errors
    code, _, errors = command("run", "a study/study.toml", "--out", "run")
    assert code == 0, errors
    assert [*(study / "spent").glob("*.jsonl")]
    written = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert written["data"]["path"] == str(study / "rows.csv")
    assert written["data"]["test"] == str(study / "held" / "test.csv")
    assert written["model"]["path"] == f"{study / 'net.py'}:make"
    assert written["topology"]["matrix"] == str(study / "w.csv")
    monkeypatch.chdir(away)
    plan = gossamer.plan(toml)  # type: ignore[operator]
    assert plan.result["nodes"] == 3


@pytest.mark.slow
def test_a_comparison_seeks_them_there_too(
    command: Command, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = tmp_path / "elsewhere"
    away.mkdir()
    monkeypatch.chdir(away)
    toml = str(study / "study.toml")
    code, out, errors = command("compare", toml, "--over", "rounds=1,2", "--jobs", "1", "--json", "--out", "table")
    assert code == 0, errors
    assert len(json.loads(out.splitlines()[-1])["rows"]) == 2


def test_a_run_resumes_from_another_folder(
    command: Command, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: int) -> None:
        raise KeyboardInterrupt

    class Stop:
        on_round = staticmethod(stop)

    with pytest.raises(KeyboardInterrupt):
        gossamer.run(study / "study.toml", callbacks=[Stop()], out=tmp_path / "run")  # type: ignore[operator]
    monkeypatch.chdir(study)
    code, _, errors = command("run", "--resume", "../run", "--set", "model.path=net.py:make")
    assert code == 0, errors


def test_a_path_of_the_command_line_is_sought_from_where_it_is_typed(
    command: Command, study: Path, tmp_path: Path
) -> None:
    write_table(tmp_path / "mine.csv", seed=3)
    code, _, errors = command("run", "a study/study.toml", "--set", "data.path=mine.csv", "--out", "run")
    assert code == 0, errors
    written = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert written["data"]["path"] == str(tmp_path / "mine.csv")


def test_a_file_that_is_only_in_the_working_directory_is_not_taken(
    command: Command, study: Path, tmp_path: Path
) -> None:
    (study / "rows.csv").rename(tmp_path / "rows.csv")
    code, _, errors = command("plan", "a study/study.toml")
    assert code == 2
    assert str(study / "rows.csv") in errors
    code, _, errors = command("plan", "a study/study.toml", "--data-dir", str(tmp_path), "--set", "data.path=rows.csv")
    assert code == 0, errors
