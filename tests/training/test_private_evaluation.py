"""Figures on private records through the door: near the truth, on file, in the certificate, and once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.refusals import expect_refusal
from torch import nn

import gossamer
from gossamer.accounting.recompute import recompute
from gossamer.models.measures import cells_of, measures_of
from gossamer.results.rundir import RunDirectory
from gossamer.training import run as run_module
from gossamer.training.evaluate import FILE, LOST, ON_PRIVATE, OTHERS, judged_rows

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2400, 3)).astype(np.float32)
Y = (X[:, 0] + 0.3 * RNG.normal(size=2400) > 0).astype(np.int64)
SITES = np.arange(2400) % 2
FEW: dict[str, Any] = {
    "nodes": 2, "rounds": 3, "topology.kind": "complete", "privacy.sampling": {"kind": "full"},
    "privacy.epsilon": 20.0, "evaluation.private": 0.5,
}  # fmt: skip


def data(**more: Any) -> gossamer.Data:
    return gossamer.Data((X, Y), owners=SITES, count=1200, **{"classes": 2, **more})


def run(folder: Path, **changes: Any) -> Any:
    return gossamer.run("quickstart", {**FEW, **changes}, data=data(), out=folder)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run(tmp_path_factory.mktemp("judged") / "run")


def test_the_figure_is_near_the_truth_and_says_what_it_is(done: Any) -> None:
    row = done.result
    truth = float((done.predict(X) == Y).mean())  # of all records: the kept-out ones are like the others
    assert row["accuracy_mean"] == pytest.approx(truth, abs=5 * row["accuracy_noise"] + 0.05)
    assert 0 < row["accuracy_noise"] < 0.02
    assert row["measured_on"] == ON_PRIVATE
    assert len(row["accuracy_by_node"]) == 2
    assert "not_private" not in row
    lines = [json.loads(line) for line in (done.directory / "metrics.jsonl").read_text().splitlines()]
    assert ["accuracy_mean" in line for line in lines] == [False] * (len(lines) - 1) + [True]
    assert lines[-1]["epsilon_proven"] == pytest.approx(done.certificate["epsilon_proven"], rel=1e-6)


def test_the_release_is_on_file_and_the_certificate_counts_it(done: Any) -> None:
    proofs = recompute(done.directory)
    assert [proof.draws for proof in proofs] == [4, 4]  # three draws and the evaluation
    assert max(proof.proven.epsilon for proof in proofs) == pytest.approx(done.certificate["epsilon_proven"])
    assert 19 < done.certificate["epsilon_proven"] <= 20
    assert any("kept out of training" in note for note in done.certificate["notes"])
    constants = done.certificate["public_constants"][0]
    assert constants["records"] == 960  # of the declared 1,200, not of what is there


def stopped(folder: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, at: str) -> Any:
    """A run that is stopped where `name` is called with `at`, and goes on."""
    real = getattr(where, name)

    def stop(*given: Any, **more: Any) -> Any:
        if at in map(str, given) or at == "any":
            raise KeyboardInterrupt
        return real(*given, **more)

    monkeypatch.setattr(where, name, stop)
    with pytest.raises(KeyboardInterrupt):
        run(folder)
    monkeypatch.setattr(where, name, real)
    return gossamer.resume(folder, data=data())


def test_a_run_that_goes_on_releases_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = stopped(tmp_path / "run", monkeypatch, run_module, "issue_certificate", "any")
    kept = json.loads((tmp_path / "run" / FILE).read_text())
    assert found.result["accuracy_mean"] == pytest.approx(figure(kept["totals"]))
    assert found.certificate["draws"] == [4, 4]
    assert found.certificate["epsilon_proven"] <= 20


def figure(totals: Any) -> float:
    right, wrong = np.sum(totals, axis=0)
    return float(right / (right + wrong))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "name", "at", "because"),
    [
        (RunDirectory, "write_json", FILE, LOST),  # on file in the ledger, and nowhere else
        (RunDirectory, "append_metrics", "any", OTHERS),  # kept, but the models of that round are not
    ],
    ids=["lost", "others"],
)
def test_a_stop_that_lost_the_figures_is_told(
    where: Any, name: str, at: str, because: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FEW, "evaluation.every", 3)
    found = stopped(tmp_path / "run", monkeypatch, where, name, at)
    assert found.result["not_measured_because"] == because
    assert "accuracy_mean" not in found.result
    assert found.certificate["epsilon_proven"] <= 20


def test_persons_and_several_measures(tmp_path: Path) -> None:
    persons = np.arange(2400) // 12
    found = gossamer.run(
        "quickstart",
        {**FEW, "privacy.unit": {"column": "persons"}, "evaluation.measures": ["auc", "log-loss"],
         "evaluation.bound": 4.0, "data.records": 120},
        data=gossamer.Data((X, Y), owners=persons % 2, persons=persons, classes=2),
        out=tmp_path / "run",
    )  # fmt: skip
    assert {"auc_mean", "log_loss_mean", "auc_noise"} <= found.result.keys()
    assert found.result["metric"] == "auc"
    assert found.certificate["unit"].startswith("one person")


class Mixes(nn.Module):
    """Takes the mean of the lot off every record: who is beside a record would matter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x - x.mean(0, keepdim=True)) / (x.mean() - x.mean())
        return out


def test_no_record_sees_another_and_no_row_leaves_the_ball(done: Any) -> None:
    from types import SimpleNamespace

    from gossamer.kernels.stack import ParameterStack
    from gossamer.models.losses import Classification

    module, task = Mixes(), Classification(2)
    o: Any = SimpleNamespace(module=module, stack=ParameterStack(module), task=task)
    made = [cells_of(m, task, 1.0) for m in measures_of(["accuracy", "auc", "log-loss", "f1"], task)]
    point = torch.randn(8, generator=torch.Generator().manual_seed(0))
    x, y = torch.from_numpy(X[:6].copy()), torch.from_numpy(Y[:6])
    x[2], x[3, 0] = float("nan"), float("inf")
    rows = judged_rows(o, made, point, x, y)
    assert bool((rows.norm(dim=1) <= 1 + 1e-12).all())
    torch.testing.assert_close(judged_rows(o, made, point, x[4:], y[4:]), rows[4:])
    assert judged_rows(o, made, point, x[:0], y[:0]).shape == (0, rows.shape[1])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"evaluation.measures": ["log-loss"]}, "evaluation.bound"),
        ({"privacy.unit": "node"}, "privacy.unit node evaluation.private"),
        ({"privacy.sampling": {"kind": "fixed-size", "lot": 10}}, "evaluation.private 0.5 poisson full"),
        ({"privacy.epsilon": [1.0, 2.0]}, "evaluation.private 0.5 nodes"),
        ({"data.train_rows": 100}, "evaluation.private 0.5 data.train_rows"),
    ],
)
def test_what_is_not_paid_for_is_refused_before_anything_is_written(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with expect_refusal(names=says):
        run(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_a_public_hold_out_costs_nothing(tmp_path: Path) -> None:
    with expect_refusal(key="evaluation.private", value="0.1", names="hold-out"):
        gossamer.run("quickstart", {"evaluation.private": 0.1}, out=tmp_path / "run")


@pytest.mark.slow
def test_ranks_say_what_one_process_says(tmp_path: Path) -> None:
    """Two processes with the same seeded noise: the same ledgers, the same figures; and preprocessing beside it."""
    for i in range(2):
        rows = [f"{a:.4f},{b:.4f},{c:.4f},{y}" for (a, b, c), y in zip(X[i == SITES], Y[i == SITES], strict=True)]
        (tmp_path / f"{i}.csv").write_text("\n".join(["a,b,c,y", *rows]) + "\n")
    files = {"kind": "csv", "path": str(tmp_path / "{node}.csv"), "label": "y", "classes": 2, "records": 1200}
    same = {
        **FEW, "data": {**files, "pca": 2, "pca_from": "private"}, "privacy.preprocessing": 0.2,
        "privacy.noise.source": "seeded", "evaluation.private": 0.3,
    }  # fmt: skip
    found = []
    for name, runtime in (("one", {}), ("two", {"runtime.kind": "processes", "runtime.ranks": 2})):
        sets = [f"--set={key}={json.dumps(value) if not isinstance(value, dict) else toml(value)}"
                for key, value in {**same, **runtime}.items()]  # fmt: skip
        command = ["run", "quickstart", *sets, "--out", str(tmp_path / name), "--json"]
        done = subprocess.run([sys.executable, "-m", "gossamer", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert found[0]["accuracy_by_node"] == pytest.approx(found[1]["accuracy_by_node"])
    assert found[0]["epsilon_proven"] == pytest.approx(found[1]["epsilon_proven"])
    assert 19 < found[0]["epsilon_proven"] <= 20


def toml(table: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in table.items()) + "}"
