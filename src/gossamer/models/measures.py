"""Measures of predictions, and the bounded sums from which a private hold-out's figures are computed.

A new measure is a subclass of `Measure` with `of` (or `each`), registered under its name; `evaluation.measures` then
takes it, and its figures are in metrics, tables and pages. With `cells` it can be measured privately too: each record
contributes a row of Euclidean norm at most 1, and the figure follows from the noised totals of the rows alone. Whoever
adds the rows up scales them down where they are longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from gossamer.errors import UserError
from gossamer.models.losses import EXP, Classification, MultiLabel, Regression, Task
from gossamer.options.registry import Registry
from gossamer.options.types import Count

if TYPE_CHECKING:
    from torch import Tensor

Numbers = npt.NDArray[Any]
SMALLEST = float(np.finfo(np.float64).eps)  # stands for a probability of 0, whose logarithm would be infinite
BINS = 20  # of scores, for the area under a curve of noised histograms
CALIBRATION_BINS = 10  # fewer than without noise: each of them has its own


class Predictions:
    """Of one model for N records of a hold-out; computed when a measure needs them."""

    def __init__(self, task: Task, outputs: Tensor, y: Tensor):
        """`outputs` (N, K); `y` (N,) classes or numbers, or (N, L) of 0 and 1."""
        self.task, self._outputs = task, outputs.detach().reshape(len(outputs), -1)
        self.y: Numbers = y.cpu().numpy()

    @cached_property
    def decided(self) -> Numbers:
        """Like y."""
        return np.asarray(self.task.decide(self._outputs).cpu().numpy())

    @cached_property
    def outputs(self) -> Numbers:
        """(N, K) as the network gives them."""
        return np.asarray(self._outputs.double().cpu().numpy())

    @cached_property
    def chances(self) -> Numbers | None:
        """(N, classes or L), in double precision from the outputs on: near 1 they have a distance from it."""
        chances = self.task.chances(self._outputs.double())
        return None if chances is None else chances.cpu().numpy()

    @property
    def scores(self) -> Numbers:
        """(N, classes or L), larger where a class is likelier: probabilities where there are such."""
        if isinstance(self.task, Classification) and self.outputs.shape[1] == 1:
            return np.concatenate([-self.outputs, self.outputs], 1)
        return self.outputs if self.chances is None else self.chances

    @property
    def wanted(self) -> npt.NDArray[np.bool_]:
        """(N, classes or L) which of them is right."""
        if self.y.ndim == 2:
            return np.asarray(self.y > 0.5)
        return one_hot(self.y, max(2, self.scores.shape[1]))

    @property
    def errors(self) -> Numbers:
        return _flat(self.decided) - _flat(self.y)

    def confidences(self) -> tuple[Numbers, Numbers]:
        """(probabilities, how often each came true): (N, 1) of the predicted class, or (N, L) of every yes."""
        assert self.chances is not None
        if self.y.ndim == 2:
            return self.chances, self.wanted.astype(np.float64)
        return self.chances.max(1)[:, None], (self.chances.argmax(1) == self.y).astype(np.float64)[:, None]


Needs = Literal["labels", "probabilities", "numbers", "counts"]  # of a task


class Measure:
    """How good predictions are; unless `of` says otherwise, the mean over records of `each`."""

    kind: ClassVar[str]
    title: ClassVar[str]  # in tables and plots
    needs: ClassVar[Needs]
    share: ClassVar[bool] = False  # shown as per cent
    larger_is_better: ClassVar[bool] = False
    unbounded: ClassVar[bool] = True  # does one record's part need `evaluation.bound`?

    @classmethod
    def unfit(cls, task: Task) -> str | None:
        """What the task would need; None if it can be measured so."""
        if cls.needs in ("labels", "probabilities"):
            if not isinstance(task, Classification | MultiLabel):
                return "is of classes or of several labels"
            needs_link = cls.needs == "probabilities" and task.link is None
            return "needs a loss that gives probabilities" if needs_link else None
        if not isinstance(task, Regression):
            return "is of numbers"
        needs_mean = cls.needs == "counts" and task.link != EXP
        return "needs means above 0: loss.kind = 'poisson'" if needs_mean else None

    def each(self, predictions: Predictions) -> Numbers:
        """(N,) of every record."""
        raise NotImplementedError

    def of(self, predictions: Predictions) -> float:
        return float(self.each(predictions).mean())

    def cells(self, task: Task, bound: float) -> Cells | None:
        """Bounded parts of records for a private figure; None: it is no sum over records."""
        return None if type(self).each is Measure.each else Mean(self.each, bound)


measures: Registry[Measure] = Registry("evaluation.measures")


def measures_of(names: Sequence[str] | None, task: Task) -> list[Measure]:
    """Those named, or the task's default; a mistake is one sentence."""
    if names is not None and len(set(names)) < len(names):
        raise UserError(f"evaluation.measures = {list(names)} names a measure twice; name each once.")
    chosen = []
    for name in names if names is not None else task.default_measures:
        if name not in measures:
            raise UserError(f"evaluation.measures has {name!r}; it can be {', '.join(measures)}.")
        if (needs := measures[name].unfit(task)) is not None:
            raise UserError(f"evaluation.measures has {name!r}, which {needs}; this is {task.name}.")
        chosen.append(measures[name]())
    return chosen


def cells_of(measure: Measure, task: Task, bound: float | None) -> Cells:
    """`bound`: the largest error, or loss, of a record that counts; a mistake is one sentence."""
    cells = measure.cells(task, bound or 1.0)
    if cells is None:
        raise UserError(
            f"evaluation.private cannot measure {measure.kind!r}, which is no sum over records; leave it out of "
            "evaluation.measures."
        )
    if measure.unbounded and bound is None:
        raise UserError(
            f"evaluation.bound is not set: of {measure.kind!r} a record's part must be bounded by a public number; set "
            "the largest error, or loss, that is to count."
        )
    return cells


def key_of(measure: Measure | type[Measure]) -> str:
    """In figures and files: what comes before `_mean`."""
    return measure.kind.replace("-", "_")


@measures.register("accuracy")
class Accuracy(Measure):
    """The share of records whose class, or all of whose labels, is predicted."""

    title = "accuracy"
    needs = "labels"
    share = larger_is_better = True
    unbounded = False

    def each(self, predictions: Predictions) -> Numbers:
        right = predictions.decided == predictions.y
        return np.asarray(right.reshape(len(right), -1).all(1), np.float64)

    def cells(self, task: Task, bound: float) -> Cells:
        return Mean(self.each, 1.0)


@measures.register("f1")
class F1(Measure):
    """2 right / (2 right + wrong + missed): of the second of two classes, else the mean over classes or labels."""

    title = "F1"
    needs = "labels"
    larger_is_better = True
    unbounded = False

    def of(self, predictions: Predictions) -> float:
        wanted, several = predictions.wanted, predictions.y.ndim == 2
        chosen = predictions.decided > 0.5 if several else one_hot(predictions.decided, wanted.shape[1])
        right, both = (chosen & wanted).sum(0), chosen.sum(0) + wanted.sum(0)
        each = 2 * right / np.maximum(both, 1)
        if _two_classes(predictions.task):
            return float(each[1])
        # A class that is neither there nor predicted has no figure.
        return float(each[(both > 0) | several].mean())

    def cells(self, task: Task, bound: float) -> Cells:
        return Confusion(task)


@measures.register("auc")
class Auc(Measure):
    """Area under the ROC curve: how often a record of the class scores above one of another. Of more than two classes,
    and of labels, the mean of each against the rest."""

    title = "AUC"
    needs = "labels"
    larger_is_better = True
    unbounded = False

    def of(self, predictions: Predictions) -> float:
        scores, wanted = predictions.scores, predictions.wanted
        if _two_classes(predictions.task):
            scores, wanted = (scores[:, 1] - scores[:, 0])[:, None], wanted[:, 1:2]
        each = [_ranked(s, w) for s, w in zip(scores.T, wanted.T, strict=True) if 0 < w.sum() < len(w)]
        return float(np.mean(each)) if each else float("nan")

    def cells(self, task: Task, bound: float) -> Cells:
        return Histograms(task)


def _ranked(scores: Numbers, positive: Numbers) -> float:
    """Area under the curve by ranks; equal scores share theirs (Mann and Whitney)."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    ones = int(positive.sum())
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * (len(scores) - ones)))


@measures.register("log-loss")
class LogLoss(Measure):
    """−log of the probability of the right class; of labels the mean over them."""

    title = "log loss"
    needs = "probabilities"

    def each(self, predictions: Predictions) -> Numbers:
        chances = predictions.chances
        assert chances is not None
        if predictions.y.ndim == 2:
            right = np.where(predictions.wanted, chances, 1 - chances)
        else:
            right = np.take_along_axis(chances, predictions.y[:, None], 1)
        return np.asarray(-np.log(np.clip(right, SMALLEST, 1.0)).mean(1))


@measures.register("rmse")
class Rmse(Measure):
    """√ of the mean squared error."""

    title = "RMSE"
    needs = "numbers"

    def each(self, predictions: Predictions) -> Numbers:
        return np.square(predictions.errors)

    def of(self, predictions: Predictions) -> float:
        return float(np.sqrt(self.each(predictions).mean()))

    def cells(self, task: Task, bound: float) -> Cells:
        return Mean(self.each, bound**2, root=True)


@measures.register("mae")
class Mae(Measure):
    """Mean absolute error."""

    title = "MAE"
    needs = "numbers"

    def each(self, predictions: Predictions) -> Numbers:
        return np.abs(predictions.errors)


@measures.register("pinball-loss")
class PinballLoss(Measure):
    """τ r where r = target − prediction > 0, (τ − 1) r elsewhere; τ is that of loss.kind = 'quantile', else ½."""

    title = "pinball loss"
    needs = "numbers"

    def each(self, predictions: Predictions) -> Numbers:
        level = getattr(predictions.task, "level", None) or 0.5
        r = -predictions.errors
        return np.maximum(level * r, (level - 1) * r)


@measures.register("poisson-deviance")
class PoissonDeviance(Measure):
    """2 (y log(y / mean) − y + mean), of counts."""

    title = "Poisson deviance"
    needs = "counts"

    def each(self, predictions: Predictions) -> Numbers:
        y, mean = _flat(predictions.y), np.maximum(_flat(predictions.decided), SMALLEST)
        part = np.where(y > 0, y * np.log(np.maximum(y, SMALLEST) / mean), 0.0)
        return np.asarray(2 * (part - y + mean))


@measures.register("calibration-error")
class CalibrationError(Measure):
    """How far probabilities are from shares: |mean probability − share that is right| over bins of equal width, of the
    predicted class (Guo et al. 2017), or of labels of the yes."""

    bins: Annotated[Count, "of equal width between 0 and 1"] = 15
    title = "calibration error"
    needs = "probabilities"
    unbounded = False

    def of(self, predictions: Predictions) -> float:
        sure, right = predictions.confidences()
        gaps = np.bincount(bin_of(sure, self.bins).ravel(), (sure - right).ravel(), self.bins)
        return float(np.abs(gaps).sum() / sure.size)

    def cells(self, task: Task, bound: float) -> Cells:
        return Gaps()


class Cells(Protocol):
    @property
    def size(self) -> int: ...

    def rows(self, predictions: Predictions) -> Numbers:
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

    def rows(self, predictions: Predictions) -> Numbers:
        v = np.clip(np.nan_to_num(self.of(predictions) / self.bound, nan=1.0, posinf=1.0), 0.0, 1.0)
        return np.stack([v, 1 - v], 1)

    def figure(self, totals: Numbers) -> float:
        mean = self.bound * _share(totals[0], totals.sum())
        return float(np.sqrt(mean)) if self.root else float(mean)


@dataclass(frozen=True)
class Confusion:
    """Of every class or label how often it was rightly predicted, wrongly predicted, missed: the F1."""

    task: Task

    @property
    def size(self) -> int:
        return 3 * _outputs_compared(self.task)

    def rows(self, predictions: Predictions) -> Numbers:
        if predictions.y.ndim == 2:  # each label adds to one cell of its own three
            chosen, wanted, norm = predictions.decided > 0.5, predictions.wanted, math.sqrt(self.size // 3)
        else:
            count = self.task.outputs
            chosen, wanted = one_hot(predictions.decided, count), one_hot(predictions.y, count)
            norm = math.sqrt(2)  # a wrong one was predicted and another missed
            if _two_classes(self.task):
                chosen, wanted, norm = chosen[:, 1:], wanted[:, 1:], 1.0
        return np.concatenate([chosen & wanted, chosen & ~wanted, ~chosen & wanted], 1) / norm

    def figure(self, totals: Numbers) -> float:
        right, wrong, missed = np.maximum(totals, 0.0).reshape(3, -1)
        rows = zip(right, wrong, missed, strict=True)
        return _mean_known([_share(2 * r, 2 * r + w + m) for r, w, m in rows])


@dataclass(frozen=True)
class Histograms:
    """Of every class or label the scores of those who have it, and of those who have not: the area under the curve."""

    task: Task

    @property
    def size(self) -> int:
        return _outputs_compared(self.task) * 2 * BINS

    def rows(self, predictions: Predictions) -> Numbers:
        """A record adds to one bin of each class's, or label's, histograms."""
        scores, wanted, compared = predictions.scores, predictions.wanted, _outputs_compared(self.task)
        if compared == 1 and wanted.shape[1] == 2:
            scores, wanted = scores[:, 1:], wanted[:, 1:]
        if predictions.chances is None:
            with np.errstate(over="ignore"):
                scores = 1 / (1 + np.exp(-scores))
        place = (np.arange(compared) * 2 + wanted) * BINS + bin_of(scores, BINS)
        rows = np.zeros((len(scores), self.size))
        rows[np.arange(len(scores))[:, None], place] = 1 / math.sqrt(compared)
        return rows

    def figure(self, totals: Numbers) -> float:
        return _mean_known([_area(*one) for one in np.maximum(totals, 0.0).reshape(-1, 2, BINS)])


@dataclass(frozen=True)
class Gaps:
    """Of every bin of probabilities how far they are from what came true, and the count: the calibration error."""

    size: int = CALIBRATION_BINS + 1

    def rows(self, predictions: Predictions) -> Numbers:
        sure, right = predictions.confidences()
        gaps = np.clip(np.nan_to_num(sure, nan=1.0), 0.0, 1.0) - right
        place, n = bin_of(sure, CALIBRATION_BINS), len(sure)
        rows = np.zeros((n, self.size))
        for label in range(sure.shape[1]):  # of several labels the mean: they may share a bin
            rows[np.arange(n), place[:, label]] += gaps[:, label] / sure.shape[1]
        rows[:, -1] = 1.0
        return np.asarray(rows / math.sqrt(2))

    def figure(self, totals: Numbers) -> float:
        return _share(float(np.abs(totals[:-1]).sum()), float(totals[-1]))


def _two_classes(task: Task) -> bool:
    return isinstance(task, Classification) and task.classes == 2


def _outputs_compared(task: Task) -> int:
    """Of two classes one says all."""
    return 1 if _two_classes(task) else task.outputs


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


def bin_of(chances: Numbers, bins: int) -> npt.NDArray[np.int64]:
    """Bins (0, 1/b], (1/b, 2/b], …; what is no number counts as 0."""
    finite = np.nan_to_num(chances, nan=0.0, posinf=1.0, neginf=0.0)
    return np.asarray(np.clip(np.ceil(finite * bins) - 1, 0, bins - 1), np.int64)


def one_hot(classes: Numbers, count: int) -> npt.NDArray[np.bool_]:
    return np.asarray(classes[:, None] == np.arange(count))


def _flat(values: Numbers) -> Numbers:
    return values.ravel().astype(np.float64)
