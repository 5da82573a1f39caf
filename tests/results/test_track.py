"""Trackers get the public figures of a run, all of them, and nothing else."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import dated
from tests.support.refusals import expect_refusal

from gossamer.results import track
from gossamer.results.track import TRACKERS, SafeTracker, certified_facts, find_tracker, public, scalars
from gossamer.training import api
from gossamer.training.assemble import assemble
from gossamer.training.run import execute

SHORT = ["--set", "rounds=8", "--set", "evaluation.every=4"]


def test_tensorboard_holds_what_metrics_jsonl_holds(tmp_path: Path, command: Any) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    seeded = ["--set", "privacy.noise.source=seeded", "--set", "evaluation.diagnostics=true"]
    assert command("run", "--track", "tensorboard", *SHORT, *seeded, "--out", "r")[0] == 0
    events = accumulator.EventAccumulator(str(tmp_path / "r" / "tensorboard"))
    events.Reload()
    rows = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    for name in ("accuracy_mean", "loss_max", "epsilon_proven", "consensus_distance", "bytes_sent"):
        assert [(e.step, e.value) for e in events.Scalars(name)] == [
            (row["round"], pytest.approx(row[name])) for row in rows
        ]
    assert events.Scalars("accuracy_by_node/7")[-1].value == pytest.approx(rows[-1]["accuracy_by_node"][7])
    tags = events.Tags()
    assert not [tag for tag in tags["scalars"] if "norm" in tag or "clipped" in tag]
    assert "stamp/text_summary" in tags["tensors"]
    assert all("not_private" in row for row in rows)  # they were there to be left out


def test_what_is_not_public_stays() -> None:
    row = {
        "round": 1,
        "accuracy_mean": 0.5,
        "loss_min": 1.0,
        "epsilon_proven": 2.0,
        "seconds": 1.5,
        "not_private": {"x": [1]},
    }
    assert public(row) == {"round": 1, "accuracy_mean": 0.5, "loss_min": 1.0, "epsilon_proven": 2.0}
    assert public({**row, "hold_out": "not declared public", "hold_out_rows": 3}) == {
        "round": 1,
        "epsilon_proven": 2.0,
    }


class Listener:
    def __init__(self, directory: Path, facts: dict[str, Any]):
        self.directory, self.facts, self.rows, self.closed = directory, facts, [], 0
        Listener.last = self

    def metrics(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def end(self, facts: dict[str, str]) -> None:
        self.ended = facts

    def close(self) -> None:
        self.closed += 1


def test_any_other_tracker_fits(tmp_path: Path) -> None:
    planned = api.plan("quickstart", {"rounds": 8, "evaluation.every": 4})
    execute(assemble(planned), out=tmp_path / "r", track=Listener)
    assert [row["round"] for row in Listener.last.rows] == [4, 8]
    assert (Listener.last.closed, Listener.last.directory) == (1, tmp_path / "r")
    assert Listener.last.facts["run"] == "quickstart: dyn-d2p, sound mode, seed 0"
    for facts, prefix in ((Listener.last.facts, "planned."), (Listener.last.ended, "")):  # no ε alone
        for key in ("epsilon_proven", "epsilon_claimed", "delta", "adjacency", "unit", "observer"):
            assert facts[prefix + key]
    assert "proven ε = " in Listener.last.ended["privacy"]


def test_what_other_runs_spent_is_told_to_nobody() -> None:
    spent = {"delta": 1e-5, "runs": 7, "epsilon": 9.9}
    facts = certified_facts(dated(budget=spent))
    assert "on these records" not in facts["privacy"]
    assert "9.9" not in str(facts)


def test_figures_are_numbers_and_each_nodes_are_apart() -> None:
    row = {"round": 3, "loss_mean": 1, "accuracy_by_node": [0.5, None], "words": "x", "none": None}
    assert scalars(row) == {"loss_mean": 1.0, "accuracy_by_node/0": 0.5}


class Broken(Listener):
    def metrics(self, row: dict[str, Any]) -> None:
        raise ConnectionError("gone")


def test_a_tracker_that_fails_does_not_cost_the_run(tmp_path: Path, capsys: Any) -> None:
    planned = api.plan("quickstart", {"rounds": 4, "evaluation.every": 2})
    out = tmp_path / "r"
    outcome = execute(assemble(planned), out=out, track=lambda d, f: SafeTracker("broken", lambda: Broken(d, f)))
    assert outcome.result["rounds"] == 4
    assert (out / "certificate.json").exists()
    said = capsys.readouterr().err
    assert said.count("--track broken failed (ConnectionError); the run continues without it") == 1

    def never() -> Any:
        raise OSError

    SafeTracker("shut", never).close()
    assert "--track shut failed (OSError)" in capsys.readouterr().err


def test_extras_that_are_named_can_be_installed() -> None:
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for name, known in TRACKERS.items():
        assert any(line.startswith(known.library) for line in extras[known.extra]), name


def test_mistakes_are_one_sentence_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    code, _, errors = command("run", "--track", "abacus", *SHORT)
    assert code == 2
    assert "--track abacus is not a tracker I know; use tensorboard, mlflow." in errors
    monkeypatch.setattr(track, "find_spec", lambda name: None)
    code, _, errors = command("run", "--track", "tensorboard", *SHORT)
    assert code == 2
    assert "pip install 'gossamer[track]'" in errors
    with expect_refusal(key="--track", value="mlflow", names="gossamer[mlflow]", remedy=True):
        find_tracker("mlflow")
    assert list(tmp_path.iterdir()) == []
