"""Choosing settings on private records: all candidates share one budget, and the choice sees public rows only."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tomli_w
from tests.support.refusals import expect_refusal

from gossamer.config.layers import parse_overrides
from gossamer.studies.cells import parse_overs
from gossamer.studies.tune import Tuning, tune
from gossamer.training.api import plan

DIGITS: dict[str, Any] = {
    "nodes": 4,
    "rounds": 30,
    "data": {"kind": "digits", "transform": ["unit-norm"]},
    "model": {"kind": "softmax"},
    "topology": {"kind": "ring"},
    "algorithm": {"kind": "full-lot"},
    "privacy": {"epsilon": 8.0, "delta": 1e-4},
}


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "digits.toml"
    path.write_text(tomli_w.dumps(DIGITS))
    return str(path)


@pytest.mark.slow
def test_the_candidates_together_cost_what_was_asked(recipe: str, tmp_path: Path) -> None:
    found = tune(
        recipe,
        {"rounds": 10, "privacy.centre": 0.05},
        over={"algorithm.lr": [2.0, 20.0]},
        out=tmp_path / "out",
        jobs=1,
        quiet=True,
    )
    assert found.epsilon_proven == pytest.approx(8.0, rel=1e-6)
    assert [c["epsilon_proven"] < 6 for c in found.candidates] == [True, True]
    assert found.chosen is not None
    assert found.chosen["accuracy_mean"] == max(c["accuracy_mean"] for c in found.candidates)
    assert found.directory is not None
    certificate = (found.directory / "certificate.json").read_text()
    assert "One of 2 runs that share the budget" in certificate


@pytest.mark.parametrize("runs", [1, 4, 9])
def test_full_lots_share_the_budget_by_the_root(runs: int) -> None:
    one, shared = plan(DIGITS).privacy, plan(DIGITS, {"privacy.runs": runs}).privacy
    assert shared.nodes[0].factor == pytest.approx(runs**0.5 * one.nodes[0].factor, rel=1e-6)


@pytest.mark.parametrize(
    ("sets", "overs", "words"),
    [
        ([], [], "there choose"),
        ([], ["algorithm.lr=1"], "there choose"),
        ([], ["privacy.epsilon=1,2"], "--over changes"),
        ([], ["rounds=10,20"], "--over changes"),
        ([], ["data.partition.kind=even,shards"], "--over changes"),
        (["data.held_out=100"], ["algorithm.lr=1,2"], "choice hold-out"),
        (["privacy.noise.multiplier=2.0"], ["algorithm.lr=1,2"], "digits.toml privacy.runs 2"),
        (["mode=paper"], ["algorithm.lr=1,2"], "digits.toml privacy.runs 2"),
    ],
)
def test_mistakes(recipe: str, sets: list[str], overs: list[str], words: str, tmp_path: Path) -> None:
    with expect_refusal(names=words):
        tune(recipe, parse_overrides(sets), over=parse_overs(overs), out=tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()


def test_own_records_need_a_public_hold_out(recipe: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x_train=np.ones((40, 3)), y_train=np.arange(40) % 2)
    own = [
        "data.kind=npz",
        f"data.path={tmp_path}/own.npz",
        "data.classes=2",
        "data.records=10",
        "data.transform=[]",
    ]
    with expect_refusal(key="choice", names="hold-out"):
        tune(recipe, parse_overrides(own), over={"algorithm.lr": [1.0, 2.0]}, out=tmp_path / "out", quiet=True)


@pytest.mark.parametrize(
    ("recipe", "over"),
    [("without-replacement/mnist", "algorithm.lr=0.1,0.2"), ("quickstart", "algorithm.kind=dyn-d2p,dp-dsgd")],
)
def test_a_choice_is_among_settings_of_one_gossip_method(recipe: str, over: str) -> None:
    """Local models have an un-noised tail: looking at them would not be post-processing."""
    with expect_refusal(key="algorithm.kind", names="gossip", remedy=True):
        tune(recipe, over=parse_overs([over]))


def test_nothing_is_chosen_by_figures_that_no_epsilon_covers(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gossamer.studies import tune as module

    def unpaid(rows: Any, out: Path, **_: Any) -> Any:
        results = [[{"accuracy_mean": 0.5, "not_private": {"because": "why"}}] for _ in rows]
        (out / "cells").mkdir(parents=True)
        return SimpleNamespace(results=results, summary={})

    monkeypatch.setattr(module, "run_rows", unpaid)
    with expect_refusal(key="choice", names="why"):
        tune(recipe, over={"algorithm.lr": [1.0, 2.0]}, out=tmp_path / "out", quiet=True)


def test_it_shows_the_choice_and_what_all_of_it_costs() -> None:
    one = {"settings": {"algorithm.lr": 2.0}, "accuracy_mean": 0.5, "epsilon_proven": 4.0}
    other = {"settings": {"algorithm.lr": "<b>"}, "accuracy_mean": 0.8, "epsilon_proven": 4.0}
    terms = {"delta": 1e-4, "adjacency": "add-remove", "unit": "one record", "observer": "everyone"}
    found = Tuning({
        "candidates": [one, other], "chosen": other, "run_dir": "runs/x", "epsilon_proven": 8.0, "failed": {"c": "why"},
        **terms,
    })  # fmt: skip
    for text in (repr(found), found._repr_html_()):
        for piece in (
            "accuracy 80.00%",
            "chosen",
            "proven ε = 8",
            "δ = 0.0001",
            "add-remove",
            "everyone",
            "c failed: why",
        ):
            assert piece in text
    assert "<b>" in repr(found)
    assert "algorithm.lr = &lt;b&gt;" in found._repr_html_()
