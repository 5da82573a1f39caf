"""MLflow against its own local server: the public figures are there, and nothing else; a dead server costs no run.

The client is the extra `mlflow` of this environment. The server is the whole of MLflow, which does not go with all of
this environment's versions: GOSSAMER_MLFLOW may name the `mlflow` command of another.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import expect_refusal

from gossamer.results import track
from gossamer.results.track import MLflow, _without_password, find_tracker
from gossamer.training import api
from gossamer.training.assemble import assemble
from gossamer.training.run import execute

CHANGES = {
    "rounds": 8,
    "evaluation.every": 4,
    "privacy.noise.source": "seeded",
    "evaluation.diagnostics": True,
}


class Server:
    def __init__(self, program: str, folder: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"http://127.0.0.1:{free.getsockname()[1]}"
        port = self.address.rpartition(":")[2]
        words = ["server", "--host", "127.0.0.1", "--port", port, "--workers", "1"]
        stores = [
            "--backend-store-uri",
            f"sqlite:///{folder}/m.db",
            "--default-artifact-root",
            f"{folder}/artifacts",
        ]
        log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [program, *words, *stores], cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        for _ in range(240):
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=5):
                    return
            except OSError:
                time.sleep(0.5)
        self.stop()
        pytest.fail(f"the MLflow server did not start: {(folder / 'log').read_text()[-1000:]}")

    def ask(self, path: str, **content: Any) -> Any:
        asked = urllib.request.Request(
            f"{self.address}/api/2.0/mlflow/{path}",
            json.dumps(content).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return json.load(answer)

    def stop(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)  # its own session: this server and its workers
            self._process.wait()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    if find_spec("mlflow") is None:
        pytest.skip("pip install 'gossamer[mlflow]' brings the client")
    program = os.environ.get("GOSSAMER_MLFLOW") or shutil.which("mlflow", path=str(Path(sys.executable).parent))
    if program is None or ("GOSSAMER_MLFLOW" not in os.environ and find_spec("flask") is None):
        pytest.skip("there is no MLflow server: GOSSAMER_MLFLOW may name the mlflow command of a full installation")
    folder = tmp_path / "server"
    folder.mkdir()
    running = Server(program, folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", running.address)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    yield running
    running.stop()


@pytest.mark.slow
def test_the_server_has_the_public_figures_and_the_statement(server: Server, tmp_path: Path) -> None:
    parts = assemble(api.plan("quickstart", CHANGES))
    execute(parts, out=tmp_path / "r", track=find_tracker("mlflow"))
    (run,) = server.ask("runs/search", experiment_ids=["1"])["runs"]
    assert run["info"]["status"] == "FINISHED"
    rows = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    found = {metric["key"]: metric for metric in run["data"]["metrics"]}
    for name in ("accuracy_mean", "loss_max", "epsilon_proven", "consensus_distance", "bytes_sent"):
        assert (found[name]["step"], found[name]["value"]) == (8, pytest.approx(rows[-1][name]))
    assert found["accuracy_by_node/7"]["value"] == pytest.approx(rows[-1]["accuracy_by_node"][7])
    assert all("not_private" in row for row in rows)  # they were there to be left out
    assert not [name for name in found if "norm" in name or "clipped" in name or "seconds" in name]
    params = {param["key"]: param["value"] for param in run["data"]["params"]}
    assert params["stamp"] == "seeded noise: no privacy"
    assert params["planned.unit"] == "one record of one node"
    tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
    assert "SEEDED NOISE: NO PRIVACY" in tags["mlflow.note.content"]
    assert tags["certificate.delta"] == "0.0001"
    assert "mlflow.source.name" not in tags
    assert getpass.getuser() not in (run["info"]["user_id"], tags.get("mlflow.user"))


@pytest.mark.slow
def test_a_server_that_dies_costs_no_run(server: Server, tmp_path: Path, capfd: Any) -> None:
    parts = assemble(api.plan("quickstart", {"rounds": 6, "evaluation.every": 2}))
    begun = time.monotonic()
    outcome = execute(parts, out=tmp_path / "r", track=find_tracker("mlflow"), on_metrics=lambda row: server.stop())
    assert outcome.result["rounds"] == 6
    assert capfd.readouterr().err.count("--track mlflow failed") == 1
    assert time.monotonic() - begun < 60
    with expect_refusal("--track", "mlflow", "MLFLOW_TRACKING_URI 127.0.0.1", remedy=True):
        find_tracker("mlflow")


def test_where_to_must_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(track, "find_spec", lambda name: True)
    with expect_refusal(key="--track", value="mlflow", names="MLFLOW_TRACKING_URI", remedy=True):
        MLflow.check()


def test_a_password_is_not_printed() -> None:
    assert _without_password("https://me:secret@host:5000/x") == "https://host:5000/x"
    assert _without_password("http://127.0.0.1:5000") == "http://127.0.0.1:5000"
