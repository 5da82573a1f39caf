"""What is predicted: a class, a number, or several labels of yes or no. Who reads a network's outputs asks here.

A task is made of what the labels are (`classes`, a number, or `labels` many) and of the loss, whose `link` says what
the outputs mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from torch import Tensor

Link = Literal["softmax", "sigmoid", "exp"]  # outputs → probabilities, or → a mean; none: as they are
SOFTMAX: Link = "softmax"
SIGMOID: Link = "sigmoid"
EXP: Link = "exp"

Name = Literal["classification", "regression", "multi-label"]


@dataclass(frozen=True)
class Classification:
    """One of several classes, by its number."""

    classes: int
    link: Link | None = SOFTMAX
    name: ClassVar[Name] = "classification"
    default_measures: ClassVar[tuple[str, ...]] = ("accuracy",)  # the first is what a run is read by

    @property
    def outputs(self) -> int:
        """How many numbers a network gives for a record."""
        return self.classes

    def decide(self, outputs: Tensor) -> Tensor:
        """The class of the largest output, or by the sign of a single one."""
        return outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).long()

    def chances(self, outputs: Tensor) -> Tensor | None:
        """(N, classes) probabilities, where the loss gives the outputs such a meaning.

        Of a sigmoid per class, each against the rest, the shares in their sum.
        """
        if self.link is None:
            return None
        if self.link == SOFTMAX:
            return outputs.softmax(1)
        each = outputs.sigmoid()
        if each.shape[1] == 1:
            each = each.repeat(1, 2)
            each[:, 0] = 1 - each[:, 1]
            return each
        return each / each.sum(1, keepdim=True)


@dataclass(frozen=True)
class Regression:
    """A number: its mean, or with `level` that quantile of it."""

    link: Link | None = None
    level: float | None = None
    name: ClassVar[Name] = "regression"
    default_measures: ClassVar[tuple[str, ...]] = ("rmse",)
    outputs: ClassVar[int] = 1

    def decide(self, outputs: Tensor) -> Tensor:
        flat = outputs.flatten()
        return flat.exp() if self.link == EXP else flat

    def chances(self, outputs: Tensor) -> Tensor | None:
        return None


@dataclass(frozen=True)
class MultiLabel:
    """Several labels, each yes or no."""

    labels: int
    link: Link | None = SIGMOID
    name: ClassVar[Name] = "multi-label"
    default_measures: ClassVar[tuple[str, ...]] = ("f1",)

    @property
    def outputs(self) -> int:
        return self.labels

    def decide(self, outputs: Tensor) -> Tensor:
        """A sigmoid's sign tells; without one, outputs are fitted to 0 and 1."""
        return (outputs > (0.0 if self.link == SIGMOID else 0.5)).long()

    def chances(self, outputs: Tensor) -> Tensor | None:
        return outputs.sigmoid() if self.link == SIGMOID else None


Task = Classification | Regression | MultiLabel


def task_of(classes: int | None, labels: int | None, link: Link | None, level: float | None = None) -> Task:
    """`classes`: how many; `labels`: how many of yes or no; neither: numbers."""
    if labels is not None:
        return MultiLabel(labels, link)
    return Regression(link, level) if classes is None else Classification(classes, link)
