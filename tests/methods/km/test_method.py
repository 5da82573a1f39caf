"""DP-dKM as a method: what carries noise, what a round is, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from tests.support.configurations import configured, outlined
from tests.support.registries import forgotten
from torch import Tensor

from gossamer.errors import UserError
from gossamer.training.api import configure
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan

LASSO = "dp-dkm/lasso"


def test_a_round_in_paper_mode_is_algorithm_one(tmp_path: Path) -> None:
    """x ← W x̃ + α (T(x) − x) with T at the un-noised x: the noise enters through the messages alone."""
    parts = assemble(Plan.of(configured(LASSO, mode="paper", privacy__noise__source="seeded", seed=3)))
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
        def write(self, releases: Any) -> None: ...

    algorithm, book = parts.plan.algorithm, Book()
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
    parts = assemble(Plan.of(configured(LASSO, privacy__noise__source="seeded")))
    algorithm = parts.plan.algorithm
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
        assemble(outlined(LASSO, **changes))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_methods_refuse_its_noise_on_iterates() -> None:
    with pytest.raises(UserError, match="dp-dkm"):
        Plan.of(configured("quickstart", privacy__noise__on="iterate"))


@dataclass(frozen=True)
class MeanOfTheLot:
    """Its resolvent looks at all targets of a lot: no clip bounds what one record moves."""

    curvature: ClassVar[float] = 1.0
    binary: ClassVar[bool] = False

    def value(self, t: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (t - y).square()

    def slope(self, t: Tensor, y: Tensor) -> Tensor:
        return t - y

    def implicit_slope(self, t: Tensor, y: Tensor, c: Tensor) -> Tensor:
        return (t - y.mean(1, keepdim=True)) / (1 + c)


def test_resolvents_are_of_losses_of_this_library() -> None:
    with forgotten():
        own = configure(LASSO, {"algorithm.operator": "backward"}, loss=MeanOfTheLot())
        with pytest.raises(UserError, match="which it might mix; use operator = 'forward-backward'"):
            Plan.of(own)
        Plan.of(configure(LASSO, loss=MeanOfTheLot()))  # its gradients are traced for one record
