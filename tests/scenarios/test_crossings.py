"""Every pair of unit, runtime, noise, sampling, model and action works on a tiny problem, or is refused by name."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.support.crossings import REFUSED, Crossing, Refusal, all_pairs, page, refused, working
from tests.support.nursery import Nursery

from gossamer.accounting import ledger
from gossamer.consortium.demo import _free_ports as free_ports
from gossamer.errors import UserError
from gossamer.models.networks import load_module
from gossamer.results.rundir import RunLock
from gossamer.runtime.launch import end as stop
from gossamer.runtime.launch import environment

NODES, RECORDS, PERSONS = 3, 40, 20
NETS = """
import torch
from torch import nn

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(2, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))

class Frozen(Own):
    def __init__(self):
        super().__init__()
        self.body.requires_grad_(False)

class Random(Own):
    def forward(self, x):
        return self.head(nn.functional.dropout(torch.tanh(self.body(x)), 0.25, self.training))
"""
TRAINED = {"built-in": 6, "own module": 22, "frozen part": 10, "adapters": 16, "random layer": 22}
MODELS = {"own module": "net.py:Own", "frozen part": "net.py:Frozen", "random layer": "net.py:Random"}
EPSILON = 4.0


def configuration(row: Crossing, rounds: int) -> str:
    unit = {"record": '"record"', "person": '{ column = "who" }', "node": '"node"'}[row.unit]
    count = {"record": RECORDS, "person": PERSONS, "node": RECORDS}[row.unit]
    lot = {"poisson": 'kind = "poisson", rate = 0.5', "full": 'kind = "full"'}
    sampling = lot.get(row.sampling, f'kind = "one-pass", lot = {count // rounds or 1}')
    pairwise = row.noise == "cancelling"
    exact = pairwise and row.runtime != "sites"  # which are refused for the noise, not for the mean
    model = f'kind = "own", path = "{MODELS[row.model]}"' if row.model in MODELS else 'kind = "softmax"'
    if row.model == "adapters":
        model = 'kind = "mlp", hidden = [4]'
    return f"""
name = "crossing"
nodes = {NODES}
rounds = {rounds}
model = {{ {model} }}
{'lora = { rank = 1, train = ["3"] }' if row.model == "adapters" else ""}
topology = {{ kind = "one-peer-exponential" }}
checkpoints = {{ every = 1 }}
evaluation = {{ every = 1 }}

[data]
kind = "csv"
path = "records-{{node}}.csv"
test = "test.csv"
label = "y"
classes = 2
features = ["a", "b"]
records = {count}

[algorithm]
kind = "const-d2p"
lr = 0.5
{'mixes = "exact"' if exact else ""}

[privacy]
epsilon = {EPSILON}
delta = 1e-4
unit = {unit}
sampling = {{ {sampling} }}
clip = {{ kind = "constant", bound = 1.0 }}
noise = {{ schedule = {{ kind = "constant" }}{', kind = "pairwise"' if pairwise else ""} }}
"""


def write_table(path: Path, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 2))
    lines = [f"{a:.4f},{b:.4f},{seed}-{k % PERSONS},{int(a + b > 0)}" for k, (a, b) in enumerate(x)]
    path.write_text("\n".join(["a,b,who,y", *lines]) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for node in range(NODES):
        write_table(tmp_path / f"records-{node}.csv", RECORDS, node)
    write_table(tmp_path / "test.csv", 30, 9)
    (tmp_path / "net.py").write_text(NETS)
    return tmp_path


def answer(told: tuple[int, str, str]) -> dict[str, Any]:
    code, out, err = told
    assert code == 0, err
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return found


# Runs that are there: the directory of one, or one a site

ROUNDS = 4
SITES = ("alder", "birch", "cedar")
Command = Callable[..., tuple[int, str, str]]


def done(told: tuple[int, str, str]) -> str:
    code, out, err = told
    assert code == 0, err
    return out


def trained(command: Command, folder: Path, row: Crossing) -> list[Path]:
    """Of a run to its end."""
    (folder / "study.toml").write_text(configuration(row, ROUNDS))
    if row.runtime == "sites":
        return at_sites(command, folder)
    done(command("run", "study.toml", "--out", "run", *runtime_words(row)))
    return [folder / "run"]


def resumed(command: Command, folder: Path, row: Crossing) -> list[Path]:
    """Of a run that was killed when its first figures were there, and resumed."""
    if row.runtime == "sites":
        (folder / "study.toml").write_text(configuration(row, 30))
        return at_sites(command, folder, kill=True)
    run = killed(folder, row)
    done(command(*resume_words(run, row)))
    return [run]


def wait_for_ranks(run: Path) -> None:
    """Until all locks of the run are free: a killed rank may still be ending."""
    lock, limit = RunLock(run, range(NODES), whole=True), time.monotonic() + 60
    while True:
        try:
            lock.take()
        except UserError:
            assert time.monotonic() < limit, "a killed rank has not ended"
            time.sleep(0.02)
        else:
            return lock.close()


def killed(folder: Path, row: Crossing) -> Path:
    for rounds in (60, 240, 960):  # the longer ones where a machine ends a run before it can be killed
        (folder / "study.toml").write_text(configuration(row, rounds))
        run = folder / f"run-{rounds}"
        words = ["run", "study.toml", "--out", str(run), *runtime_words(row)]
        with (folder / "said.txt").open("wb") as said:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "gossamer", *words],
                cwd=folder, env=environment(1), stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
        while child.poll() is None and not figures(run):
            time.sleep(0.002)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        assert figures(run), (folder / "said.txt").read_text()
        wait_for_ranks(run)
        if not (run / "certificate.json").exists():
            return run
    raise AssertionError("every run ended before it could be killed")


def resume_words(run: Path, row: Crossing) -> list[str]:
    own = ["--set", f"model.path={MODELS[row.model]}"] if row.model in MODELS else []
    return ["run", "--resume", str(run), *runtime_words(row)[:2], *own]


def runtime_words(row: Crossing) -> list[str]:
    return ["--runtime", "processes", "--set", "runtime.ranks=2"] if row.runtime == "processes" else []


def figures(run: Path) -> str:
    path = run / "metrics.jsonl"
    return path.read_text() if path.exists() else ""


def packed(command: Command, folder: Path) -> tuple[int, str, str]:
    """A study for three sites of a consortium, each with its key, certificate and file."""
    done(command("pki", "init", "north"))
    for name, port in zip(SITES, free_ports(len(SITES)), strict=True):
        done(command("pki", "invite", name, "--out", f"{name}.invite"))
        records = str(PERSONS if "who" in (folder / "study.toml").read_text() else RECORDS)
        done(
            command(
                "pki",
                "join",
                f"{name}.invite",
                "--records",
                records,
                "--listen",
                f"127.0.0.1:{port}",
                "--cap",
                "9",
            )
        )
        done(command("pki", "approve", name, f"{name}/{name}.request"))
    for k, name in enumerate(SITES):
        done(command("pki", "accept", "north/north.roster", "--site", name, "--yes"))
        site = folder / name / "site.toml"
        text = re.sub(r"# data = .*", f'data = "../records-{k}.csv"', site.read_text())
        site.write_text(re.sub(r"# test = .*", 'test = "../test.csv"', text))
    return command("study", "pack", "study.toml", "--tick", "0.02", "--deadline", "30", "--dir", "north")


def at_sites(command: Command, folder: Path, *, kill: bool = False) -> list[Path]:
    """Of `gossamer peer run` at every site; with `kill` one of them is killed once and started again."""
    done(packed(command, folder))
    nursery, children = Nursery(), {}

    def start(name: str) -> None:
        words = [
            "peer",
            "run",
            "north/crossing-1.study",
            "--site",
            name,
            "--out",
            f"{name}/part",
            "--wait",
            "120",
        ]
        children[name] = nursery.start([str(w) for w in words], folder / name / "said.txt")

    before = Path.cwd()
    os.chdir(folder)
    try:
        for name in SITES:
            start(name)
        if kill:
            while not figures(folder / "birch" / "part" / "run"):
                assert children["birch"].poll() is None, (folder / "birch" / "said.txt").read_text()
                time.sleep(0.005)
            children["birch"].kill()
            children["birch"].wait()
            start("birch")
        for name, child in children.items():
            assert child.wait() == 0, (folder / name / "said.txt").read_text()
    finally:
        stop(children.values())
        nursery.close()
        os.chdir(before)
    return [folder / name / "part" / "run" for name in SITES]


# What is done with them, and what must hold then


def statement(row: Crossing, run: Path) -> dict[str, Any]:
    """The certificate, whose figures must follow from the directory: each draw once, ε within what was asked."""
    certificate: dict[str, Any] = json.loads((run / "certificate.json").read_text())
    assert 0 < certificate["epsilon_proven"] <= EPSILON
    assert certificate["delta"] == 1e-4
    assert {"record": "record", "person": "who", "node": "node"}[row.unit] in certificate["unit"]
    for _, events in ledger.read_all(run).values():
        steps = [event.draw for event in events]
        assert steps == sorted(set(steps))
    assert json.loads((run / "manifest.json").read_text())["dimension"] == TRAINED[row.model]
    last = json.loads(figures(run).splitlines()[-1])
    assert 0 <= last["accuracy_mean"] <= 1
    return certificate


def check(command: Command, folder: Path, row: Crossing, runs: list[Path]) -> None:
    for run in runs:
        statement(row, run)
    module = ["--module", MODELS[row.model]] if row.model in MODELS else []
    run = runs[-1]
    if row.action == "predict":
        for one in runs:
            told = answer(
                command("predict", str(one), "test.csv", "--out", f"{one.parent.name}.csv", "--json", *module)
            )
            assert told["rows"] == 30
            assert 0 <= told["accuracy"] <= 1
    elif row.action == "export":
        done(command("export", str(run), "--out", "exported", *module))
        (weights,) = (folder / "exported").glob("*.safetensors")
        tensors = load_file(weights)
        assert sum(tensor.numel() for tensor in tensors.values()) == (6 if row.model == "built-in" else 22)
        if row.model == "frozen part":  # as the file makes it under the run's seed
            assert torch.equal(tensors["body.weight"], load_module(str(folder / MODELS[row.model])).body.weight)
        assert "ε" in (folder / "exported" / "MODEL_CARD.md").read_text()
    elif row.action == "verify":
        study = ["--study", "north/crossing-1.study"] if row.runtime == "sites" else []
        done(command("certificate", "verify", *map(str, runs), *study))
        path = next(run.glob("ledger*.jsonl"))
        path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")  # one draw less
        assert command("certificate", "verify", *map(str, runs), *study)[0] == 2
    elif row.action == "report":
        done(command("report", *map(str, runs), "--out", "report.html"))
        page = (folder / "report.html").read_text()
        assert "ε" in page
        assert "None" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    elif row.action == "audit":
        told = answer(command("audit", str(run), "--runs", "400", "--out", "audit", "--json", *module))
        assert told["violation"] is False
        assert told["epsilon_audited"] is None or told["epsilon_audited"] <= told["epsilon_proven"]


@pytest.mark.parametrize("row", [pytest.param(row, id=str(row), marks=pytest.mark.slow) for row in working()])
def test_works(command: Command, folder: Path, row: Crossing) -> None:
    make = resumed if row.action == "resume" else trained
    check(command, folder, row, make(command, folder, row))


@pytest.mark.parametrize(
    ("row", "why"),
    [
        pytest.param(row, why, id=str(row), marks=() if row.action == "run" else pytest.mark.slow)
        for row, why in refused()
    ],
)
def test_is_refused_by_name(command: Command, folder: Path, row: Crossing, why: Refusal) -> None:
    (folder / "study.toml").write_text(configuration(row, ROUNDS))
    if row.action == "audit":
        code, _, err = command("audit", str(trained(command, folder, row)[0]), "--out", "audit")
        assert not (folder / "audit").exists()
    elif row.action == "resume":
        code, _, err = command(*resume_words(killed(folder, row), row))
    elif row.runtime == "sites":
        code, _, err = packed(command, folder)
    else:
        code, _, err = command("run", "study.toml", "--out", "run", *runtime_words(row))
        assert not (folder / "run").exists()
    assert code == 2
    assert len(err.strip().splitlines()) == 1, err
    assert all(name in err for name in why.names), err


def test_every_pair_is_tried_or_refused() -> None:
    tried = set().union(*(row.pairs() for row in working()))
    assert tried | REFUSED.keys() == all_pairs()
    assert not tried & REFUSED.keys()


def test_the_page_is_written_from_the_table() -> None:
    assert (Path(__file__).parents[2] / "docs" / "crossings.md").read_text(encoding="utf-8") == page()
