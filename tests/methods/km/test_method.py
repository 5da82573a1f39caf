"""DP-dKM as a method: what carries noise, what a round is, and what is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.support.configurations import configured, outlined
from tests.support.mechanism import Book, noise_of
from tests.support.refusals import expect_refusal
from torch import Tensor

from gossamer.accounting.proven import proven
from gossamer.config.checks import refuse
from gossamer.kernels.noise import Stream
from gossamer.mechanism.clipping import Constant
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.mechanism.noise.shaped import Laplace, TruncatedGaussian, TruncatedLaplace
from gossamer.mechanism.sampling import Single
from gossamer.methods import method_of
from gossamer.methods.claims import Draws
from gossamer.methods.km.method import NoisyMessages, Theorem1
from gossamer.training.api import configure
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan

LASSO = "dp-dkm/lasso"
ON_ITERATE = {"privacy.noise.on": "iterate"}
GROWING = {"privacy.noise.schedule": {"kind": "growing-budget", "ratio": 2.0}}


@pytest.mark.parametrize(
    ("refused", "key", "accepted"),
    [
        ({"algorithm.resolvent": "node"}, "algorithm.resolvent node", {"algorithm.resolvent": "record"}),
        (
            {"algorithm.resolvent": "node"},
            "algorithm.resolvent node record",
            {"algorithm.resolvent": "node", "privacy.noise.schedule": {"kind": "none"}},
        ),
        (ON_ITERATE, "privacy.noise.on iterate", {**ON_ITERATE, "mode": "paper"}),
        ({**ON_ITERATE, "algorithm.mixes": 2}, "privacy.noise.on iterate", {"algorithm.mixes": 2}),
        ({**ON_ITERATE, "algorithm.final_gossip": 3}, "privacy.noise.on iterate", {"algorithm.final_gossip": 3}),
        ({**ON_ITERATE, "privacy.centre": 0.1}, "privacy.noise.on iterate", {"privacy.centre": 0.1}),
        (
            {**ON_ITERATE, **GROWING},
            "privacy.noise.on iterate privacy.noise.schedule.kind growing-budget",
            {**ON_ITERATE, "privacy.noise.schedule": {"kind": "constant"}, "mode": "paper"},
        ),
    ],
)
def test_what_noise_and_operators_cannot_be_combined_with(
    refused: dict[str, Any], key: str, accepted: dict[str, Any]
) -> None:
    with expect_refusal(names=key):
        refuse(method_of(configured(LASSO, **refused)).noise_refusals())
    refuse(method_of(configured(LASSO, **accepted)).noise_refusals())


def test_a_round_in_paper_mode_is_algorithm_one(tmp_path: Path) -> None:
    """x ← W x̃ + α (T(x) − x) with T at the un-noised x: the noise enters through the messages alone."""
    parts = assemble(Plan.of(configured(LASSO, mode="paper", privacy__noise__source="seeded", seed=3)))
    sent: list[Tensor] = []

    class Wire:
        bytes_sent = 0

        def __call__(self, t: int, x: Tensor) -> Tensor:
            sent.append(x)
            return x.mean(0, keepdim=True).expand_as(x)

    class Book:
        def write(self, releases: Any) -> None: ...

    algorithm, book = parts.plan.algorithm, Book()
    grad = parts.reader(book)
    exchange = parts.plan.method.noised(Wire(), parts, book, parts.stream)
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
        ({"algorithm__operator": "sideways"}, "algorithm.operator douglas-rachford"),
        ({"algorithm__gamma": -1.0}, "algorithm.gamma"),
        ({"algorithm__lr": 1.5}, "algorithm.lr relaxation"),
        ({"algorithm__penalty": {"kind": "l2"}}, "algorithm.penalty.weight l2"),
        ({"algorithm__penalty": {"kind": "l1", "weight": "0.1"}}, "algorithm.penalty.weight 0.1"),
        ({"algorithm__penalty": {"kind": "l7", "weight": 1.0}}, "algorithm.penalty.kind l7"),
        ({"algorithm__penalty": {"kind": "l1", "weight": 0.1, "width": 2}}, "algorithm.penalty.width l1"),
        ({"algorithm__smoothness": 100.0}, "algorithm.gamma 0.1 2 0.02"),
        ({"data__scale": "unit-ball", "algorithm__gamma": 2.5}, "algorithm.gamma 2.5"),
        ({"loss": {"kind": "hinge"}}, "algorithm.operator forward-backward douglas-rachford"),
        ({"loss": {"kind": "logistic"}}, "loss.kind logistic"),
        ({"loss": {"kind": "cubic"}}, "loss.kind cubic"),
        ({"model__kind": "mlp"}, "model.kind linear"),
        ({"model__kind": "mlp", "loss": None, "algorithm__operator": "backward"}, "loss.kind"),
        ({"privacy__noise__on": "iterate"}, "privacy.noise.on iterate"),
        ({"algorithm__resolvent": "node"}, "algorithm.resolvent node record"),
        ({"privacy__noise__family": {"kind": "cauchy"}}, "privacy.noise.family.kind cauchy"),
        ({"privacy__noise__family": {"kind": "truncated-generalised", "shape": 0.5}}, "privacy.noise.family.shape 0.5"),
        ({"mode": "paper", "privacy__epsilon": 3.0}, "epsilon 3.0 1"),
        ({"data__positive": 1}, "data.positive 1"),
    ],
)  # fmt: skip
def test_mistakes_end_in_one_sentence(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    with expect_refusal(names=says) as caught:
        assemble(outlined(LASSO, **changes))
    assert "\n" not in str(caught.value)


def test_other_methods_refuse_its_noise_on_iterates() -> None:
    with expect_refusal(key="privacy.noise.on", value="iterate", names="dp-dkm"):
        Plan.of(configured("quickstart", privacy__noise__on="iterate"))


@dataclass(frozen=True)
class MeanOfTheLot:
    """Its resolvent looks at all targets of a lot: no clip bounds what one record moves."""

    curvature: ClassVar[float] = 1.0
    binary: ClassVar[bool] = False

    def value(self, t: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (t - y).square()

    def implicit_slope(self, t: Tensor, y: Tensor, c: Tensor) -> Tensor:
        return (t - y.mean(1, keepdim=True)) / (1 + c)


def test_resolvents_are_of_losses_of_this_library() -> None:
    own = configure(LASSO, {"algorithm.operator": "backward"}, loss=MeanOfTheLot())
    with expect_refusal(key="loss", value="MeanOfTheLot", names="forward-backward", remedy=True):
        Plan.of(own)
    Plan.of(configure(LASSO, loss=MeanOfTheLot()))  # its gradients are traced for one record


ALPHAS = (1.0, 0.8, 0.5, 0.4, 0.1)
RULE = Theorem1(ALPHAS, 0.2, 0.7, 60)


def test_the_sensitivity_is_the_double_sum() -> None:
    for K in range(1, 6):
        drift = sum((1 + 2 * ALPHAS[k]) * ALPHAS[j] * 0.7 ** (k - 1 - j) for k in range(K) for j in range(k))
        expected = 2 * 0.2 * sum(ALPHAS[:K]) / 60 + 4 * 0.2 * drift
        assert RULE.sensitivity(K) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("noise", [Laplace(), TruncatedLaplace(), TruncatedGaussian(), Gaussian()])
def test_the_noise_of_a_budget_is_claimed_to_cost_it(noise: object) -> None:
    run = Draws(5, Constant(1.0), noise, Single(), 1.0, 10)  # type: ignore[arg-type]
    sigma, end = RULE.noise(run, 0.1, 0.5, 1e-3)
    assert end is not None
    assert RULE.claim(run, sigma, 0.1, 1e-3, 5).epsilon == pytest.approx(0.5, rel=1e-6)
    assert RULE.covers(run.noise)
    assert sigma > 0


def test_laplace_is_sensitivity_over_epsilon() -> None:
    run = Draws(5, Constant(1.0), Laplace(), Single(), 1.0, 10)
    sigma, end = RULE.noise(run, 0.1, 0.5, 1e-3)
    assert sigma == pytest.approx(RULE.sensitivity(5) / 0.5)
    assert end == float("inf")


class Exchange:
    bytes_sent = 0

    def __call__(self, t: int, x: torch.Tensor) -> torch.Tensor:
        return x


def test_noisy_messages_perturb_what_is_sent_and_log_every_message_and_the_bare_end() -> None:
    book = Book()
    messages = NoisyMessages(
        Exchange(), noise=noise_of(1.0, 2, Laplace()), scale=torch.tensor([0.5, 2.0]), stream=Stream.seeded(1),
        book=book, nodes=[0, 1], adjacency="replace-one",
    )  # fmt: skip
    x = torch.zeros(2, 20_000)
    sent = messages(0, x)
    assert float(x.abs().max()) == 0  # the node keeps its own iterate as it was
    np.testing.assert_allclose(sent.abs().mean(1), [0.5, 2.0], rtol=0.05)
    assert not torch.equal(sent, messages(1, x))
    messages.publish(20_000)
    events = [event for _, event in book.events]
    assert [event.release.kind for event in events] == ["laplace"] * 4 + ["none"] * 2
    assert all(math.isinf(event.release.sensitivity) for event in events)
    assert math.isinf(proven(events, 1e-3, "replace-one").epsilon)
