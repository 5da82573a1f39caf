"""The run directory: nothing is overwritten, nothing is half written, and what is trimmed is done again."""

from __future__ import annotations

import json
import math
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import expect_refusal

from gossamer.results.rundir import (
    RunDirectory,
    finite,
    free_path,
    make_empty,
    read_manifest,
    write_atomically,
)


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with expect_refusal(key="--out", names="new", remedy=True):
        RunDirectory.create(tmp_path)
    with expect_refusal(key="--out", names="empty"):
        make_empty(tmp_path / "thesis.txt")
    with expect_refusal(key="--out"):
        make_empty(tmp_path / "thesis.txt" / "r")
    made = RunDirectory.create(tmp_path / "new")
    assert sorted(path.name for path in made.path.iterdir()) == ["checkpoints"]


def test_only_a_run_that_has_begun_and_not_finished_goes_on(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "r")
    with expect_refusal(key="--resume", names="config.toml run"):
        RunDirectory.resume(run.path)
    run.write_config({"nodes": 2})
    with expect_refusal(key="--resume", names="manifest.json"):
        RunDirectory.resume(run.path)
    manifest = {
        "name": "x",
        "run": "y",
        "started": "z",
        "key": "k",
        "data": {},
        "files": {},
        "ledgers_here": [],
    }
    run.write_json("manifest.json", manifest)
    assert read_manifest(RunDirectory.resume(run.path).path) == {**manifest, "resumed": []}
    run.write_json("certificate.json", {})
    with expect_refusal(key="--resume", names="run", remedy=True):
        RunDirectory.resume(run.path)


def test_toml_has_no_null_and_json_no_infinity(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "r")
    run.write_config({"a": None, "b": {"c": None, "d": [1, 2]}})
    assert tomllib.loads((run.path / "config.toml").read_text()) == {"b": {"d": [1, 2]}}
    run.write_json("x.json", {"e": math.inf, "f": [math.nan, 1.5, (math.inf,)], "g": "ε"})
    text = (run.path / "x.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"e": None, "f": [None, 1.5, [None]], "g": "ε"}
    assert "ε" in text
    assert finite({"n": 3, "t": True, "s": None}) == {"n": 3, "t": True, "s": None}


def test_metrics_after_a_round_are_forgotten_with_a_line_that_was_cut_off(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "r")
    assert run.last_metrics() == {}
    run.trim_metrics(5)  # there is nothing yet
    for t in (2, 4, 6):
        run.append_metrics({"round": t, "loss": math.inf})
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"round": 8, "lo')
    run.trim_metrics(4)
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert rows == [{"round": 2, "loss": None}, {"round": 4, "loss": None}]
    assert run.last_metrics() == rows[-1]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x"
    write_atomically(target, b"old")

    def fail(*names: Any) -> None:
        raise OSError(28, "the disk is full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="the disk is full"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_damaged_manifest_is_one_sentence(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "r")
    run.write_text("manifest.json", "{")
    with expect_refusal(key="manifest.json", names="damaged"):
        read_manifest(run.path)


def test_names_of_runs_are_free_and_have_no_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda form: "now")
    taken = []
    for _ in range(3):
        path = free_path("dyn-d2p/mnist")
        path.mkdir(parents=True)
        taken.append(path.as_posix())
    assert taken == ["runs/dyn-d2p-mnist-now", "runs/dyn-d2p-mnist-now-2", "runs/dyn-d2p-mnist-now-3"]
