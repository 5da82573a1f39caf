"""Middle and spread of columns from what was released."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from gossamer.data.dataset import Dataset, Standard
from gossamer.data.load import datasets
from gossamer.preprocess import ByMoments, ByQuantiles, Released

SOURCE = datasets.parse({"kind": "digits", "standardise": {"kind": "quantiles", "within": [0.0, 1e6]}})
DRAW = np.random.default_rng(0)
HEAVY = np.exp(DRAW.normal(3.0, 1.5, (20_000, 3))).astype(np.float32)  # medians of 20 in a range of a million
EVEN = DRAW.normal(4e5, 1e5, (20_000, 3)).astype(np.float32)


def standard(step: ByMoments | ByQuantiles, x: np.ndarray, noise: float = 0.0) -> Standard:
    dataset: Dataset = replace(SOURCE.load(), x_train=x, y_train=np.zeros(len(x), np.int64), x_test=x[:5])
    summary = step.summary(SOURCE, dataset)
    total = summary.total(torch.from_numpy(x), torch.zeros(len(x)), torch.ones(len(x), dtype=torch.float64))
    total += noise * torch.randn(summary.size, generator=torch.Generator().manual_seed(1))
    found = step.found(SOURCE, dataset, Released(total / len(x), noise / len(x)))
    made = step.applied(SOURCE, dataset, found)
    assert made.standard is not None
    assert np.array_equal(made.x_train, made.standard.applied(x))
    return made.standard


@pytest.mark.parametrize("step", [ByMoments(), ByQuantiles()], ids=["moments", "quantiles"])
def test_columns_that_fill_their_range_get_mean_0_and_deviation_1(step: ByMoments | ByQuantiles) -> None:
    made = standard(step, EVEN, noise=5.0).applied(EVEN)
    assert made.mean(0) == pytest.approx(np.zeros(3), abs=0.1)
    assert made.std(0) == pytest.approx(np.ones(3), abs=0.15)


def test_quantiles_find_heavy_columns_in_a_range_that_is_far_too_wide_and_moments_do_not() -> None:
    by_quantiles, by_moments = (standard(step, HEAVY, noise=5.0) for step in (ByQuantiles(), ByMoments()))
    found = np.array(by_quantiles.middle) / np.median(HEAVY, 0)
    assert (found > 0.6).all()
    assert (found < 1.6).all()
    ninety = (np.quantile(HEAVY, 0.95, 0) - np.quantile(HEAVY, 0.05, 0)) / 3.29
    assert by_quantiles.spread == pytest.approx(ninety, rel=0.5)
    assert min(by_moments.spread) > 100 * max(ninety)  # the noise of a sum over the whole range


def test_a_rare_yes_keeps_its_range() -> None:
    x = (DRAW.random((20_000, 2)) < 0.02).astype(np.float32) * 1e6
    found = standard(ByQuantiles(), x, noise=5.0)
    assert found.spread == (1e6, 1e6)
    assert found.middle == pytest.approx([0.0, 0.0], abs=10)


def test_where_noise_hides_everything_the_declared_range_counts() -> None:
    found = standard(ByQuantiles(), HEAVY, noise=1e5)
    assert found.middle == (5e5, 5e5, 5e5)
    assert found.spread == (5e5, 5e5, 5e5)
    moments = standard(ByMoments(), HEAVY, noise=1e5)
    assert all(math.isfinite(value) and value > 0 for value in moments.spread)


def test_columns_of_one_value_stay_finite() -> None:
    for value in (0.0, 1e6, 123.0):
        x = np.full((5000, 2), value, np.float32)
        for step in (ByMoments(), ByQuantiles()):
            assert np.isfinite(standard(step, x, noise=3.0).applied(x)).all()
