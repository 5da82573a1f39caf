"""Measures of predictions, and their bounded sums for a private hold-out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from tests.support.refusals import expect_refusal

from gossamer.models.losses import Classification, MultiLabel, Regression, Task
from gossamer.models.measures import (
    CALIBRATION_BINS,
    CalibrationError,
    Measure,
    Predictions,
    cells_of,
    measures,
    measures_of,
)

RNG = np.random.default_rng(5)
N = 400


def measured(name: str, task: Task, outputs: Any, y: Any) -> float:
    found = Predictions(task, torch.as_tensor(outputs).float(), torch.as_tensor(y))
    return measures.parse({"kind": name}).of(found)


def of_classes(classes: int) -> tuple[Task, Any, Any, Any]:
    outputs = RNG.normal(size=(N, classes)).round(1)  # with ties
    y = np.where(RNG.random(N) < 0.4, outputs.argmax(1), RNG.integers(0, classes, N))
    chances = torch.as_tensor(outputs).float().double().softmax(1).numpy()
    return Classification(classes), outputs, y, chances


TWO, FIVE = of_classes(2), of_classes(5)
LABELS = RNG.normal(size=(N, 3)), (RNG.random((N, 3)) < [0.5, 0.1, 0.3]).astype(np.float32)
SIGMOIDS = 1 / (1 + np.exp(-LABELS[0].astype(np.float32).astype(np.float64)))


@pytest.mark.parametrize("case", [TWO, FIVE], ids=["two classes", "five classes"])
def test_measures_of_classes_are_scikit_learns(case: tuple[Task, Any, Any, Any]) -> None:
    task, outputs, y, chances = case
    two, said = task == TWO[0], outputs.argmax(1)
    expected = {
        "accuracy": metrics.accuracy_score(y, said),
        "f1": metrics.f1_score(y, said, average="binary" if two else "macro"),
        "auc": metrics.roc_auc_score(y, chances[:, 1] if two else chances, multi_class="ovr"),
        "log-loss": metrics.log_loss(y, chances, labels=range(task.outputs)),
        "calibration-error": bins_one_by_one(chances.max(1), chances.argmax(1) == y),
    }
    for name, value in expected.items():
        assert measured(name, task, outputs, y) == pytest.approx(value, abs=1e-9), name


def test_a_single_output_is_two_classes() -> None:
    t = RNG.normal(size=(N, 1)).astype(np.float32)
    y, task = (RNG.logistic(size=N) < t[:, 0]).astype(np.int64), Classification(2, "sigmoid")
    chance = 1 / (1 + np.exp(-t[:, 0].astype(np.float64)))
    assert measured("auc", task, t, y) == pytest.approx(metrics.roc_auc_score(y, t[:, 0]))
    assert measured("f1", task, t, y) == pytest.approx(metrics.f1_score(y, t[:, 0] > 0))
    assert measured("log-loss", task, t, y) == pytest.approx(metrics.log_loss(y, chance))
    hinge = Classification(2, None)  # scores that are no probabilities
    assert measured("auc", hinge, t, y) == pytest.approx(metrics.roc_auc_score(y, t[:, 0]))


def test_measures_of_several_labels_are_scikit_learns() -> None:
    outputs, y = LABELS
    said, task = outputs > 0, MultiLabel(3)
    expected = {
        "accuracy": metrics.accuracy_score(y, said),
        "f1": metrics.f1_score(y, said, average="macro"),
        "auc": metrics.roc_auc_score(y, outputs, average="macro"),
        "log-loss": np.mean([metrics.log_loss(y[:, i], SIGMOIDS[:, i]) for i in range(3)]),
        "calibration-error": bins_one_by_one(SIGMOIDS.ravel(), y.ravel() > 0),
    }
    for name, value in expected.items():
        assert measured(name, task, outputs, y) == pytest.approx(value, abs=1e-7), name


def test_measures_of_numbers_are_scikit_learns() -> None:
    t, y = RNG.normal(size=(N, 1)).astype(np.float32), RNG.poisson(2.0, N).astype(np.float32)
    assert measured("rmse", Regression(), t, y) == pytest.approx(metrics.root_mean_squared_error(y, t[:, 0]))
    assert measured("mae", Regression(), t, y) == pytest.approx(metrics.mean_absolute_error(y, t[:, 0]))
    for level in (None, 0.9):
        expected = metrics.mean_pinball_loss(y, t[:, 0], alpha=level or 0.5)
        assert measured("pinball-loss", Regression(None, level), t, y) == pytest.approx(expected)
    mean = np.exp(t[:, 0].astype(np.float64))
    deviance = metrics.mean_poisson_deviance(y, mean)
    assert measured("poisson-deviance", Regression("exp"), t, y) == pytest.approx(deviance, rel=1e-6)
    assert measured("mae", Regression("exp"), t, y) == pytest.approx(np.abs(y - mean).mean(), rel=1e-6)


def bins_one_by_one(chances: Any, right: Any, bins: int = 15) -> float:
    """Guo et al. 2017, equations 2, 3 and 5, as they stand there."""
    total = 0.0
    for m in range(1, bins + 1):
        inside = [i for i in range(len(chances)) if (m - 1) / bins < chances[i] <= m / bins]
        if inside:
            accuracy = sum(bool(right[i]) for i in inside) / len(inside)
            confidence = sum(float(chances[i]) for i in inside) / len(inside)
            total += len(inside) / len(chances) * abs(accuracy - confidence)
    return total


def test_what_is_not_there_has_no_figure() -> None:
    """A class that no record has is left out of the mean; with one class alone there is no curve."""
    outputs, y = RNG.normal(size=(50, 3)), RNG.integers(0, 2, 50)
    chances = torch.as_tensor(outputs).softmax(1).numpy()
    expected = np.mean([metrics.roc_auc_score(y == i, chances[:, i]) for i in range(2)])
    assert measured("auc", Classification(3), outputs, y) == pytest.approx(expected)
    assert np.isnan(measured("auc", Classification(3), outputs, np.zeros(50, np.int64)))
    said = outputs.argmax(1)
    assert measured("f1", Classification(3), outputs, y) == pytest.approx(metrics.f1_score(y, said, average="macro"))


@pytest.mark.parametrize(
    ("names", "task", "says"),
    [
        (["auc"], Regression(), "evaluation.measures auc"),
        (["rmse"], Classification(2), "evaluation.measures rmse"),
        (["poisson-deviance"], Regression(), "loss.kind poisson 0"),
        (["log-loss"], Classification(3, None), "evaluation.measures probabilities"),
        (
            ["auk"],
            Classification(3),
            "evaluation.measures auk accuracy f1",
        ),
        (["auc", "auc"], Classification(3), "evaluation.measures names"),
    ],
)
def test_a_measure_that_does_not_fit_is_refused(names: list[str], task: Task, says: str) -> None:
    with expect_refusal(names=says):
        measures_of(names, task)


def test_every_task_has_a_measure_of_its_own() -> None:
    own = [[measure.kind for measure in measures_of(None, task)] for task in TASKS]
    assert own == [["accuracy"], ["rmse"], ["f1"]]


TASKS: list[Any] = [Classification(2), Regression(), MultiLabel(2)]


LABELLED = ["accuracy", "f1", "auc", "log-loss", "calibration-error"]
CASES: list[tuple[Task, list[str]]] = [
    (Classification(2), LABELLED),
    (Classification(5), LABELLED),
    (Classification(3, None), ["accuracy", "f1", "auc"]),
    (MultiLabel(3), LABELLED),
    (Regression(), ["rmse", "mae", "pinball-loss"]),
    (Regression("exp"), ["poisson-deviance", "mae"]),
]
EACH = [(task, name) for task, names in CASES for name in names]
BOUND = 50.0  # no record of these reaches it


def predictions(task: Task, outputs: Any, seed: int = 0) -> Predictions:
    rng, n = np.random.default_rng(seed), len(outputs)
    y: Any = rng.integers(0, task.outputs, n)
    if isinstance(task, MultiLabel):
        y = rng.integers(0, 2, (n, task.labels)).astype(np.float32)
    elif isinstance(task, Regression):
        y = rng.poisson(2.0, n).astype(np.float32)
    return Predictions(task, torch.as_tensor(outputs).float(), torch.as_tensor(y))


@pytest.mark.parametrize(("task", "name"), EACH, ids=lambda value: getattr(value, "name", value))
def test_the_figure_of_exact_totals_is_the_measures_own(task: Task, name: str) -> None:
    found = predictions(task, np.random.default_rng(1).normal(size=(500, task.outputs)))
    measure = measures.parse({"kind": name})
    if name == "calibration-error":
        measure = CalibrationError(bins=CALIBRATION_BINS)
    cells = cells_of(measure, task, BOUND)
    figure = cells.figure(cells.rows(found).sum(0))
    tolerance = 0.01 if name == "auc" else 1e-9  # scores in the same bin are not told apart
    assert figure == pytest.approx(measure.of(found), abs=tolerance)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_every_row_is_in_the_ball_whatever_the_network_gives(data: Any) -> None:
    task, name = data.draw(st.sampled_from(EACH))
    odd = st.floats(width=32) | st.sampled_from([float("nan"), float("inf"), float("-inf"), 0.0, 3e38])
    outputs = data.draw(st.lists(st.lists(odd, min_size=task.outputs, max_size=task.outputs), min_size=1, max_size=4))
    cells = cells_of(measures.parse({"kind": name}), task, data.draw(st.sampled_from([1e-6, 1.0, 1e6])))
    with np.errstate(all="ignore"):
        rows = cells.rows(predictions(task, np.array(outputs), seed=data.draw(st.integers(0, 9))))
    assert rows.shape == (len(outputs), cells.size)
    assert np.isfinite(rows).all()
    assert (np.linalg.norm(rows, axis=1) <= 1 + 1e-12).all()


def test_beyond_the_bound_counts_as_the_bound_and_nothing_left_is_no_figure() -> None:
    found = Predictions(Regression(), torch.tensor([[10.0], [0.0]]), torch.zeros(2))
    mae = cells_of(measures_of(["mae"], Regression())[0], Regression(), 2.0)
    assert mae.figure(mae.rows(found).sum(0)) == pytest.approx(1.0)
    for task, name in EACH:
        cells = cells_of(measures.parse({"kind": name}), task, 1.0)
        assert np.isnan(cells.figure(np.full(cells.size, -1.0)))


def test_what_has_no_bound_is_refused() -> None:
    with expect_refusal(key="evaluation.bound", names="rmse"):
        cells_of(measures_of(["rmse"], Regression())[0], Regression(), None)

    class Odd(Measure):
        kind = "odd"

    with expect_refusal(key="evaluation.private", names="odd"):
        cells_of(Odd(), Regression(), 1.0)
