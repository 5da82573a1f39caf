"""examples/cluster on two hosts: network namespaces with an address and a folder of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.namespaces import SCRIPT, SPREAD, no_namespaces, rank_in
from tests.support.refusals import expect_refusal

import gossamer
from gossamer.accounting import ledger
from gossamer.results.verify import verify_run


@pytest.fixture
def two_hosts(tmp_path: Path, start: Any) -> Any:
    reason = no_namespaces()
    if reason is not None:
        pytest.skip(reason)

    def begin(*words: str, recipe: str = "quickstart") -> Any:
        program = Path(sys.executable).with_name("torchrun")
        environment = {**os.environ, "WORK": str(tmp_path), "TORCHRUN": str(program), "RECIPE": recipe}
        return start([str(SCRIPT), *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    return begin


@pytest.mark.slow
def test_two_hosts_train_together_and_keep_their_ledgers_to_themselves(two_hosts: Any, tmp_path: Path) -> None:
    process = two_hosts("--out", "r", "--json", "--set", "rounds=40", *SPREAD)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err + (tmp_path / "host-1" / "log").read_text()
    assert json.loads(out.splitlines()[-1])["accuracy_mean"] > 0.7
    averages: list[torch.Tensor] = []
    for host, nodes in ((0, range(5)), (1, range(5, 8))):
        run = tmp_path / f"host-{host}" / "r"
        assert sorted(ledger.read_all(run)) == list(nodes)
        models = gossamer.load(run).models
        assert models.nodes == list(nodes)
        averages.append(models.weights()["1.weight"])  # of all eight nodes, on either host
        with expect_refusal("model", names="node average"):
            models.module(7 - nodes.start)
        assert [p.name for p in (run / "checkpoints").iterdir()] == [
            f"round-000040.nodes-{nodes.start:03d}-{nodes.stop - 1:03d}.safetensors"
        ]
        verify_run(run)
        command = [sys.executable, "-P", "-m", "gossamer", "plan", "--ledger", str(run)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "agree with the certificate" in done.stdout
    assert torch.equal(*averages)
    first, second = (json.loads((tmp_path / f"host-{host}" / "r" / "certificate.json").read_text()) for host in (0, 1))
    # Each says whose word it has for the nodes whose ledgers it does not hold, and has a key of its own.
    says = [[entry.pop("stated_by", None) for entry in found["epsilon_by_node"]] for found in (first, second)]
    assert says == [[None] * 5 + ["rank 1 (nodes 5–7)"] * 3, ["rank 0 (nodes 0–4)"] * 5 + [None] * 3]
    assert first.pop("key") != second.pop("key")
    for own in (first, second):  # of its own clock, key and files
        del own["issued"], own["signature"], own["digests"]["files"]
    by_node = [[entry["proven"] for entry in found.pop("epsilon_by_node")] for found in (first, second)]
    assert by_node[0] == pytest.approx(by_node[1], rel=1e-6)  # by a ledger here, as stated there
    assert first == second


@pytest.mark.slow
def test_a_host_that_dies_is_named_by_the_other_and_both_go_on_later(two_hosts: Any, tmp_path: Path) -> None:
    process = two_hosts(
        "--out", "r", "--set", "rounds=1500", "--set", "checkpoints.every=50", "--set", "privacy.noise.multiplier=12",
        *SPREAD,
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while not list((tmp_path / "host-1" / "r" / "checkpoints").glob("round-000050*")):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    os.kill(rank_in(tmp_path / "host-1"), signal.SIGKILL)
    _, err = process.communicate(timeout=600)
    assert process.returncode != 0
    assert "gossamer: rank 1 (nodes 5–7) ended in round " in err
    process = two_hosts("--resume", "r", "--json", recipe="")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["rounds"] == 1500
    for host in (0, 1):
        for _, events in ledger.read_all(tmp_path / f"host-{host}" / "r").values():
            steps = [event.draw for event in events]
            assert steps == sorted(set(steps))


OWN = """
name = "own"
nodes = 8
rounds = 3
model = { kind = "softmax" }
topology = { kind = "one-peer-exponential" }
algorithm = { kind = "dyn-d2p", lr = 2.0 }

[data]
kind = "csv"
path = "clinic-{node}.csv"
label = "label"
classes = 2
ranges = { age = [0, 120], weight = [0, 200] }
records = 40

[privacy]
epsilon = 8.0
delta = 1e-4
adjacency = "add-remove"
claim = "none"
sampling = { kind = "poisson", rate = 0.25 }
clip = { kind = "decaying", start = 1.0, ratio = 2.0 }
noise = { source = "system", schedule = { kind = "growing-budget", ratio = 2.0 } }
"""
ROWS = "age,weight,label\n41,70.5,0\n52,81.0,1\n63,77.7,Anna-Schmidt\n"


@pytest.mark.slow
def test_a_row_of_one_host_does_not_show_on_the_other(two_hosts: Any, tmp_path: Path) -> None:
    good = "age,weight,label\n" + "".join(f"{30 + i},{60 + i % 9},{i % 2}\n" for i in range(40))
    for host in (0, 1):
        (tmp_path / f"host-{host}").mkdir()
    for node in range(8):
        host = tmp_path / f"host-{int(node >= 5)}"
        (host / f"clinic-{node}.csv").write_text(ROWS if node == 6 else good)
    for host in (0, 1):
        (tmp_path / f"host-{host}" / "own.toml").write_text(OWN)
    process = two_hosts("--out", "r", *SPREAD, recipe="own.toml")
    out, err = process.communicate(timeout=600)
    there = (tmp_path / "host-1" / "log").read_text()
    assert process.returncode != 0
    assert "not among the declared data.classes" in there
    assert "Schmidt" not in out + err
    assert "rank 1 (nodes 5–7) failed: its own terminal says why." in err
    for file in (tmp_path / "host-0").rglob("*"):
        if file.is_file():
            assert b"Schmidt" not in file.read_bytes()
