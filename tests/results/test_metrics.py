"""Scores of models against numbers computed by hand, alone and over several hosts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gossamer
from gossamer.kernels.stack import ParameterStack
from gossamer.methods.base import per_sample_loss
from gossamer.models.losses import SOFTMAX, task_of
from gossamer.training.evaluate import Evaluator


class Alone:
    first = True

    def join(self, items: Sequence[Any], *, per_node: bool = False) -> list[Any]:
        return list(items)

    def mean(self, points: Tensor) -> Tensor:
        return points.mean(0)


def evaluator(classes: int | None, x: Tensor, y: Tensor, truth: Any = None, outputs: int | None = None) -> Evaluator:
    net = nn.Linear(x.shape[1], outputs or classes or 1, bias=False)
    loss = per_sample_loss(classes) if outputs is None else lambda o, t: o.flatten() * 0
    task = task_of(classes, None, None if classes is None else SOFTMAX)
    return Evaluator(net, ParameterStack(net), loss, x, y, task=task, group=Alone(), truth=truth)


def test_accuracy_and_loss_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2500, 4)), rng.integers(0, 3, 2500)  # more than one batch
    W = rng.normal(size=(5, 3, 4))
    points = torch.from_numpy(W.reshape(5, 12)).float()
    found = evaluator(3, torch.from_numpy(x).float(), torch.from_numpy(y))(points)
    logits = np.einsum("nkd,bd->nbk", W, x)
    right = (logits.argmax(2) == y).mean(1)
    losses = (np.log(np.exp(logits).sum(2)) - np.take_along_axis(logits, y[None, :, None], 2)[..., 0]).mean(1)
    assert found["accuracy_by_node"] == pytest.approx(right.tolist(), abs=1e-3)
    assert found["accuracy_mean"] == pytest.approx(right.mean(), abs=1e-3)
    assert (found["accuracy_min"], found["accuracy_max"]) == (
        min(found["accuracy_by_node"]),
        max(found["accuracy_by_node"]),
    )
    assert found["loss_mean"] == pytest.approx(losses.mean(), rel=1e-4)
    assert found["loss_max"] == pytest.approx(losses.max(), rel=1e-4)
    middle = W.mean(0)
    assert found["accuracy_average_model"] == pytest.approx(((x @ middle.T).argmax(1) == y).mean(), abs=1e-3)
    spread = np.sqrt(((W - middle) ** 2).sum((1, 2)).mean())
    assert found["consensus_distance"] == pytest.approx(spread, rel=1e-5)
    assert found["hold_out_rows"] == 2500


def test_numbers_are_judged_by_their_error_and_coefficients_by_the_truth() -> None:
    x, y = torch.eye(2), torch.tensor([1.0, 2.0])
    found = evaluator(None, x, y, truth=np.array([1.0, 2.0]))(torch.tensor([[1.0, 2.0], [1.0, 4.0]]))
    assert (found["rmse_min"], found["rmse_max"]) == (0.0, pytest.approx(np.sqrt(2.0)))
    assert found["truth_rmse_mean"] == pytest.approx(np.sqrt(2.0) / 2)
    assert found["truth_rmse_average_model"] == pytest.approx(np.sqrt(0.5))
    assert found["rmse_average_model"] == pytest.approx(np.sqrt(0.5))


def test_a_truth_of_another_size_and_a_hold_out_without_rows_are_left_out() -> None:
    found = evaluator(None, torch.zeros(0, 2), torch.zeros(0), truth=np.ones(5))(torch.ones(3, 2))
    assert found == {"consensus_distance": 0.0}


def test_a_single_output_is_read_by_its_sign_and_rows_can_be_fewer() -> None:
    x, y = torch.tensor([[1.0], [-1.0], [2.0], [-3.0]]), torch.tensor([1, 0, 0, 1])
    judge = evaluator(2, x, y, outputs=1)
    assert judge(torch.tensor([[1.0], [-1.0]]))["accuracy_by_node"] == [0.5, 0.5]
    assert judge(torch.tensor([[1.0], [-1.0]]), rows=2)["accuracy_by_node"] == [1.0, 0.0]


class Quotient(nn.Module):
    """Of the smallest whole number by −1 the processor makes a signal, not an exception."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.div(x.long(), -1, rounding_mode="trunc").float().clamp(-1, 1))


class Sampled(nn.Module):
    """Reads an image where the record says; torch's own loop reads past it where that is not a number."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        grid = (x * 1e20 - x * 1e20).view(-1, 2, 1, 2).expand(-1, 2, 2, 2)
        image = x.view(-1, 1, 2, 2)
        return self.head(nn.functional.grid_sample(image, grid, padding_mode="border", align_corners=False).flatten(1))


@pytest.mark.parametrize("module", [Quotient, Sampled])
def test_no_record_of_a_hold_out_ends_the_process(module: type[nn.Module], tmp_path: Path) -> None:
    x = torch.full((80, 4), -(2.0**63))
    changes = {"nodes": 2, "rounds": 1, "data.classes": 2, "data.records": 40, "privacy.epsilon": 4.0}
    outcome = gossamer.run("quickstart", changes, module=module(), data=(x, torch.arange(80) % 2), out=tmp_path / "run")
    assert outcome.certificate["epsilon_proven"] <= 4.0
