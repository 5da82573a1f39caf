"""How good predictions are: one object per measure, each asked about one model's predictions of a hold-out.

A new one is a class with these attributes and `of`, registered under its name; `evaluation.measures` then takes it, and
its figures are in metrics, tables and pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gossamer.errors import UserError
from gossamer.models.tasks import EXP, Classification, MultiLabel, Regression, Task
from gossamer.options.registry import Registry
from gossamer.options.types import Count

if TYPE_CHECKING:
    from torch import Tensor

Numbers = npt.NDArray[Any]
SMALLEST = float(
    np.finfo(np.float64).eps
)  # a probability of 0 counts as this: its logarithm would be infinite


class Predictions:
    """Of one model for N records of a hold-out; what a measure does not ask for is not computed."""

    def __init__(self, task: Task, outputs: Tensor, y: Tensor):
        """`outputs` (N, K); `y` (N,) classes or numbers, or (N, L) of 0 and 1."""
        self.task, self._outputs = task, outputs.detach().reshape(len(outputs), -1)
        self.y: Numbers = y.cpu().numpy()

    @cached_property
    def decided(self) -> Numbers:
        """Like y."""
        found: Numbers = self.task.decide(self._outputs).cpu().numpy()
        return found

    @cached_property
    def outputs(self) -> Numbers:
        """(N, K) as the network gives them."""
        found: Numbers = self._outputs.double().cpu().numpy()
        return found

    @cached_property
    def chances(self) -> Numbers | None:
        """(N, classes or L), in double precision from the outputs on: near 1 they have a distance from it."""
        found = self.task.chances(self._outputs.double())
        return None if found is None else found.cpu().numpy()

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


class Measure(Protocol):
    kind: ClassVar[str]
    title: ClassVar[str]  # in tables and plots
    share: ClassVar[bool]  # shown as per cent
    larger_is_better: ClassVar[bool]

    def unfit(self, task: Task) -> str | None:
        """What the task would need; None if it is one that can be measured so."""
        ...

    def of(self, found: Predictions) -> float: ...


measures: Registry[Measure] = Registry("evaluation.measures")


def measures_of(names: Sequence[str] | None, task: Task) -> list[Measure]:
    """Those asked for, or the task's own; a mistake is one sentence."""
    if names is not None and len(set(names)) < len(names):
        raise UserError(f"evaluation.measures = {list(names)} names a measure twice.")
    found = []
    for name in names if names is not None else task.default_measures:
        if name not in measures:
            raise UserError(
                f"evaluation.measures has {name!r}, which is not known; it can be {', '.join(measures)}."
            )
        measure: Measure = measures.parse({"kind": name})
        if (needs := measure.unfit(task)) is not None:
            raise UserError(f"evaluation.measures has {name!r}, which {needs}; this is {task.name}.")
        found.append(measure)
    return found


def key_of(measure: Measure | type[Measure]) -> str:
    """In figures and files: what comes before `_mean`."""
    return measure.kind.replace("-", "_")


def _needs_labels(task: Task) -> str | None:
    return None if isinstance(task, Classification | MultiLabel) else "is of classes or of several labels"


def _needs_chances(task: Task) -> str | None:
    if (unfit := _needs_labels(task)) is not None:
        return unfit
    return None if task.link is not None else "needs a loss that gives probabilities"


def _needs_numbers(task: Task) -> str | None:
    return None if isinstance(task, Regression) else "is of numbers"


@measures.register("accuracy")
@dataclass(frozen=True)
class Accuracy:
    """The share of records whose class, or all of whose labels, is predicted."""

    title: ClassVar[str] = "accuracy"
    share: ClassVar[bool] = True
    larger_is_better: ClassVar[bool] = True

    def unfit(self, task: Task) -> str | None:
        return _needs_labels(task)

    def of(self, found: Predictions) -> float:
        return float((found.decided == found.y).reshape(len(found.y), -1).all(1).mean())


@measures.register("f1")
@dataclass(frozen=True)
class F1:
    """2 right / (2 right + wrong + missed): of the second of two classes, else the mean over classes or labels."""

    title: ClassVar[str] = "F1"
    share: ClassVar[bool] = False
    larger_is_better: ClassVar[bool] = True

    def unfit(self, task: Task) -> str | None:
        return _needs_labels(task)

    def of(self, found: Predictions) -> float:
        wanted = found.wanted
        said = found.decided > 0.5 if found.y.ndim == 2 else one_hot(found.decided, wanted.shape[1])
        right, of_said, of_wanted = (
            (a & b).sum(0) for a, b in ((said, wanted), (said, said), (wanted, wanted))
        )
        each = 2 * right / np.maximum(of_said + of_wanted, 1)
        if isinstance(found.task, Classification) and found.task.classes == 2:
            return float(each[1])
        # A class that is neither there nor predicted has no figure.
        seen = (of_said + of_wanted > 0) | (found.y.ndim == 2)
        return float(each[seen].mean())


@measures.register("auc")
@dataclass(frozen=True)
class Auc:
    """Area under the ROC curve: how often a record of the class scores above one of another. Of more than two classes,
    and of labels, the mean of each against the rest."""

    title: ClassVar[str] = "AUC"
    share: ClassVar[bool] = False
    larger_is_better: ClassVar[bool] = True

    def unfit(self, task: Task) -> str | None:
        return _needs_labels(task)

    def of(self, found: Predictions) -> float:
        scores, wanted = found.scores, found.wanted
        if isinstance(found.task, Classification) and found.task.classes == 2:
            scores, wanted = (scores[:, 1] - scores[:, 0])[:, None], wanted[:, 1:2]
        each = [
            area_under_curve(s, w) for s, w in zip(scores.T, wanted.T, strict=True) if 0 < w.sum() < len(w)
        ]
        return float(np.mean(each)) if each else float("nan")


def area_under_curve(scores: Numbers, positive: Numbers) -> float:
    """By ranks; equal scores share theirs (Mann and Whitney)."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[place]
    ones = int(positive.sum())
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * (len(scores) - ones)))


@measures.register("log-loss")
@dataclass(frozen=True)
class LogLoss:
    """−log of the probability of the right class; of labels the mean over them."""

    title: ClassVar[str] = "log loss"
    share: ClassVar[bool] = False
    larger_is_better: ClassVar[bool] = False

    def unfit(self, task: Task) -> str | None:
        return _needs_chances(task)

    def of(self, found: Predictions) -> float:
        return float(log_losses(found).mean())


def log_losses(found: Predictions) -> Numbers:
    """(N,) of each record."""
    assert found.chances is not None
    if found.y.ndim == 2:
        right = np.where(found.wanted, found.chances, 1 - found.chances)
    else:
        right = np.take_along_axis(found.chances, found.y[:, None], 1)
    losses: Numbers = -np.log(np.clip(right, SMALLEST, 1.0)).mean(1)
    return losses


@measures.register("rmse")
@dataclass(frozen=True)
class Rmse:
    """√ of the mean squared error."""

    title: ClassVar[str] = "RMSE"
    share: ClassVar[bool] = False
    larger_is_better: ClassVar[bool] = False

    def unfit(self, task: Task) -> str | None:
        return _needs_numbers(task)

    def of(self, found: Predictions) -> float:
        return float(np.sqrt(np.square(errors(found)).mean()))


@measures.register("mae")
@dataclass(frozen=True)
class Mae:
    """Mean absolute error."""

    title: ClassVar[str] = "MAE"
    share: ClassVar[bool] = False
    larger_is_better: ClassVar[bool] = False

    def unfit(self, task: Task) -> str | None:
        return _needs_numbers(task)

    def of(self, found: Predictions) -> float:
        return float(np.abs(errors(found)).mean())


@measures.register("pinball-loss")
@dataclass(frozen=True)
class PinballLoss:
    """τ r where r = target − prediction > 0, (τ − 1) r elsewhere; τ is that of loss.kind = 'quantile', else ½."""

    title: ClassVar[str] = "pinball loss"
    share: ClassVar[bool] = False
    larger_is_better: ClassVar[bool] = False

    def unfit(self, task: Task) -> str | None:
        return _needs_numbers(task)

    def of(self, found: Predictions) -> float:
        return float(pinball_losses(found).mean())


def pinball_losses(found: Predictions) -> Numbers:
    """(N,) of each record."""
    level = getattr(found.task, "level", None) or 0.5
    r = -errors(found)
    return np.maximum(level * r, (level - 1) * r)


@measures.register("poisson-deviance")
@dataclass(frozen=True)
class PoissonDeviance:
    """2 (y log(y / mean) − y + mean), of counts."""

    title: ClassVar[str] = "Poisson deviance"
    share: ClassVar[bool] = False
    larger_is_better: ClassVar[bool] = False

    def unfit(self, task: Task) -> str | None:
        needs = "needs means above 0: loss.kind = 'poisson'"
        return _needs_numbers(task) or (None if task.link == EXP else needs)

    def of(self, found: Predictions) -> float:
        return float(deviances(found).mean())


def deviances(found: Predictions) -> Numbers:
    """(N,) of each record."""
    y, mean = _flat(found.y), np.maximum(_flat(found.decided), SMALLEST)
    part = np.where(y > 0, y * np.log(np.maximum(y, SMALLEST) / mean), 0.0)
    return np.asarray(2 * (part - y + mean))


@measures.register("calibration-error")
@dataclass(frozen=True)
class CalibrationError:
    """How far probabilities are from shares: |mean probability − share that is right| over bins of equal width, of the
    predicted class (Guo et al. 2017), or of labels of the yes."""

    bins: Annotated[Count, Field(description="of equal width between 0 and 1")] = 15
    title: ClassVar[str] = "calibration error"
    share: ClassVar[bool] = False
    larger_is_better: ClassVar[bool] = False

    def unfit(self, task: Task) -> str | None:
        return _needs_chances(task)

    def of(self, found: Predictions) -> float:
        sure, right = confidences(found)
        place = bin_of(sure, self.bins).ravel()
        gaps = np.bincount(place, (sure - right).ravel(), self.bins)
        return float(np.abs(gaps).sum() / sure.size)


def confidences(found: Predictions) -> tuple[Numbers, Numbers]:
    """(probabilities, how often each came true): (N, 1) of the predicted class, or (N, L) of every yes."""
    assert found.chances is not None
    if found.y.ndim == 2:
        return found.chances, found.wanted.astype(np.float64)
    return found.chances.max(1)[:, None], (found.chances.argmax(1) == found.y).astype(np.float64)[:, None]


def bin_of(chances: Numbers, bins: int) -> npt.NDArray[np.int64]:
    """Bins (0, 1/b], (1/b, 2/b], …; what is no number counts as 0."""
    finite = np.nan_to_num(chances, nan=0.0, posinf=1.0, neginf=0.0)
    return np.asarray(np.clip(np.ceil(finite * bins) - 1, 0, bins - 1), np.int64)


def one_hot(classes: Numbers, count: int) -> npt.NDArray[np.bool_]:
    return np.asarray(classes[:, None] == np.arange(count))


def errors(found: Predictions) -> Numbers:
    return _flat(found.decided) - _flat(found.y)


def _flat(values: Numbers) -> Numbers:
    return values.ravel().astype(np.float64)
