"""Weights & Biases in its offline mode: its files hold the public figures, and nothing of the machine or the terminal."""

from __future__ import annotations

import importlib
import json
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gossamer.errors import UserError
from gossamer.results.track import find_tracker
from gossamer.training import api
from gossamer.training.assemble import assemble
from gossamer.training.run import execute

pytestmark = [
    pytest.mark.slow,  # the library starts a process of its own
    pytest.mark.skipif(find_spec("wandb") is None, reason="pip install 'gossamer[wandb]' brings it"),
]
CHANGES = {
    "rounds": 8,
    "evaluation.every": 4,
    "privacy.noise.source": "seeded",
    "evaluation.diagnostics": True,
}


def test_offline_files_hold_the_public_figures_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    execute(assemble(api.plan("quickstart", CHANGES)), out=tmp_path / "r", track=find_tracker("wandb"))
    importlib.import_module("wandb").teardown()  # as at the end of the process: its files are whole then
    rows = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert all("not_private" in row for row in rows)  # they were there to be left out
    (folder,) = (tmp_path / "r" / "wandb").glob("offline-run-*")
    (file,) = folder.glob("run-*.wandb")
    held = file.read_bytes()
    for name in (
        "accuracy_mean",
        "loss_max",
        "epsilon_proven",
        "accuracy_by_node/7",
        "planned.observer",
        "stamp",
    ):
        assert name.encode() in held, name
    for row in rows:
        assert repr(row["loss_mean"]).encode() in held
    assert b"SEEDED NOISE: NO PRIVACY" in held
    private = {name for row in rows for name in row["not_private"]}
    assert private
    for name in (*private, "seconds"):
        assert name.encode() not in held, name
    for machine in (socket.gethostname() + ".", sys.executable, str(tmp_path)):
        assert machine.encode() not in held, machine
    assert not list((folder / "files").glob("*"))  # no requirements, metadata, output, code


def test_who_is_not_logged_in_is_told_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(UserError, match=r"--track wandb cannot log in .*WANDB_MODE=offline"):
        find_tracker("wandb")
