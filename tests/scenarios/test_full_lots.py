"""Full lots end to end: the mean that is paid for, other heads and losses, and pieces around every method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.full_lots import DIGITS
from tests.support.refusals import expect_refusal

from gossamer.training.api import plan, run


def test_a_run_with_a_private_mean_proves_what_was_asked_from_its_ledgers(tmp_path: Path) -> None:
    outcome = run(DIGITS, {"privacy.centre": 0.05}, out=tmp_path / "run")
    assert outcome.certificate["draws"] == [31] * 4
    assert outcome.result["epsilon_proven"] == pytest.approx(8.0, rel=1e-6)
    assert outcome.result["consensus_distance"] < 1e-2
    assert outcome.result["accuracy_mean"] > 0.85  # 0.92 to 0.94 seen
    proofs = [json.loads(line)["epsilon_proven"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert proofs == sorted(proofs)
    assert proofs[-1] == pytest.approx(8.0, rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "loss", "lr"),
    [
        ("softmax", "cross-entropy", 60.0),
        ("softmax", "logistic", 60.0),
        ("softmax", "squared", 10.0),
        ("mlp", "cross-entropy", 20.0),
        ("mlp", "logistic", 15.0),
        ("mlp", "squared", 5.0),
    ],
)
def test_heads_and_losses_train_on_full_lots(kind: str, loss: str, lr: float, tmp_path: Path) -> None:
    model = {"kind": "mlp", "hidden": [32]} if kind == "mlp" else {"kind": "softmax"}
    changes = {"model": model, "loss": {"kind": loss}, "privacy.epsilon": 100.0, "algorithm.lr": lr}
    assert run(DIGITS, changes, out=tmp_path / "run").result["accuracy_mean"] > 0.6


def test_momentum_averaging_and_gossip_go_around_every_method(tmp_path: Path) -> None:
    for kind in ("dp-dsgt", "dyn-d2p"):
        changes = {
            "algorithm": {
                "kind": kind,
                "lr": 1.0,
                "momentum": 0.5,
                "tail_average": 0.3,
                "mixes": 2,
                "final_gossip": 30,
            },
            "privacy.sampling": {"kind": "full"},
        }
        outcome = run({**DIGITS, "topology": {"kind": "ring"}}, changes, out=tmp_path / kind)
        assert outcome.result["consensus_distance"] < 0.05


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"privacy.centre": 1.0}, "privacy.centre 1.0"),
        (
            {"privacy.centre": 0.1, "privacy.clip": {"kind": "quantile"}, "algorithm.lr": 1.0},
            "privacy.centre 0.1",
        ),
        ({"privacy.centre": 0.1, "model": {"kind": "mnist-cnn"}}, "privacy.centre 0.1"),
        ({"algorithm": {"kind": "dp-dinno", "lr": 0.1, "final_gossip": 3}}, "algorithm.kind dp-dinno"),
        ({"algorithm": {"kind": "dp-dinno", "lr": 0.1, "mixes": 3}}, "algorithm.kind dp-dinno"),
        ({"algorithm": {"kind": "dp-dinno", "lr": 0.1}, "privacy.centre": 0.1}, "privacy.centre 0.1"),
        ({"algorithm.momentum": 1.0, "algorithm.lr": 1.0}, "algorithm.momentum 1.0"),
        ({"algorithm.tail_average": 1.5}, "algorithm.tail_average 1.5"),
        ({"algorithm.mixes": 0}, "algorithm.mixes 0"),
        ({"algorithm.final_gossip": -1}, "algorithm.final_gossip -1"),
        ({"loss": {"kind": "hinge"}}, "loss.kind hinge"),
    ],
)
def test_mistakes_are_one_sentence(changes: dict[str, Any], words: str) -> None:
    recipe = {**DIGITS, "topology": {"kind": "ring"}, "data": {"kind": "digits"}}
    with expect_refusal(names=words) as caught:
        plan(recipe, changes)
    assert "\n" not in str(caught.value)
