"""Weights from counts."""

from __future__ import annotations

import pytest
import torch

from gossamer.data.load import datasets
from gossamer.errors import UserError
from gossamer.preprocess import ClassWeights, Released

SOURCE = datasets.parse({"kind": "digits", "class_weights": "private", "most_weight": 4.0})
STEP = ClassWeights()


def weights(shares: list[float], noise: float = 0.0) -> list[float]:
    found = STEP.found(SOURCE, SOURCE.load(), Released(torch.tensor(shares), noise))
    return [float(weight) for weight in found["weights"]]


def test_classes_count_alike_within_the_limits() -> None:
    assert weights([0.5, 0.25, 0.25]) == pytest.approx([2 / 3, 4 / 3, 4 / 3], rel=1e-6)
    assert weights([0.98, 0.02]) == pytest.approx([0.5 / 0.98, 4.0], rel=1e-6)
    assert weights([0.9, *[0.1 / 9] * 9])[0] == 0.25


def test_a_share_below_its_noise_is_not_believed() -> None:
    assert weights([1.0, -0.2], noise=0.25) == pytest.approx([1.25 / 2, 1.25 / 0.5], rel=1e-6)
    assert weights([-1.0, -2.0], noise=0.5) == pytest.approx([1.0, 1.0])


def test_they_are_for_records_of_one_class_each() -> None:
    source = datasets.parse({"kind": "synthetic-regression", "class_weights": "private"})
    with pytest.raises(UserError, match="needs records of one class each"):
        STEP.summary(source, source.load())
