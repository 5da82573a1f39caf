"""Bounded parts of measures: rows inside the ball whatever a model gives, and figures that are the measures' own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.errors import UserError
from gossamer.models.measures import (
    CALIBRATION_BINS,
    CalibrationError,
    Measure,
    Predictions,
    cells_of,
    measures,
    measures_of,
)
from gossamer.models.tasks import Classification, MultiLabel, Regression, Task

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
    outputs = data.draw(
        st.lists(st.lists(odd, min_size=task.outputs, max_size=task.outputs), min_size=1, max_size=4)
    )
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
    with pytest.raises(UserError, match=r"evaluation\.bound is not set: of 'rmse'"):
        cells_of(measures_of(["rmse"], Regression())[0], Regression(), None)

    class Odd(Measure):
        kind = "odd"

    with pytest.raises(UserError, match="cannot measure 'odd', which is no sum over records"):
        cells_of(Odd(), Regression(), 1.0)
