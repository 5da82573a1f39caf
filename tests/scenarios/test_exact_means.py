"""Whole runs with exact means: one model on all nodes to the last bit, however many processes carry it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.configurations import configured

from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import Outcome, execute

SHORT = {
    "rounds": 9, "nodes": 7, "evaluation__every": 9, "privacy__noise__source": "seeded", "privacy__claim": "none",
    "algorithm__mixes": "exact",
}  # fmt: skip


def ran(folder: Path, **changes: Any) -> Outcome:
    return execute(assemble(Plan.of(configured(**{**SHORT, **changes}))), out=folder)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"algorithm__momentum": 0.9, "algorithm__tail_average": 0.5, "algorithm__final_gossip": 5},
        pytest.param({"algorithm__kind": "dp-dsgd", "model__kind": "mlp"}, marks=pytest.mark.slow),
        {"algorithm__kind": "dp-dsgt", "algorithm__lr": {"start": 0.1, "power": 0.5}},
        {"privacy__centre": 0.5, "privacy__clip": {"kind": "constant", "bound": 1.0}},
        {
            "nodes": 16,
            "weighting": "size",
            "data__partition": {"kind": "sizes", "sizes": [60] * 8 + [110] * 8},
        },
        {"baseline": "non-private"},
    ],
    ids=["plain", "pieces", "dsgd", "dsgt", "centre", "sizes", "non-private"],
)
def test_all_nodes_hold_one_model_to_the_last_bit(changes: dict[str, Any], tmp_path: Path) -> None:
    outcome = ran(tmp_path / "run", **changes)
    assert bool(outcome.points.isfinite().all())
    assert all(torch.equal(row, outcome.points[0]) for row in outcome.points)
    assert not torch.equal(outcome.points[0], torch.zeros_like(outcome.points[0]))


@pytest.mark.slow
def test_a_node_out_of_budget_adds_nothing_and_keeps_up(tmp_path: Path) -> None:
    budgets = {"privacy__epsilon": [1.0] * 3 + [8.0] * 4, "privacy__noise__multiplier": 2.0}
    outcome = ran(tmp_path / "run", **budgets, rounds=60)
    assert len(set(outcome.certificate["draws"])) == 2
    assert all(torch.equal(row, outcome.points[0]) for row in outcome.points)


def test_bytes_are_those_that_were_planned(tmp_path: Path) -> None:
    for kind in ("one-peer-exponential", "ring"):
        o = Plan.of(configured(**SHORT, topology__kind=kind))
        outcome = execute(assemble(o), out=tmp_path / kind)
        exchanges, links = (4, 7) if kind != "ring" else (3, 14)
        assert o.bytes_per_round == 8 * o.stack.dim * exchanges * links
        assert outcome.result["bytes_sent"] == 9 * o.bytes_per_round
