"""The two walks, by the command line alone, as somebody who has just installed it would go.

A researcher brings a method in one file, compares it with others and with baselines, audits it and has the plot. An
engineer trains on the CSV files of four sites, gets the model out, predicts new rows, and hands over a certificate that
verifies.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

METHOD = '''
"""x ← W x − η v,  v ← β v + g: momentum that is not mixed."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from gossamer.algorithms import register


class State(NamedTuple):
    x: Tensor
    v: Tensor


@register("heavy")
@dataclass(frozen=True, kw_only=True)
class Heavy:
    lr: object
    beta: float = 0.5
    weights: ClassVar[str] = "doubly"
    draws: ClassVar[int] = 1

    def init(self, x0):
        return State(x0, x0.new_zeros(x0.shape))

    def step(self, s, grad, mix, t):
        v = self.beta * s.v + grad(s.x)
        return State(mix(s.x) - self.lr(t) * v, v)

    def model(self, s):
        return s.x
'''


def gossamer(*words: str, at: Path, fails: bool = False) -> str:
    environment = {**os.environ, "COLUMNS": "80", "GOSSAMER_PLUGINS": ""}
    done = subprocess.run(
        [sys.executable, "-m", "gossamer", *words],
        cwd=at,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode != 0) == fails, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if not fails else done.stderr


@pytest.mark.slow
def test_the_researcher_brings_a_method(tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text(METHOD)
    told = "import sys; sys.path.insert(0, '.'); from heavy import Heavy\n"
    told += "from gossamer.testing import check_algorithm; check_algorithm(Heavy)"
    subprocess.run([sys.executable, "-c", told], cwd=tmp_path, check=True, timeout=600)

    ring = ["--set", "topology.kind=ring", "--set", "rounds=40"]
    words = [
        "--over",
        "algorithm.kind=dp-dsgd,heavy",
        "--baselines",
        "--seeds",
        "2",
        "--out",
        "compared",
        "--json",
    ]
    found = json.loads(
        gossamer("--plugin", "heavy.py", "compare", "quickstart", *ring, *words, at=tmp_path).splitlines()[-1]
    )
    rows = {row["settings"]["algorithm.kind"]: row for row in found["rows"] if row["baseline"] is None}
    assert set(rows) == {"dp-dsgd", "heavy"}
    assert rows["heavy"]["epsilon_claimed"] is None  # no paper speaks of it, and none is put in its mouth
    assert rows["dp-dsgd"]["epsilon_claimed"] is not None
    assert {row["baseline"] for row in found["rows"]} >= {"non-private", "no-communication", "central"}
    assert "heavy" in (tmp_path / "compared" / "plot.html").read_text()

    audited = gossamer(
        "--plugin", "heavy.py", "audit", "quickstart", *ring, "--set", "algorithm.kind=heavy", "--runs", "8", "--json",
        at=tmp_path,
    )  # fmt: skip
    figures = json.loads(audited.splitlines()[-1])
    assert figures["violation"] is False
    assert figures["epsilon_audited"] <= figures["epsilon_proven"]
    assert "heavy" in gossamer("run", "--set", "algorithm.kind=heavy", at=tmp_path, fails=True)  # without the file


def _sites(folder: Path) -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.uniform(20, 90, 800), rng.uniform(80, 200, 800), rng.uniform(0, 1, 800)])
    ill = (rows[:, 0] / 70 + rows[:, 1] / 120 + 0.3 * rng.normal(size=800) > 2.0).astype(int)
    names = ["age", "pressure", "marker"]
    for site in range(4):
        with (folder / f"site-{site}.csv").open("w", newline="") as file:
            out = csv.writer(file)
            order = [2, 0, 1] if site == 3 else [0, 1, 2]  # one of them exports its columns in another order
            out.writerow([*(names[k] for k in order), "ill"])
            out.writerows([*row[order], label] for row, label in zip(rows[site::4], ill[site::4], strict=True))
    with (folder / "new.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["pressure", "marker", "age"])
        out.writerows([190.0 if i % 2 else 90.0, 0.5, 85.0 if i % 2 else 22.0] for i in range(20))
    return ill


STUDY = """
name = "study"
nodes = 4
rounds = "auto"

[data]
kind = "csv"
path = "site-{node}.csv"
label = "ill"
classes = 2
records = 200
ranges = { age = [0, 100], pressure = [50, 250], marker = [0, 1] }

[model]
kind = "softmax"

[topology]
kind = "complete"

[algorithm]
kind = "full-lot"

[privacy]
epsilon = 3.0
delta = 1e-5
"""


@pytest.mark.slow
def test_the_engineer_trains_predicts_and_hands_over_a_certificate(tmp_path: Path) -> None:
    _sites(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY)
    gossamer("plan", "study.toml", at=tmp_path)
    gossamer("run", "study.toml", "--out", "trained", at=tmp_path)

    gossamer("predict", "trained", "new.csv", "--out", "predictions.csv", at=tmp_path)
    with (tmp_path / "predictions.csv").open() as file:
        predicted = [row["prediction"] for row in csv.DictReader(file)]
    assert predicted == ["0", "1"] * 10  # the young with low pressure, the old with high

    gossamer("export", "trained", "--out", "model", at=tmp_path)
    card = (tmp_path / "model" / "MODEL_CARD.md").read_text()
    for said in ("ε", "δ", "add-remove", "one record of one node", "full-lot"):
        assert said in card

    gossamer("certificate", "key", "--out", "clinic.pem", at=tmp_path)
    gossamer("certificate", "sign", "trained", "--key", "clinic.pem", at=tmp_path)
    gossamer("certificate", "verify", "trained", at=tmp_path)
    ledger = next((tmp_path / "trained").glob("ledger*.jsonl"))
    ledger.write_text(ledger.read_text().replace('"sigma":1.', '"sigma":2.', 1))
    refused = gossamer("certificate", "verify", "trained", at=tmp_path, fails=True)
    assert len(refused.strip().splitlines()) == 1
