"""What every step keeps to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gossamer.data.dataset import Dataset
from gossamer.data.load import datasets
from gossamer.data.source import Source
from gossamer.preprocess import Released, Step, steps_of

ASKED = {
    "class-weights": {"class_weights": "private"},
    "moments": {"standardise": {"kind": "moments"}},
    "quantiles": {"standardise": {"kind": "quantiles"}},
    "components": {"pca": 3, "pca_from": "private"},
}


def digits(asked: dict[str, Any]) -> tuple[Source, Dataset, Step]:
    source = datasets.parse({"kind": "digits", **asked})
    (step,) = steps_of(source)
    return source, source.load(), step


def released(
    step: Step, source: Source, dataset: Dataset, noise: float, change: Callable[..., Any] = np.copy
) -> Released:
    """Without a node: the sum over all training records, and noise."""
    summary = step.summary(source, dataset)
    ones = torch.ones(len(dataset.y_train), dtype=torch.float64)
    x, y = torch.from_numpy(change(dataset.x_train)), torch.from_numpy(dataset.y_train)
    total = summary.total(x, y, ones)
    assert total.shape == (summary.size,)
    generator = torch.Generator().manual_seed(0)
    draw = noise * torch.randn(summary.size, generator=generator, dtype=torch.float64)
    return Released((total + draw) / len(y), noise / len(y))


@pytest.mark.parametrize("noise", [0.0, 10.0, 1e6])
@pytest.mark.parametrize("name", ASKED)
def test_whatever_is_released_gives_finite_records_of_the_shape_that_was_planned(
    name: str, noise: float
) -> None:
    source, dataset, step = digits(ASKED[name])
    assert step.released_as is step.summary(source, dataset).released_as
    assert step.part > 0
    found = step.found(source, dataset, released(step, source, dataset, noise))
    assert step.check(source, dataset, found)
    assert not step.check(source, dataset, {})
    assert not step.check(source, dataset, {key: value[..., :1] for key, value in found.items()})
    made = step.applied(source, dataset, found)
    assert np.isfinite(made.x_train).all()
    assert made.x_train.shape[1:] == source.shape_of(dataset)
    assert len(made.x_test) == len(dataset.x_test)


@pytest.mark.parametrize("name", ASKED)
def test_what_is_made_of_a_release_knows_nothing_else_of_the_records(name: str) -> None:
    """Other records, the same release: the same result."""
    source, dataset, step = digits(ASKED[name])
    said = released(step, source, dataset, 5.0)
    other = Dataset(
        **{
            **vars(dataset),
            "x_train": np.random.default_rng(0).normal(size=dataset.x_train.shape).astype(np.float32),
            "y_train": np.zeros_like(dataset.y_train),
        }
    )
    one, two = step.found(source, dataset, said), step.found(source, other, said)
    for key in one:
        assert torch.equal(one[key], two[key])
