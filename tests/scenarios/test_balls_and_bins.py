"""Lots that records draw by themselves, end to end: planned, run, recomputed from the ledgers, and refused where they must."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.configurations import outlined
from tests.support.refusals import expect_refusal

from gossamer.accounting.chain import LedgerError
from gossamer.accounting.ledger import read_all
from gossamer.accounting.profiles import gdp_epsilon
from gossamer.accounting.proven import proven
from gossamer.accounting.recompute import recompute
from gossamer.training.api import run

BALLS: dict[str, Any] = {
    "nodes": 3,
    "rounds": 14,  # a pass and a begun one
    "evaluation.every": 7,
    "privacy.delta": 1e-4,
    "privacy.epsilon": None,
    "privacy.sampling": {"kind": "balls-and-bins", "lots": 10},
    "privacy.clip": {"kind": "constant", "bound": 1.0},
    "privacy.noise": {"multiplier": 1.0, "schedule": {"kind": "constant"}},
}


def test_what_is_planned_is_what_the_ledgers_say(tmp_path: Path) -> None:
    outcome = run("quickstart", BALLS, out=tmp_path / "run")
    planned = outlined("quickstart", **BALLS).privacy
    header, events = read_all(tmp_path / "run")[0]
    assert [(e.release.pass_number, e.release.lot_number) for e in events] == [(k // 10, k % 10) for k in range(14)]
    found = {proof.proven.epsilon for proof in recompute(tmp_path / "run")}
    assert found == {outcome.result["epsilon_proven"]} == {planned.worst.proven.epsilon}
    dealt = outlined("quickstart", **{**BALLS, "privacy.sampling": {"kind": "one-pass", "lot": 48}}).privacy
    assert planned.worst.proven.epsilon < 0.5 * dealt.worst.proven.epsilon
    proofs = [json.loads(line)["epsilon_proven"] for line in (tmp_path / "run/metrics.jsonl").open()]
    assert proofs == sorted(proofs)
    # A ledger in which one lot took the number of another is priced as if nothing were known about lots.
    path = tmp_path / "run" / "ledger.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:-1], lines[-1].replace('"lot":3', '"lot":2')]))
    _, spoilt = read_all(path.parent)[0]
    assert proven(spoilt, 1e-4, header["adjacency"]).epsilon > 4 * planned.worst.proven.epsilon
    path.write_text("".join([*lines[:-2], lines[-2].replace('"lot":2', '"lot":1'), lines[-1]]))
    with pytest.raises(LedgerError):  # and in the middle of the chain it shows
        recompute(tmp_path / "run")


def test_a_budget_is_calibrated_on_secret_lots() -> None:
    changes = {
        **BALLS,
        "rounds": 10,
        "privacy.epsilon": 1.5,
        "privacy.noise": {"schedule": {"kind": "constant"}},
    }
    node = outlined("quickstart", **changes).privacy.worst
    assert 1.48 < node.proven.epsilon <= 1.5
    assert node.factor < 1.1
    assert gdp_epsilon(1 / node.factor, 1e-4) > 3  # what a full batch would cost with this noise
    stopped = outlined(
        "quickstart",
        **{
            **changes,
            "rounds": 14,
            "privacy.noise": {"multiplier": node.factor, "schedule": {"kind": "constant"}},
        },
    ).privacy.worst
    assert 10 <= stopped.allowance < 14
    assert stopped.proven.epsilon <= 1.5


def test_a_shared_model_that_is_written_every_turn_may_draw_so() -> None:
    """Every write is then one lot's noised sum at a public model; where local models go on, it is refused."""
    base = {
        "nodes": 3, "rounds": 10, "data": {"kind": "digits"}, "model": {"kind": "one-vs-all"}, "topology": {"kind": "complete"},
        "algorithm": {"kind": "without-replacement", "controller": "global", "lr": 0.1},
        "privacy": {"epsilon": 1.0, "delta": 1e-5, "adjacency": "add-remove"},
    }  # fmt: skip
    factors = {}
    for kind, lots in (("one-pass", {"lot": 48}), ("balls-and-bins", {"lots": 10})):
        node = outlined(base, privacy__sampling={"kind": kind, **lots}).privacy.worst
        assert 0.98 < node.proven.epsilon <= 1.0
        factors[kind] = node.factor
    assert factors["balls-and-bins"] < 0.4 * factors["one-pass"]
    with expect_refusal(key="privacy.sampling.kind", value="balls-and-bins", names="lots"):
        outlined(base, privacy__sampling={"kind": "balls-and-bins", "lots": 10}, algorithm__controller="pass-end")
