"""The child of a study: one answer for every line, and a mistake is an answer too."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.configurations import configured

from gossamer.errors import UserError
from gossamer.run.data import DataCache
from gossamer.studies.engine import child


def job(out: Path, **changes: Any) -> dict[str, Any]:
    fixed: dict[str, Any] = {"privacy__epsilon": None, "privacy__noise__multiplier": 50.0}
    config = configured(rounds=2, privacy__sampling={"kind": "full"}, **fixed, **changes)
    return {
        "config": config.model_dump(exclude_none=True),
        "out": str(out),
        "data_dir": None,
        "force": False,
        "task": "run",
    }


def test_a_job_is_a_finished_run_of_its_configuration(tmp_path: Path) -> None:
    child.run(job(tmp_path / "r", seed=3), DataCache())
    assert "seed = 3" in (tmp_path / "r" / "config.toml").read_text()
    assert (tmp_path / "r" / "certificate.json").is_file()


def test_every_line_has_an_answer_and_nothing_else_goes_to_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(job: dict[str, Any], cache: DataCache) -> None:
        print("from a library")
        if job["out"] == "wrong":
            raise UserError("nodes = 0 must be at least 1.")
        if job["out"] == "broken":
            raise ZeroDivisionError("by zero")

    monkeypatch.setattr(child, "run", run)
    monkeypatch.setattr(signal, "signal", lambda *which: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(
        sys,
        "stdin",
        io.StringIO("".join(json.dumps({"out": out}) + "\n" for out in ("fine", "wrong", "broken"))),
    )
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    child.main()
    out = capsys.readouterr()
    answers = [json.loads(line)["error"] for line in out.out.splitlines()]
    assert answers == [
        None,
        "nodes = 0 must be at least 1.",
        "an error in gossamer: ZeroDivisionError: by zero (see errors.log)",
    ]
    assert out.err.count("from a library") == 3
    assert "ZeroDivisionError" in out.err


def test_code_that_a_job_names_is_withheld_at_a_worker(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nmake = None\n")
    told = job(tmp_path / "r", model={"kind": "own", "path": f"{tmp_path / 'net.py'}:make"})
    with pytest.raises(UserError, match="is not run unless you say so"):
        child.run({**told, "withhold": True}, DataCache())
    assert not (tmp_path / "ran").exists()
    with pytest.raises(UserError, match=r"model\.path = .*make"):  # this machine's user named it: it is run
        child.run(told, DataCache())
    assert (tmp_path / "ran").exists()


def test_a_child_ends_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    parents, ended = iter([7, 7, 1]), []
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "_exit", ended.append)
    child.end_with_parent(7, seconds=0.0)
    assert ended == [1]
    assert next(parents, None) is None
