"""`gossamer data check`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.refusals import expect_refusal
from typer.testing import CliRunner

from gossamer.cli import app
from gossamer.training.check_data import check_data, does_fit, sentences

RUNNER = CliRunner()
STUDY = """
nodes = 2
[data]
kind = "csv"
path = "{folder}/s-{{node}}.csv"
label = "y"
person = "who"
classes = ["ill", "well"]
records = 3
[data.columns]
age = [0, 100]
plan = ["a", "b"]
[privacy.unit]
column = "who"
"""
LINES = ["y,who,age,plan,more", "ill,p1,31,a,1", "well,p1,44,xyzzy,2", "ill,p2,50,b,3"]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    for node in range(2):
        (tmp_path / f"s-{node}.csv").write_text("\n".join(LINES) + "\n")
    path = tmp_path / "study.toml"
    path.write_text(STUDY.format(folder=tmp_path))
    return path


def test_all_files_of_a_study(study: Path) -> None:
    found = RUNNER.invoke(app, ["data", "check", str(study)])
    assert found.exit_code == 0, found.output
    assert found.output.count("fits") == 4  # two files, and the column age of each
    assert "values that are no level are 0 in all" in found.output
    assert "not declared, so left out: more" in found.output
    assert "xyzzy" not in found.output
    assert all(len(line) <= 80 for line in found.output.splitlines() if "study.toml" not in line)


def test_what_must_be_mended_ends_in_1(study: Path) -> None:
    mine = study.parent / "s-1.csv"
    mine.write_text("\n".join([*LINES, "well,p3,,b,1"]))
    found = RUNNER.invoke(app, ["data", "check", str(mine), "--config", str(study), "--json"])
    assert found.exit_code == 1
    (its,) = json.loads(found.stdout)["files"]
    assert [(f["column"], f["remark"]) for f in its["findings"] if f["must"]] == [
        ("age", "has gaps, or values that are not numeric: set missing = true")
    ]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("xyzzy,p3,1,a,1", "labels that are not among the declared data.classes"),
        (",p3,1,a,1", "column 'y' has rows without a value"),
        ("ill,,1,a,1", "column 'who'"),
    ],
)
def test_labels_and_persons_are_judged_as_a_run_would(study: Path, line: str, wrong: str) -> None:
    (study.parent / "s-1.csv").write_text("\n".join([*LINES, line]))
    found = check_data(study.parent / "s-1.csv", str(study))
    assert not does_fit(found)
    said = "\n".join(sentences(found))
    assert wrong in said
    assert "xyzzy" not in said


def test_without_a_declaration_it_suggests_one(study: Path) -> None:
    found = RUNNER.invoke(app, ["data", "check", str(study.parent / "s-0.csv")])
    assert found.exit_code == 0
    assert "age = { range = [] }" in found.output
    assert not any(value in found.output for value in ("31", "xyzzy", "p1"))
    bare = study.with_name("bare.toml")
    bare.write_text(study.read_text().replace('[data.columns]\nage = [0, 100]\nplan = ["a", "b"]\n', ""))
    found = RUNNER.invoke(app, ["data", "check", str(study.parent / "s-0.csv"), "--config", str(bare)])
    assert found.exit_code == 1  # a column of words is not learned from
    assert "non-numeric feature columns plan" in found.output
    assert "who = " not in found.output


def test_mistakes_are_sentences(study: Path, tmp_path: Path) -> None:
    for file, config, wrong in (
        (study, "quickstart", "study.toml one"),
        (tmp_path / "x.npz", None, "x.npz checked"),
        (tmp_path / "x.csv", None, "x.csv file"),
        (study.parent / "s-0.csv", "quickstart", "data.kind table"),
    ):
        with expect_refusal(names=wrong):
            check_data(file, config)
    for node in range(2):
        (study.parent / f"s-{node}.csv").unlink()
    with expect_refusal(key="data.path", names="2"):
        check_data(study, None)
