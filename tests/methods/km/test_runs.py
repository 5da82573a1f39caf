"""dp-dkm as a user runs it: both modes, every operator, loss and noise, and what is refused."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gossamer
from gossamer.accounting.ledger import read_all
from gossamer.accounting.releases import TruncatedLaplace
from gossamer.cli import main
from gossamer.config.layers import resolve
from gossamer.config.recipes import read
from gossamer.errors import UserError
from gossamer.methods.km.operators import OPERATORS
from gossamer.run.assemble import assemble
from gossamer.run.outline import outline

SHORT = {"rounds": 6, "evaluation.every": 100}


def run(out: Path, recipe: str = "dp-dkm/lasso", **changes: Any) -> Any:
    settings = {**SHORT, **{key.replace("__", "."): value for key, value in changes.items()}}
    return gossamer.run(recipe, settings, out=out)


def configured(recipe: str = "dp-dkm/lasso", **changes: Any) -> Any:
    return resolve(read(recipe), {key.replace("__", "."): value for key, value in changes.items()})


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
    events = read_all(tmp_path / "r" / "ledger")[0][1]
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
    written = read_all(tmp_path / "r" / "ledger")[0][1][0].release
    W = np.array([[1 if (i - j) % 5 in (0, 1, 4) else 0 for j in range(5)] for i in range(5)]) / 3
    mixing = np.sort(np.abs(np.linalg.eigvalsh(W)))[-2]
    B, alpha, spread = 0.05 * 1e-4, 1.0, 0.0
    for k in range(4):
        spread += (1 + 2 * alpha) * sum(alpha * mixing ** (k - 1 - j) for j in range(k))
    sensitivity = 2 * B * 4 * alpha / 500 + 4 * B * spread
    assert isinstance(written, TruncatedLaplace)
    assert written.sigma == pytest.approx(sensitivity / 0.5, rel=1e-6)
    assert written.bound == pytest.approx(written.sigma * math.log1p(math.expm1(0.5) / 2e-3), rel=1e-6)


def test_a_round_in_paper_mode_is_algorithm_one(tmp_path: Path) -> None:
    """x ← W x̃ + α (T(x) − x) with T at the un-noised x: the noise enters through the messages alone."""
    parts = assemble(outline(configured(mode="paper", privacy__noise__source="seeded", seed=3)))
    sent: list[Tensor] = []

    class Wire:
        bytes_sent = 0

        def __call__(self, t: int, x: Tensor) -> Tensor:
            sent.append(x)
            return x.mean(0, keepdim=True).expand_as(x)

    class Group:
        def exchange(self, *settings: Any) -> Wire:
            return Wire()

    class Book:
        def append(self, node: int, event: Any) -> None: ...

    algorithm, book = parts.outline.algorithm, Book()
    grad = parts.reader(book)
    exchange = parts.exchange(
        Group(),
        "a run",
        grad,
        book,
        state=None,
        known_at=(),
        bytes_sent=0,  # type: ignore[arg-type]
    )
    asked: list[Tensor] = []
    answers: list[Tensor] = []

    def watched(points: Tensor) -> Tensor:
        asked.append(points)
        answers.append(grad(points))
        return answers[-1]

    state = algorithm.init(torch.randn(5, 10, generator=torch.Generator().manual_seed(0)))
    after = algorithm.step(state, watched, lambda x: exchange(0, x), 0)
    assert torch.equal(asked[0], state.x)
    assert not torch.equal(sent[0], state.x)
    forward = state.x - 0.05 * answers[0]
    proximal = forward.sign() * (forward.abs() - 0.05 * 0.02).clamp_min(0)
    torch.testing.assert_close(after.x, sent[0].mean(0, keepdim=True) + (proximal - state.x))


def test_sound_mode_sends_what_it_evaluates_the_operator_at(tmp_path: Path) -> None:
    """Messages are post-processing of noised answers: x goes out as it is, and T is asked at that x."""
    parts = assemble(outline(configured(privacy__noise__source="seeded")))
    algorithm = parts.outline.algorithm
    seen: dict[str, Tensor] = {}

    def grad(points: Tensor) -> Tensor:
        seen["asked"] = points
        return torch.ones_like(points)

    def mix(x: Tensor) -> Tensor:
        seen["sent"] = x
        return x

    state = algorithm.init(torch.ones(5, 10))
    after = algorithm.step(state, grad, mix, 0)
    assert seen["sent"] is state.x
    assert seen["asked"] is state.x
    torch.testing.assert_close(after.x, torch.full((5, 10), 1 - 0.1 - 0.1 * 0.02))


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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"algorithm__operator": "sideways"}, "douglas-rachford"),
        ({"algorithm__gamma": -1.0}, "algorithm.gamma"),
        ({"algorithm__lr": 1.5}, "relaxation"),
        ({"algorithm__penalty": {"kind": "l2"}}, "algorithm.penalty"),
        ({"algorithm__penalty": {"kind": "l1", "weight": "0.1"}}, "algorithm.penalty"),
        ({"algorithm__penalty": {"kind": "l7", "weight": 1.0}}, "algorithm.penalty"),
        ({"algorithm__penalty": {"kind": "l1", "weight": 0.1, "width": 2}}, "algorithm.penalty"),
        ({"algorithm__smoothness": 100.0}, "2/L = 0.02"),
        ({"data__scale": "unit-ball", "algorithm__gamma": 2.5}, "2/L = 2"),
        ({"loss": {"kind": "hinge"}}, "'backward' or 'douglas-rachford'"),
        ({"loss": {"kind": "logistic"}}, "two classes"),
        ({"loss": {"kind": "cubic"}}, "loss.kind = 'cubic'"),
        ({"model__kind": "mlp"}, "model.kind = 'linear'"),
        ({"model__kind": "mlp", "loss": None, "algorithm__operator": "backward"}, "loss.kind"),
        ({"privacy__noise__on": "iterate"}, "no proof"),
        ({"algorithm__resolvent": "node"}, "'record'"),
        ({"privacy__noise__family": {"kind": "cauchy"}}, "privacy.noise.family"),
        ({"privacy__noise__family": {"kind": "truncated-generalised", "shape": 0.5}}, "shape"),
        ({"privacy__noise__family": {"kind": "laplace"}, "privacy__noise__arithmetic": "lattice"}, "lattice"),
        ({"mode": "paper", "privacy__epsilon": 3.0}, "ε ≤ 1"),
        ({"data__positive": 1}, "data.positive"),
    ],
)  # fmt: skip
def test_mistakes_end_in_one_sentence(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        assemble(outline(configured(**changes)))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_methods_refuse_its_noise_on_iterates() -> None:
    with pytest.raises(UserError, match="dp-dkm"):
        outline(configured("quickstart", privacy__noise__on="iterate"))


def test_noises_from_the_command_line(monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "gossamer",
        "plan",
        "dp-dkm/lasso",
        "--noises",
        "--json",
        "--set",
        "rounds=5",
        "--set",
        "data.features=2",
    ]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(
        "gossamer.accounting.noise_comparison.SHAPES", ()
    )  # what is priced number by number takes seconds
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    table = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (table["releases"], table["dimension"], table["epsilon"]) == (5, 2, 0.5)
    by_name = {line["noise"]: line for line in table["noises"]}
    assert by_name["truncated-gaussian"]["true_delta"] == pytest.approx(0.238, abs=1e-3)
    assert by_name["gaussian"]["proven_std"] < by_name["truncated-gaussian"]["proven_std"]
    assert list(tmp_path.iterdir()) == []


def test_other_noises_stop_at_the_budget_too() -> None:
    changes = {"privacy__noise__multiplier": 40.0, "privacy__noise__family": {"kind": "laplace"}}
    node = outline(configured(**changes)).plan.nodes[0]
    assert 1 < node.allowance < 80
    assert node.proven.epsilon <= 0.5
    more = outline(configured(**changes, rounds=node.allowance + 1, privacy__epsilon=9.0)).plan.nodes[0]
    assert more.allowance == node.allowance + 1
    assert more.proven.epsilon > 0.5


def test_the_central_baseline_from_the_command_line(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "gossamer",
        "run",
        "dp-dkm/lasso",
        "--set",
        "baseline=central",
        "--set",
        "rounds=3",
        "--out",
        "r",
        "--json",
    ]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert len(list((tmp_path / "r" / "ledger").glob("node-*.jsonl"))) == 1


def test_positive_makes_two_classes() -> None:
    from gossamer.data.load import load

    digits = load("digits", positive=3)
    assert digits.classes == 2
    assert 0.05 < digits.y_train.mean() < 0.15
    np.testing.assert_array_equal(digits.y_train == 1, load("digits").y_train == 3)


def test_logistic_data_follow_their_truth() -> None:
    from gossamer.data.load import load

    made = load("synthetic-logistic", n=20_000, features=4, seed=1)
    share = 1 / (1 + np.exp(-made.x_train @ made.truth))
    for low, high in ((0.1, 0.3), (0.45, 0.55), (0.7, 0.9)):
        near = (share > low) & (share < high)
        assert made.y_train[near].mean() == pytest.approx(share[near].mean(), abs=0.03)
