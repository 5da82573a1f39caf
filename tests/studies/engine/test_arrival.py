"""What came back is held against what was asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.support.configurations import configured

from gossamer.errors import UserError
from gossamer.run.api import run
from gossamer.studies.engine.arrival import BEGUN, begun_elsewhere, refuse_arrived, take_the_marks_place
from gossamer.studies.engine.job import Job


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Path]:
    fixed = {
        "privacy__epsilon": None,
        "privacy__noise__multiplier": 50.0,
        "privacy__sampling": {"kind": "full"},
    }
    config = configured(rounds=2, **fixed)
    place = tmp_path_factory.mktemp("arrival") / "run"
    run(config, out=place)
    return Job("run", config.model_dump(exclude_none=True), place), place


def test_a_run_of_this_configuration_with_its_seals_is_taken(made: tuple[Job, Path]) -> None:
    refuse_arrived(*made)


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("certificate.json", "it has no certificate"),
        ("seals.jsonl", "seals.jsonl"),
        ("ledger/node-000.jsonl", r"node-000\.jsonl"),
    ],
)
def test_one_without_its_files_is_not(made: tuple[Job, Path], tmp_path: Path, file: str, why: str) -> None:
    shutil.copytree(made[1], tmp_path / "run")
    (tmp_path / "run" / file).unlink()
    with pytest.raises(UserError, match=why):
        refuse_arrived(made[0], tmp_path / "run")


def test_a_changed_figure_ledger_or_configuration_is_not(made: tuple[Job, Path], tmp_path: Path) -> None:
    job, place = made
    for file, old, new in (
        ("certificate.json", '"delta": ', '"delta": 1'),
        ("ledger/node-000.jsonl", '"step"', '"stop"'),
        ("config.toml", "rounds = 2", "rounds = 3"),
        ("metrics.jsonl", '"round": 2', '"round": 1'),
    ):
        there = tmp_path / file.replace("/", "-")
        shutil.copytree(place, there)
        text = (there / file).read_text()
        assert old in text, file
        (there / file).write_text(text.replace(old, new))
        with pytest.raises(UserError):
            refuse_arrived(job, there)
    other = Job("run", {**job.config, "seed": 99}, place)
    with pytest.raises(UserError, match="it is a run of another configuration"):
        refuse_arrived(other, place)


def test_a_key_that_came_along_could_sign_anything(made: tuple[Job, Path], tmp_path: Path) -> None:
    shutil.copytree(made[1], tmp_path / "run")
    (tmp_path / "run" / "run.key").write_bytes(b"0" * 32)
    with pytest.raises(UserError, match="it is not signed"):
        refuse_arrived(made[0], tmp_path / "run")


def test_what_is_out_is_marked(tmp_path: Path) -> None:
    begun_elsewhere(tmp_path / "cell", "tcp://h:1")
    assert json.loads((tmp_path / "cell" / BEGUN).read_text())["worker"] == "tcp://h:1"
    (tmp_path / "arriving").mkdir()
    (tmp_path / "arriving" / "a").write_text("1")
    take_the_marks_place(tmp_path / "arriving", tmp_path / "cell")
    assert [path.name for path in (tmp_path / "cell").iterdir()] == ["a"]
    (tmp_path / "arriving").mkdir()
    with pytest.raises(OSError, match="not empty"):  # somebody's files
        take_the_marks_place(tmp_path / "arriving", tmp_path / "cell")
    assert (tmp_path / "cell" / "a").read_text() == "1"
