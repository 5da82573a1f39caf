"""Moments and histograms of columns: what they say without noise, and the constant that their bound rests on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gossamer.mechanism.summaries import (
    WEIGHT,
    Columns,
    Histogram,
    Moments,
    dyadic_edges,
    quantiles,
)


def mean_of(summary: Moments | Histogram, x: np.ndarray) -> torch.Tensor:
    ones = torch.ones(len(x), dtype=torch.float64)
    return summary.total(torch.from_numpy(x), torch.zeros(len(x)), ones) / len(x)


def test_without_noise_they_are_mean_and_variance() -> None:
    draw = np.random.default_rng(0)
    x = draw.uniform(-1, 5, (10_000, 3)).astype(np.float32)
    summary = Moments(Columns((0, 2), -1.0, 5.0))
    mean, variance = summary.read(mean_of(summary, x))
    assert mean.numpy() == pytest.approx((x[:, [0, 2]].mean(0) + 1) / 6, rel=1e-5)
    assert variance.numpy() == pytest.approx(x[:, [0, 2]].var(0) / 36, rel=1e-4)


def test_the_weight_of_the_second_moment_is_the_largest_that_the_bound_allows() -> None:
    u = np.linspace(0, 1, 1_000_001)
    assert (u**2 + (WEIGHT * u * (1 - u)) ** 2).max() <= 1 + 1e-12
    assert (u**2 + (1.0001 * WEIGHT * u * (1 - u)) ** 2).max() > 1 + 1e-6


def test_values_outside_count_as_the_end_and_what_is_no_number_as_nothing() -> None:
    x = torch.tensor([[-7.0], [9.0], [float("nan")], [float("inf")], [-float("inf")], [0.5]])
    u, known = Columns((0,)).of(x)
    assert u.flatten().tolist() == [0.0, 1.0, 0.0, 1.0, 0.0, 0.5]
    assert known.flatten().tolist() == [True, True, False, True, True, True]
    counts = Histogram(Columns((0,)), (0.0, 0.4, 0.6, 1.0)).total(x, torch.zeros(6), torch.ones(6, dtype=torch.float64))
    assert counts.tolist() == [2.0, 1.0, 2.0]


def test_edges_are_fine_where_values_crowd() -> None:
    edges = dyadic_edges(20, 32)
    assert edges[0] == 0.0
    assert edges[-1] == 1.0
    assert list(edges) == sorted(set(edges))
    for crowded in (2.0**-20, 1 - 2.0**-20, 0.5 + 2.0**-21, 0.5 - 2.0**-21, 7 / 32):
        assert crowded in edges


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-5])
def test_quantiles_follow_values_over_many_orders_of_magnitude(scale: float) -> None:
    draw = np.random.default_rng(1)
    x = scale * draw.beta(2, 5, (20_000, 1)).astype(np.float32)
    summary = Histogram(Columns((0,)), dyadic_edges(20, 32))
    found = quantiles(summary.read(mean_of(summary, x)), summary.edges, (0.05, 0.5, 0.95))[0].numpy()
    wanted = np.quantile(x, [0.05, 0.5, 0.95])
    assert found == pytest.approx(wanted, rel=0.35)
    assert (np.diff(found) > 0).all()


def test_quantiles_of_nothing_but_noise_stay_in_the_range() -> None:
    shares = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 30)))
    found = quantiles(shares, np.linspace(0, 1, 31).tolist(), (0.05, 0.5, 0.95))
    assert torch.isfinite(found).all()
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    assert (found.diff(dim=1) >= 0).all()
