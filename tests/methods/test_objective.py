"""What is minimised: losses against torch's own and formulas, and what does not fit together."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.support.configurations import configured
from tests.support.refusals import expect_refusal
from torch import nn

from gossamer.kernels.clipped_sum import CentredSum
from gossamer.methods.base import gradient_vector, linear_loss, per_sample_loss, prediction_task
from gossamer.models.layers import Centred
from gossamer.models.losses import Classification, MultiLabel, Regression

OUT = torch.tensor([[0.5, -1.0, 2.0], [0.0, 3.0, -2.0]])
Y = torch.tensor([2, 0])
SIGNS = torch.tensor([[-1.0, -1.0, 1.0], [1.0, -1.0, -1.0]])


def logistic(outputs: torch.Tensor) -> torch.Tensor:
    return torch.log1p(torch.exp(-SIGNS * outputs)).sum(1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, lambda: torch.logsumexp(OUT, 1) - OUT.gather(1, Y[:, None])[:, 0]),
        (
            {"loss": {"kind": "cross-entropy"}},
            lambda: torch.logsumexp(OUT, 1) - OUT.gather(1, Y[:, None])[:, 0],
        ),
        ({"loss": {"kind": "squared"}}, lambda: 0.5 * (OUT - (SIGNS > 0).float()).square().sum(1)),
        ({"loss": {"kind": "logistic"}}, lambda: logistic(OUT)),
        ({"model__kind": "one-vs-all"}, lambda: logistic(OUT)),
    ],
)
def test_losses_over_classes(changes: dict[str, Any], expected: Any) -> None:
    loss = per_sample_loss(3, configured(**changes))
    torch.testing.assert_close(loss(OUT, Y), expected())


def test_numbers_are_half_squares_and_a_named_loss_is_itself() -> None:
    outputs, y = torch.tensor([[1.0], [3.0]]), torch.tensor([[0.0], [1.0]])
    assert per_sample_loss(None)(outputs, y).tolist() == [0.5, 2.0]
    quantile = configured("dp-dkm/lasso", loss={"kind": "quantile", "tau": 0.25})
    assert per_sample_loss(None, quantile)(outputs, y).tolist() == pytest.approx([0.75, 1.5])


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ({"kind": "huber", "delta": 0.5}, [0.375, 0.875]),
        ({"kind": "quantile", "tau": 0.9}, [0.1, 0.2]),
        ({"kind": "poisson"}, [math.e, math.e**3 - 3]),
        ({"kind": "squared"}, [0.5, 2.0]),
        ({"kind": "least-squares"}, [0.5, 2.0]),
    ],
)
@pytest.mark.parametrize("model", ["mlp", "linear"])
def test_numbers_have_their_losses_on_any_network(loss: dict[str, Any], expected: list[float], model: str) -> None:
    outputs, y = torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 1.0])
    config = configured(loss=loss, model={"kind": model})
    assert per_sample_loss(None, config)(outputs, y).tolist() == pytest.approx(expected)


def test_the_task_follows_from_labels_and_loss() -> None:
    assert prediction_task(10, None, configured()) == Classification(10, "softmax")
    assert prediction_task(3, None, configured(model__kind="one-vs-all")) == Classification(3, "sigmoid")
    assert prediction_task(3, None, configured(loss={"kind": "squared"})) == Classification(3, None)
    assert prediction_task(None, None, configured()) == Regression()
    assert prediction_task(None, None, configured(loss={"kind": "poisson"})) == Regression("exp")
    quantile = configured(loss={"kind": "quantile", "tau": 0.9})
    assert prediction_task(None, None, quantile) == Regression(None, 0.9)
    assert prediction_task(None, 4, configured()) == MultiLabel(4, "sigmoid")


@pytest.mark.parametrize(
    ("recipe", "changes", "classes", "says"),
    [
        ("quickstart", {"loss": {"kind": "huber"}}, 10, "loss.kind huber 10"),
        ("quickstart", {"loss": {"kind": "poisson"}}, 10, "loss.kind poisson"),
        ("quickstart", {"loss": {"kind": "hinge"}}, None, "loss.kind hinge"),
        ("quickstart", {"loss": {"kind": "hinge"}}, 10, "loss.kind hinge"),
        ("dp-dkm/lasso", {"loss": {"kind": "cross-entropy"}}, 10, "loss.kind cross-entropy model.kind linear least-squares logistic"),
        ("dp-dkm/lasso", {"loss": {"kind": "logistic"}}, None, "loss.kind logistic labels classes data"),
        ("dp-dkm/lasso", {"loss": {"kind": "logistic"}}, 3, "loss.kind logistic data 3 classes"),
        ("dp-dkm/lasso", {"loss": {"kind": "huber"}}, 2, "loss.kind targets"),
        ("dp-dkm/lasso", {"loss": None}, 2, "model.kind linear loss.kind logistic hinge softmax"),
        ("quickstart", {"loss": {"kind": "logistic"}}, None, "loss.kind logistic labels classes data"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(recipe: str, changes: dict[str, Any], classes: int | None, says: str) -> None:
    config = configured(recipe, **changes)
    with expect_refusal(names=says):
        per_sample_loss(classes, config)


def test_the_data_decide_where_no_loss_is_named() -> None:
    assert linear_loss(configured()) is None
    assert linear_loss(configured(loss={"kind": "squared"})) is None
    assert linear_loss(configured("dp-dkm/lasso")) is not None


def test_the_vector_is_the_sum_of_autograds_gradients() -> None:
    torch.manual_seed(0)
    net, x, y = nn.Linear(4, 3), torch.randn(1, 5, 4), torch.tensor([[0, 1, 2, 1, 0]])
    point = torch.cat([p.detach().flatten() for p in net.parameters()])[None]
    mask = torch.ones(1, 5, dtype=torch.bool)
    sums, norms = gradient_vector(configured(), net, 3)(point, x, y, mask, torch.ones_like)
    loss = nn.functional.cross_entropy(net(x[0]), y[0], reduction="none")
    each = [
        torch.cat([g.flatten() for g in torch.autograd.grad(one, net.parameters(), retain_graph=True)]) for one in loss
    ]
    torch.testing.assert_close(sums[0], torch.stack(each).sum(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(norms[0], torch.stack(each).norm(dim=1), rtol=1e-4, atol=1e-6)


LABELLED = {"data": {"kind": "synthetic-labels", "several": 3}}


@pytest.mark.parametrize(
    ("changes", "y", "loss"),
    [
        (
            LABELLED,
            torch.eye(3)[[0, 1, 2, 1]],
            nn.functional.binary_cross_entropy_with_logits,
        ),
        ({"loss": {"kind": "poisson"}}, torch.tensor([0.0, 1, 4, 2]), lambda t, y: t[0].exp() - y * t[0]),
        (
            {"loss": {"kind": "huber"}},
            torch.tensor([0.0, 9, -4, 2]),
            lambda t, y: nn.functional.huber_loss(t[0], y, delta=1.35),
        ),
    ],
    ids=["labels", "poisson", "huber"],
)
def test_a_record_is_alone_under_every_loss(changes: dict[str, Any], y: torch.Tensor, loss: Any) -> None:
    """Clipped sums, by whatever method the kernel took, are those of autograd's gradients one by one."""
    torch.manual_seed(1)
    count = 3 if y.ndim == 2 else 1
    net, x = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, count)), torch.randn(4, 4)
    point = torch.cat([p.detach().flatten() for p in net.parameters()])[None]
    vector = gradient_vector(configured(model={"kind": "mlp"}, **changes), net, None)

    def weigh(norms: torch.Tensor) -> torch.Tensor:
        return (0.3 / norms).clamp_max(1)

    sums, _ = vector(point, x[None], y[None], torch.ones(1, 4, dtype=torch.bool), weigh)
    expected = torch.zeros_like(point[0])
    for one, label in zip(x, y, strict=True):
        value = count * loss(net(one), label)
        own = torch.cat([g.flatten() for g in torch.autograd.grad(value, list(net.parameters()))])
        expected += own * (0.3 / own.norm()).clamp_max(1)
    torch.testing.assert_close(sums[0], expected, rtol=1e-4, atol=1e-6)


def test_a_mean_that_overflows_moves_nothing() -> None:
    net, x = nn.Linear(2, 1), torch.tensor([[1.0, 0.0], [1e30, 0.0]])
    point = torch.tensor([[1.0, 0.0, 0.0]])
    vector = gradient_vector(configured(model={"kind": "linear"}, loss={"kind": "poisson"}), net, None)
    sums, _ = vector(point, x[None], torch.ones(1, 2), torch.ones(1, 2, dtype=torch.bool), torch.ones_like)
    torch.testing.assert_close(sums[0], torch.tensor([math.e - 1, 0.0, math.e - 1]))


def test_several_labels_refuse_what_is_of_one() -> None:
    for changes, says in (
        ({"loss": {"kind": "huber"}}, "loss.kind huber"),
        ({"model": {"kind": "linear"}}, "model.kind linear"),
    ):
        with expect_refusal(names=says):
            per_sample_loss(None, configured(**LABELLED, **changes))


def test_a_centred_network_first_asks_for_the_mean_of_the_records() -> None:
    net, x = Centred(nn.Linear(4, 3), 4), torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(0))
    vector = gradient_vector(configured(), net, 3)
    assert isinstance(vector, CentredSum)
    size = sum(p.numel() for p in net.parameters())
    mask = torch.ones(1, 5, dtype=torch.bool)
    sums, _ = vector(torch.zeros(1, size), x, torch.zeros(1, 5, dtype=torch.long), mask, torch.ones_like)
    torch.testing.assert_close(sums[0, :4], x[0].sum(0))
    assert not sums[0, 4:].any()


def test_weights_of_classes_multiply_the_loss_before_the_clip() -> None:
    weights = [float(i + 1) for i in range(10)]
    vector = gradient_vector(configured(data__class_weights=weights), nn.Linear(5, 10), 10)
    plain = gradient_vector(configured(), nn.Linear(5, 10), 10)
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(1, 7, 5, generator=draw), torch.randint(0, 10, (1, 7), generator=draw)
    point, mask = torch.randn(1, 60, generator=draw), torch.ones(1, 7, dtype=torch.bool)
    norms = plain(point, x, y, mask, torch.ones_like)[1]
    found, weighted = vector(point, x, y, mask, torch.ones_like)
    assert torch.allclose(weighted, norms * torch.tensor(weights)[y], rtol=1e-5)
    clipped, _ = vector(point, x, y, mask, lambda n: 1e-3 / n)
    assert float(clipped.norm()) <= 7e-3 * (1 + 1e-5)
    own = point[0].clone().requires_grad_()
    outputs = x[0] @ own[:50].view(10, 5).T + own[50:]
    losses = nn.functional.cross_entropy(outputs, y[0], reduction="none")
    (torch.tensor(weights)[y[0]] * losses).sum().backward()  # type: ignore[no-untyped-call]
    assert own.grad is not None
    assert torch.allclose(found[0], own.grad, atol=1e-5)


def test_weights_that_do_not_fit_are_refused() -> None:
    with expect_refusal(key="data.class_weights", names="2 10"):
        gradient_vector(configured(data__class_weights=[1.0, 2.0]), nn.Linear(5, 10), 10)
    with expect_refusal(key="data.class_weights", names="classes"):
        gradient_vector(configured(data__class_weights="private"), nn.Linear(5, 1), None)
