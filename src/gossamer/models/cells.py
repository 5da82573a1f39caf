"""What a record adds to a measure, bounded: the numbers whose sums, with noise, give the figure.

A private hold-out is measured from sums alone. Every measure says here which numbers of a record are added up, a row of
Euclidean norm at most 1, and what its figure is of their totals. None of them needs to know how many records there are:
that is a total too. The bound is not trusted: who adds the rows up scales them down where they are longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gossamer.errors import UserError
from gossamer.models.measures import (
    F1,
    Accuracy,
    Auc,
    CalibrationError,
    LogLoss,
    Mae,
    Measure,
    Numbers,
    PinballLoss,
    PoissonDeviance,
    Predictions,
    Rmse,
    bin_of,
    confidences,
    deviances,
    errors,
    log_losses,
    one_hot,
    pinball_losses,
)
from gossamer.models.tasks import Classification, Task

BINS = 20  # of scores, for the area under a curve
CALIBRATION_BINS = 10  # fewer than without noise: each of them has its own


class Cells(Protocol):
    @property
    def size(self) -> int: ...

    def rows(self, found: Predictions) -> Numbers:
        """(N, size), each of norm at most 1 whatever the predictions are."""
        ...

    def figure(self, totals: Numbers) -> float:
        """NaN where the noise has left nothing to divide by."""
        ...


@dataclass(frozen=True)
class Mean:
    """Of a number from 0 to `bound` a record: (v, 1 − v) of the scaled one; the second makes the count."""

    of: Callable[[Predictions], Numbers]
    bound: float
    root: bool = False
    size: int = 2

    def rows(self, found: Predictions) -> Numbers:
        v = np.clip(np.nan_to_num(self.of(found) / self.bound, nan=1.0, posinf=1.0), 0.0, 1.0)
        return np.stack([v, 1 - v], 1)

    def figure(self, totals: Numbers) -> float:
        share = _share(totals[0], totals.sum())
        return float(self.bound * share) if not self.root else float(np.sqrt(self.bound * share))


@dataclass(frozen=True)
class Confusion:
    """Of every class or label how often it was rightly predicted, wrongly predicted, missed: the F1."""

    task: Task

    @property
    def _two(self) -> bool:
        return isinstance(self.task, Classification) and self.task.classes == 2

    @property
    def _columns(self) -> int:
        return 1 if self._two else self.task.outputs

    @property
    def size(self) -> int:
        return 3 * self._columns

    def rows(self, found: Predictions) -> Numbers:
        if found.y.ndim == 2:  # each label adds to one cell of its own three
            said, wanted, norm = found.decided > 0.5, found.wanted, math.sqrt(self._columns)
        else:
            count = self.task.outputs
            said, wanted = one_hot(found.decided, count), one_hot(found.y, count)
            norm = 1.0 if self._two else math.sqrt(2)  # a wrong one was predicted and another missed
            if self._two:
                said, wanted = said[:, 1:], wanted[:, 1:]
        return np.concatenate([said & wanted, said & ~wanted, ~said & wanted], 1) / norm

    def figure(self, totals: Numbers) -> float:
        right, wrong, missed = np.maximum(totals, 0.0).reshape(3, -1)
        each = [_share(2 * r, 2 * r + w + m) for r, w, m in zip(right, wrong, missed, strict=True)]
        return _mean_known(each)


@dataclass(frozen=True)
class Histograms:
    """Of every class or label the scores of those who have it, and of those who have not: the area under the curve."""

    task: Task

    @property
    def _columns(self) -> int:
        two = isinstance(self.task, Classification) and self.task.classes == 2
        return 1 if two else self.task.outputs

    @property
    def size(self) -> int:
        return self._columns * 2 * BINS

    def rows(self, found: Predictions) -> Numbers:
        """A record adds to one bin of each class's, or label's, histograms."""
        scores, wanted = found.scores, found.wanted
        if self._columns == 1 and wanted.shape[1] == 2:
            scores, wanted = scores[:, 1:], wanted[:, 1:]
        if found.chances is None:
            with np.errstate(over="ignore"):
                scores = 1 / (1 + np.exp(-scores))
        n, columns = len(scores), np.arange(self._columns)
        place = (columns * 2 + wanted) * BINS + bin_of(scores, BINS)
        rows = np.zeros((n, self.size))
        rows[np.arange(n)[:, None], place] = 1 / math.sqrt(self._columns)
        return rows

    def figure(self, totals: Numbers) -> float:
        return _mean_known([_area(*one) for one in np.maximum(totals, 0.0).reshape(-1, 2, BINS)])


@dataclass(frozen=True)
class Gaps:
    """Of every bin of probabilities how far they are from what came true, and the count: the calibration error."""

    size: int = CALIBRATION_BINS + 1

    def rows(self, found: Predictions) -> Numbers:
        sure, right = confidences(found)
        gaps = np.clip(np.nan_to_num(sure, nan=1.0), 0.0, 1.0) - right
        place, n = bin_of(sure, CALIBRATION_BINS), len(sure)
        rows = np.zeros((n, self.size))
        for label in range(sure.shape[1]):  # of several labels the mean: they may share a bin
            rows[np.arange(n), place[:, label]] += gaps[:, label] / sure.shape[1]
        rows[:, -1] = 1.0
        return np.asarray(rows / math.sqrt(2))

    def figure(self, totals: Numbers) -> float:
        return _share(float(np.abs(totals[:-1]).sum()), float(totals[-1]))


def _share(part: float, whole: float) -> float:
    return min(max(float(part / whole), 0.0), 1.0) if whole > 0 else math.nan


def _mean_known(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def _area(absent: Numbers, present: Numbers) -> float:
    """How often one who has it is in a higher bin than one who has not; half of those in the same."""
    below = np.cumsum(absent) - absent / 2
    whole = absent.sum() * present.sum()
    return float(present @ below / whole) if whole > 0 else math.nan


def _right(found: Predictions) -> Numbers:
    return np.asarray((found.decided == found.y).reshape(len(found.y), -1).all(1), np.float64)


_OF: dict[type[Any], Callable[[Task, float], Cells]] = {
    Accuracy: lambda task, bound: Mean(_right, 1.0),
    F1: lambda task, bound: Confusion(task),
    Auc: lambda task, bound: Histograms(task),
    CalibrationError: lambda task, bound: Gaps(),
    LogLoss: lambda task, bound: Mean(log_losses, bound),
    Rmse: lambda task, bound: Mean(lambda found: np.square(errors(found)), bound**2, root=True),
    Mae: lambda task, bound: Mean(lambda found: np.abs(errors(found)), bound),
    PinballLoss: lambda task, bound: Mean(pinball_losses, bound),
    PoissonDeviance: lambda task, bound: Mean(deviances, bound),
}
_UNBOUNDED = (LogLoss, Rmse, Mae, PinballLoss, PoissonDeviance)


def cells_of(measure: Measure, task: Task, bound: float | None) -> Cells:
    """`bound`: the largest error, or loss, of a record that counts; a mistake is one sentence."""
    if type(measure) not in _OF:
        raise UserError(
            f"evaluation.private cannot measure {measure.kind!r}, which is no sum over records; leave it out of "
            "evaluation.measures."
        )
    if isinstance(measure, _UNBOUNDED) and bound is None:
        raise UserError(
            f"evaluation.bound is not set: of {measure.kind!r} a record's part must be bounded by a public number; set "
            "the largest error, or loss, that is to count."
        )
    return _OF[type(measure)](task, bound or 1.0)
