"""What is minimised: losses against torch's own and formulas, and what does not fit together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.configurations import configured
from torch import nn

from gossamer.errors import UserError
from gossamer.kernels.centred_sum import CentredSum
from gossamer.methods.objective import gradient_vector, linear_loss, per_sample_loss
from gossamer.models.centred import Centred

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
    ("recipe", "changes", "classes", "says"),
    [
        ("quickstart", {"loss": {"kind": "hinge"}}, 10, "loss.kind = 'hinge' is of a single number"),
        ("dp-dkm/lasso", {"loss": {"kind": "cross-entropy"}}, 10, "model.kind = 'linear' takes least-squares, logistic"),
        ("dp-dkm/lasso", {"loss": {"kind": "logistic"}}, None, "needs labels of two classes; these data have numbers"),
        ("dp-dkm/lasso", {"loss": {"kind": "logistic"}}, 3, "these data have 3 classes"),
        ("dp-dkm/lasso", {"loss": {"kind": "huber"}}, 2, "needs numbers as targets"),
        ("dp-dkm/lasso", {"loss": None}, 2, "needs loss.kind = 'logistic' or 'hinge'; or use 'softmax'"),
        ("quickstart", {"loss": {"kind": "logistic"}}, None, "needs classes; the data have numbers to predict"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    recipe: str, changes: dict[str, Any], classes: int | None, says: str
) -> None:
    config = configured(recipe, **changes)
    with pytest.raises(UserError) as caught:
        per_sample_loss(classes, config)
    assert says in str(caught.value)


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
        torch.cat([g.flatten() for g in torch.autograd.grad(one, net.parameters(), retain_graph=True)])
        for one in loss
    ]
    torch.testing.assert_close(sums[0], torch.stack(each).sum(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(norms[0], torch.stack(each).norm(dim=1), rtol=1e-4, atol=1e-6)


def test_a_centred_network_first_asks_for_the_mean_of_the_records() -> None:
    net, x = Centred(nn.Linear(4, 3), 4), torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(0))
    vector = gradient_vector(configured(), net, 3)
    assert isinstance(vector, CentredSum)
    size = sum(p.numel() for p in net.parameters())
    mask = torch.ones(1, 5, dtype=torch.bool)
    sums, _ = vector(torch.zeros(1, size), x, torch.zeros(1, 5, dtype=torch.long), mask, torch.ones_like)
    torch.testing.assert_close(sums[0, :4], x[0].sum(0))
    assert not sums[0, 4:].any()
