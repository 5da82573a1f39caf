"""What every step keeps to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.refusals import expect_refusal

from gossamer.accounting.profiles import gdp_epsilon, gdp_mu
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Gaussian, OneSided, Unnoised
from gossamer.data.dataset import Dataset, Standard
from gossamer.data.load import datasets
from gossamer.data.source import Source
from gossamer.training.preprocess import (
    ByMoments,
    ByQuantiles,
    ClassWeights,
    Components,
    Released,
    Step,
    planned_events,
    steps_of,
)

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
def test_whatever_is_released_gives_finite_records_of_the_shape_that_was_planned(name: str, noise: float) -> None:
    source, dataset, step = digits(ASKED[name])
    assert step.released_as is step.summary(source, dataset).released_as
    assert step.part > 0
    found = step.compute(source, dataset, released(step, source, dataset, noise))
    assert step.check(source, dataset, found)
    assert not step.check(source, dataset, {})
    assert not step.check(source, dataset, {key: value[..., :1] for key, value in found.items()})
    made = step.apply(source, dataset, found)
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
    one, two = step.compute(source, dataset, said), step.compute(source, other, said)
    for key in one:
        assert torch.equal(one[key], two[key])


SOURCE = datasets.parse({"kind": "digits", "class_weights": "private", "most_weight": 4.0})
STEP = ClassWeights()


def weights(shares: list[float], noise: float = 0.0) -> list[float]:
    found = STEP.compute(SOURCE, SOURCE.load(), Released(torch.tensor(shares), noise))
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
    with expect_refusal(key="data.class_weights", value="private"):
        STEP.summary(source, source.load())


def test_they_are_the_leading_directions_and_records_stand_in_them() -> None:
    source, step = datasets.parse({"kind": "digits", "pca": 4, "pca_from": "private"}), Components()
    dataset = source.load()
    x, y = torch.from_numpy(dataset.x_train), torch.from_numpy(dataset.y_train)
    total = step.summary(source, dataset).total(x, y, torch.ones(len(y), dtype=torch.float64))
    found = step.compute(source, dataset, Released(total / len(y), 0.0))
    rows = dataset.x_train.reshape(len(x), -1)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    leading = np.linalg.eigh(unit.T @ unit)[1][:, ::-1][:, :4].T
    assert np.abs((found["components"].numpy() * leading).sum(1)) == pytest.approx(np.ones(4), abs=1e-3)
    made = step.apply(source, dataset, found)
    assert made.x_train == pytest.approx(rows @ found["components"].numpy().T, abs=1e-4)
    assert made.components is not None


STEPS = (ClassWeights(), ByQuantiles(), Components())
DELTA = 1e-6


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("steps", [STEPS, STEPS[:1], STEPS[1:]])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_together_they_cost_what_was_asked(adjacency: str, steps: tuple[object, ...], epsilon: float) -> None:
    events = planned_events(steps, adjacency, epsilon=epsilon, delta=DELTA, times=1)  # type: ignore[arg-type]
    assert [event.draw for event in events] == list(range(-len(steps), 0))
    assert proven(events, DELTA, adjacency).epsilon == pytest.approx(epsilon, rel=1e-6)
    # In closed form: μ = shift / σ, and their squares add up.
    shifts = {OneSided: math.sqrt(2), Gaussian: 2.0} if adjacency == "replace-one" else {}
    squares = [(shifts.get(type(e.release), 1.0) / e.release.noise_multiplier) ** 2 for e in events]
    assert gdp_epsilon(math.sqrt(sum(squares)), DELTA) == pytest.approx(epsilon, rel=1e-6)
    parts = [step.part for step in steps]  # type: ignore[attr-defined]
    for square, part in zip(squares, parts, strict=True):
        assert square / sum(squares) == pytest.approx(part / sum(parts), rel=1e-6)


def test_copies_and_runs_take_more_noise() -> None:
    one, four = (planned_events(STEPS, "add-remove", epsilon=1.0, delta=DELTA, times=t) for t in (1, 4))
    for a, b in zip(one, four, strict=True):
        assert b.release.noise_multiplier == pytest.approx(2 * a.release.noise_multiplier)
    assert one[1].release.noise_multiplier == pytest.approx(1.5 / gdp_mu(1.0, DELTA), rel=1e-6)


def test_without_noise_it_says_so() -> None:
    events = planned_events(STEPS, "add-remove", epsilon=None, delta=DELTA, times=1)
    assert all(isinstance(event.release, Unnoised) for event in events)


SOURCE_STANDARDISE = datasets.parse({"kind": "digits", "standardise": {"kind": "quantiles", "within": [0.0, 1e6]}})
DRAW = np.random.default_rng(0)
HEAVY = np.exp(DRAW.normal(3.0, 1.5, (20_000, 3))).astype(np.float32)  # medians of 20 in a range of a million
EVEN = DRAW.normal(4e5, 1e5, (20_000, 3)).astype(np.float32)


def standard(step: ByMoments | ByQuantiles, x: np.ndarray, noise: float = 0.0) -> Standard:
    dataset: Dataset = replace(SOURCE_STANDARDISE.load(), x_train=x, y_train=np.zeros(len(x), np.int64), x_test=x[:5])
    summary = step.summary(SOURCE_STANDARDISE, dataset)
    total = summary.total(torch.from_numpy(x), torch.zeros(len(x)), torch.ones(len(x), dtype=torch.float64))
    total += noise * torch.randn(summary.size, generator=torch.Generator().manual_seed(1))
    found = step.compute(SOURCE_STANDARDISE, dataset, Released(total / len(x), noise / len(x)))
    made = step.apply(SOURCE_STANDARDISE, dataset, found)
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


def names(**asked: object) -> list[str]:
    return [step.name for step in steps_of(datasets.parse({"kind": "digits", **asked}))]


def test_components_are_of_standardised_columns() -> None:
    assert names() == []
    assert names(class_weights=[1.0] * 10) == []  # public
    assert names(pca=3) == []
    everything = {
        "pca": 3,
        "pca_from": "private",
        "standardise": {"kind": "moments"},
        "class_weights": "private",
    }
    assert names(**everything) == ["class-weights", "standardise", "components"]
    source = datasets.parse({"kind": "digits", **everything})
    assert len(source.private_steps) == 3
