"""The child of a comparison: one answer for every line, and a mistake is an answer too."""

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
from gossamer.studies.compare import child


def job(out: Path, **changes: Any) -> dict[str, Any]:
    fixed: dict[str, Any] = {"privacy__epsilon": None, "privacy__noise__multiplier": 50.0}
    config = configured(rounds=2, privacy__sampling={"kind": "full"}, **fixed, **changes)
    return {"config": config.model_dump(exclude_none=True), "out": str(out), "data_dir": None, "force": False}


def test_a_job_is_a_finished_run_of_its_configuration(tmp_path: Path) -> None:
    child.run(job(tmp_path / "r", seed=3), DataCache(), os.getppid())
    assert "seed = 3" in (tmp_path / "r" / "config.toml").read_text()
    assert (tmp_path / "r" / "certificate.json").is_file()


def test_every_line_has_an_answer_and_nothing_else_goes_to_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(job: dict[str, Any], cache: DataCache, parent: int) -> None:
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
