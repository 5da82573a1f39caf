"""A second look: methods that are not the module's gradient are found out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.per_sample import cross_entropy, problem
from torch import nn

from gossamer.kernels.bookkeeping import BookKeeping
from gossamer.kernels.clipped_sum import ClippedSum, disagreement
from gossamer.kernels.oracle import Vmap
from gossamer.kernels.persons import Part
from gossamer.kernels.stack import ParameterStack


@pytest.mark.parametrize("kind", [BookKeeping, Vmap])
@pytest.mark.parametrize("case", ["mlp", "conv", "embedding", "residual"])
def test_methods_that_are_right_agree(kind: Any, case: str) -> None:
    module, points, x, y = problem(case, 2, 2, 0)
    make = lambda m: kind(m, cross_entropy, x, y)  # noqa: E731
    assert disagreement(make, make(module), points, x, y) is None


@pytest.mark.parametrize("factor", [0.9, 1.1, -1.0])
def test_a_sum_or_norms_of_something_else_are_found(factor: float) -> None:
    module, points, x, y = problem("mlp", 2, 2, 0)

    class Wrong(BookKeeping):
        def weighted(self, part: Part, weigh: Any, target: torch.Tensor) -> torch.Tensor:
            norms = super().weighted(part, weigh, target)
            target *= factor
            return norms

    make = lambda m: Wrong(m, cross_entropy, x, y)  # noqa: E731
    assert "gradients differ" in str(disagreement(make, make(module), points, x, y))


def test_dropout_is_compared_in_evaluation() -> None:
    module, points, x, y = problem("mlp", 2, 2, 0)
    module = nn.Sequential(module[0], nn.Dropout(0.5), module[2])
    made = []

    def make(m: nn.Module) -> BookKeeping:
        made.append(m.training)
        return BookKeeping(m, cross_entropy, x, y)

    assert disagreement(make, BookKeeping(module, cross_entropy, x, y), points, x, y) is None
    assert made == [False]
    assert module.training


@pytest.mark.parametrize("norm_first", [False, True])
def test_rounding_of_huge_values_is_no_disagreement(norm_first: bool) -> None:
    """Post-norm attention on inputs of 1e6: plain float32 gradients are off by a factor of a thousand themselves."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    module = nn.Sequential(layer, nn.Flatten(), nn.Linear(32, 3))
    kernel = ClippedSum(module, nn.CrossEntropyLoss(reduction="none"))
    kernel.try_on(torch.zeros(1, 1, 4, 8), torch.zeros(1, 1, dtype=torch.int64))


@pytest.mark.parametrize("factor", [0.9, 1.1, 2.0])
def test_a_wrong_method_is_found_where_huge_values_tell_nothing(factor: float) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    module = nn.Sequential(layer, nn.Flatten(), nn.Linear(32, 3))
    x, y = torch.zeros(1, 1, 4, 8), torch.zeros(1, 1, dtype=torch.int64)
    loss = nn.CrossEntropyLoss(reduction="none")
    wrong = Vmap(module, lambda out, target: factor * loss(out, target), x, y)
    wrong.loss = loss
    points = ParameterStack(module).flatten(module)[None]
    assert disagreement(lambda module: wrong, wrong, points, x, y) is not None
