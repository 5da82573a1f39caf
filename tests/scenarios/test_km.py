"""dp-dkm as a user runs it: both modes, every operator, loss and noise, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.configurations import dotted

import gossamer
from gossamer.accounting.ledger import read_all
from gossamer.accounting.releases import TruncatedLaplace
from gossamer.methods.km.operators import OPERATORS

SHORT = {"rounds": 6, "evaluation.every": 100}


def run(out: Path, recipe: str = "dp-dkm/lasso", **changes: Any) -> Any:
    settings = {**SHORT, **dotted(changes)}
    return gossamer.run(recipe, settings, out=out)


@pytest.mark.parametrize("operator", list(OPERATORS))
@pytest.mark.parametrize("mode", ["sound", "paper"])
def test_every_operator_runs_in_both_modes(tmp_path: Path, operator: str, mode: str) -> None:
    outcome = run(tmp_path / "r", mode=mode, algorithm__operator=operator, algorithm__gamma=0.05)
    assert math.isfinite(outcome.result["truth_rmse_mean"])
    assert outcome.result["metric"] == "truth_rmse"
    if mode == "sound":
        assert 0.49 < outcome.result["epsilon_proven"] <= 0.5
        assert outcome.result["epsilon_claimed"] is None
    else:
        assert outcome.result["epsilon_claimed"] == pytest.approx(0.5)
        assert outcome.result["epsilon_proven"] is None
        assert any("line 11" in flag for flag in outcome.result["claim_flags"])


@pytest.mark.parametrize(
    "family",
    [
        {"kind": "laplace"},
        {"kind": "truncated-laplace"},
        {"kind": "truncated-gaussian"},
        pytest.param({"kind": "truncated-generalised", "shape": 3.0}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("mode", ["sound", "paper"])
def test_every_noise_is_what_its_ledger_says(tmp_path: Path, family: dict[str, Any], mode: str) -> None:
    outcome = run(tmp_path / "r", mode=mode, rounds=3, privacy__noise__family=family)
    events = read_all(tmp_path / "r")[0][1]
    named = "generalised-gaussian" if family["kind"] == "truncated-generalised" else family["kind"]
    assert events[0].release.kind == named
    assert events[0].release.dimensions == 10
    assert hasattr(events[0].release, "bound") == (family["kind"] != "laplace")
    if mode == "sound":
        assert len(events) == 3
        assert 0.48 < outcome.result["epsilon_proven"] <= 0.5
    else:  # three messages with noise and the end without
        assert [event.release.kind for event in events] == [named] * 3 + ["none"]


def test_paper_noise_follows_theorem_one_and_definition_six(tmp_path: Path) -> None:
    """λ = Δ/ε, Δ by Theorem 1 with B = γ·bound, on the ring's second eigenvalue."""
    changes = {"mode": "paper", "rounds": 4, "privacy__noise__family": {"kind": "truncated-laplace"}}
    run(tmp_path / "r", **changes)
    written = read_all(tmp_path / "r")[0][1][0].release
    W = np.array([[1 if (i - j) % 5 in (0, 1, 4) else 0 for j in range(5)] for i in range(5)]) / 3
    mixing = np.sort(np.abs(np.linalg.eigvalsh(W)))[-2]
    B, alpha, spread = 0.05 * 1e-4, 1.0, 0.0
    for k in range(4):
        spread += (1 + 2 * alpha) * sum(alpha * mixing ** (k - 1 - j) for j in range(k))
    sensitivity = 2 * B * 4 * alpha / 500 + 4 * B * spread
    assert isinstance(written, TruncatedLaplace)
    assert written.sigma == pytest.approx(sensitivity / 0.5, rel=1e-6)
    assert written.bound == pytest.approx(written.sigma * math.log1p(math.expm1(0.5) / 2e-3), rel=1e-6)


def test_losses_with_kinks_have_a_private_method(tmp_path: Path) -> None:
    """Quantile regression: no gradient, per-record resolvents, a proven ε."""
    outcome = run(
        tmp_path / "r", loss={"kind": "quantile", "tau": 0.5}, algorithm__operator="douglas-rachford",
        rounds=60, privacy__epsilon=4.0, privacy__clip__bound=1.0,
    )  # fmt: skip
    start = run(tmp_path / "s", rounds=1, baseline="non-private", algorithm__gamma=1e-9)
    assert outcome.result["epsilon_proven"] <= 4.0
    assert outcome.result["truth_rmse_mean"] < 0.5 * start.result["truth_rmse_mean"]


def test_sound_lasso_recovers_most_of_the_truth(tmp_path: Path) -> None:
    outcome = gossamer.run("dp-dkm/lasso", {"evaluation.every": 1000}, out=tmp_path / "r")
    assert outcome.result["epsilon_proven"] <= 0.5
    assert outcome.result["truth_rmse_mean"] < 0.3  # zeros have 0.46 on this seed


def test_the_central_baseline_from_the_command_line(command: Any, tmp_path: Path) -> None:
    words = ["--set", "baseline=central", "--set", "rounds=3", "--out", "r", "--json"]
    assert command("run", "dp-dkm/lasso", *words)[0] == 0
    assert len(list((tmp_path / "r").glob("ledger*.jsonl"))) == 1
