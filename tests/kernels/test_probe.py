"""A second look: methods that are not the module's gradient are found out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.support.per_sample import cross_entropy, problem
from torch import nn

from gossamer.kernels.bookkeeping import BookKeeping
from gossamer.kernels.oracle import Vmap
from gossamer.kernels.probe import disagreement


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
        def weighted(self, *args: Any, target: torch.Tensor, add: bool) -> torch.Tensor:
            norms = super().weighted(*args, target=target, add=add)
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
