"""Every figure that stands beside an ε is one that everyone could compute: from what was released, on public records.

The figures of a run's last evaluation are recomputed here from the released models and the public hold-out alone, by
other code than the program's. What cannot be is under `not_private`, or it is not there.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.own_records import on_table, write_table
from tests.support.recorded import Case, offline_cases
from tests.support.refusals import expect_refusal
from torch.func import functional_call

import gossamer
from gossamer.errors import UserError
from gossamer.results.headline import of_an_evaluation
from gossamer.results.track import public
from gossamer.training import api
from gossamer.training.assemble import assemble

# What says nothing of records: public constants, counts and prices.
SAYS_NOTHING = {
    "round", "metric", "epsilon_claimed", "epsilon_proven", "push_sum_mass", "bytes_sent", "seconds", "not_private",
    "hold_out",
}  # fmt: skip


def recomputed(points: torch.Tensor, parts: Any) -> dict[str, float]:
    """Loops over nodes, in float64 where it is about numbers alone."""
    o, (x, y), spread = parts.plan, parts.test, points.double() - points.double().mean(0)
    found = {"consensus_distance": math.sqrt(float(spread.square().sum() / len(points)))}
    truth = parts.dataset.truth
    if truth is not None and truth.size == points.shape[1]:
        errors = (points.double() - torch.as_tensor(truth).double().flatten()).square().mean(1).sqrt()
        found["truth_rmse_mean"] = float(errors.mean())
    if len(x) == 0:
        return found
    quality, losses = [], []
    for point in points:
        views = {name: view[0] for name, view in o.stack.views(point[None]).items()}
        with torch.no_grad():
            outputs = functional_call(o.module, views, (x,))
            losses.append(float(o.loss(outputs, y).double().mean()))
        if o.classes:
            guess = outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).long()
            quality.append(float((guess == y).double().mean()))
        else:
            quality.append(math.sqrt(float((outputs.flatten() - y.flatten()).double().square().mean())))
    name = "accuracy" if o.classes else "rmse"
    return found | {
        f"{name}_mean": sum(quality) / len(quality),
        f"{name}_min": min(quality),
        f"{name}_max": max(quality),
        "loss_mean": sum(losses) / len(losses),
    }


def check(recipe: Any, changes: dict[str, Any], folder: Path) -> dict[str, Any]:
    outcome = gossamer.run(recipe, changes, out=folder / "run")
    row: dict[str, Any] = json.loads((folder / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    stated = {key for key in row if key not in SAYS_NOTHING}
    assert all(of_an_evaluation(key) for key in stated), stated
    parts = assemble(api.plan(recipe, changes))
    if not stated:
        assert row["not_private"]["because"]
    for key, value in recomputed(outcome.points, parts).items():
        if key in stated:
            assert row[key] == pytest.approx(value, rel=1e-4, abs=1e-6), key
    assert "not_private" not in public(row)
    assert "seconds" not in public(row)
    return row


RELEASES = {
    "dyn-d2p", "full-lot", "dp-dsgd", "dp-dsgt", "dp-dinno", "without-replacement", "with-replacement", "dp-dkm",
}  # fmt: skip


def quick(case: Case) -> bool:
    """Every way to release models in sound mode, and every way to choose who writes."""
    sound = case.changes.get("mode") == "sound" and case.changes["algorithm.kind"] in RELEASES
    return sound or "algorithm.controller" in case.changes


QUICK, LONGER = ([case for case in offline_cases() if quick(case) is wanted] for wanted in (True, False))


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_figures_follow_from_what_is_released(case: Case, tmp_path: Path) -> None:
    check(case.recipe, {"rounds": 3, "privacy.noise.source": "seeded", **case.changes}, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", LONGER, ids=lambda case: case.name)
def test_figures_follow_from_what_is_released_whatever_the_settings(case: Case, tmp_path: Path) -> None:
    try:
        check(case.recipe, {"rounds": 3, "privacy.noise.source": "seeded", **case.changes}, tmp_path)
    except UserError:
        pytest.skip("refused")


SHARED = {
    "algorithm": {"kind": "without-replacement", "lr": 0.1}, "model": {"kind": "one-vs-all"}, "rounds": 3,
}  # fmt: skip
ONE_PASS = {"epsilon": 1.0, "adjacency": "replace-one", "sampling": {"kind": "one-pass", "lot": 10}}


@pytest.mark.parametrize("key", ["scored", "controller"])
def test_models_without_noise_are_not_judged_beside_an_epsilon(key: str, tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.csv")
    asked = {
        **on_table(table, test=str(write_table(tmp_path / "h.csv", seed=5))),
        **SHARED,
        "privacy": ONE_PASS,
    }
    with expect_refusal(f"algorithm.{key}", "local"):
        api.plan(asked, {f"algorithm.{key}": "local"})
    for i, allowed in enumerate(({"privacy.noise.source": "seeded"}, {"mode": "paper"})):
        (tmp_path / str(i)).mkdir()
        row = check(asked, {f"algorithm.{key}": "local", **allowed}, tmp_path / str(i))
        assert "accuracy_mean" in row["not_private"]
        assert "accuracy_mean" not in row


def test_where_nothing_is_released_nothing_public_depends_on_a_record(tmp_path: Path) -> None:
    """One record differs, nobody writes: all that is not marked is the same."""
    rows = []
    hold_out = write_table(tmp_path / "h.csv", seed=5)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        table = write_table(tmp_path / name / "t.csv")
        if name == "b":
            table.write_text(table.read_text().replace("\n", "\n9.0,9.0,0,0\n", 1).rsplit("\n", 2)[0] + "\n")
        asked = {**on_table(table, test=str(hold_out)), **SHARED, "privacy": ONE_PASS}
        rows.append(check(asked, {"baseline": "no-communication"}, tmp_path / name))
    assert public(rows[0]) == public(rows[1])
    assert rows[0]["not_private"] != rows[1]["not_private"]
    assert rows[0]["epsilon_proven"] is not None


def test_figures_on_a_private_hold_out_are_marked(tmp_path: Path) -> None:
    asked = {"data.held_out": 9, "privacy.adjacency": "replace-one"}
    row = check(on_table(write_table(tmp_path / "t.csv")), asked, tmp_path)
    assert set(row) & {"accuracy_mean", "loss_mean", "hold_out_rows"} == set()
    assert {"accuracy_mean", "loss_mean", "hold_out_rows", "because"} <= set(row["not_private"])
    assert "consensus_distance" in row  # of the released models alone
