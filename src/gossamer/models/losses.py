"""What is predicted, and what is minimised.

A task is a class, a number, or several labels of yes or no. It is made of what the labels are (`classes`, a number, or
`labels` many) and of the loss, whose `link` says what the outputs mean.

Losses are of one record's outputs and label, elementwise over any stack of nodes and records.

A loss says which labels it is of by the methods that it has:

    value(t, y)               of one output t and a number y, or with `binary` a label of 0 or 1
    of_class(outputs, y)      of an output per class and the class's number
    of_each(outputs, wanted)  of any number of outputs and as many wanted values, 0 or 1 for classes and for yes or no

and what the outputs mean by `link`: the function that makes predictions, or probabilities, of them.

Those of linear models, l(⟨a, x⟩, y), have a slope besides:

    implicit_slope(t, y, c)  l′ at prox_{c l}(t), that is (t − prox_{c l}(t)) / c

With c = γ‖a‖² it gives the proximal step of the record's whole loss, prox_{γ l(⟨a,·⟩)}(x) = x − γ s a, also
where l has kinks and no gradient method applies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import Field

from gossamer.options.registry import Registry, kind_name
from gossamer.options.types import Positive

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


@runtime_checkable
class LinearLoss(Protocol):
    @property
    def curvature(self) -> float:
        """The Lipschitz constant of l′; ∞ where l has kinks."""
        ...

    @property
    def binary(self) -> bool:
        """Are the labels 0 and 1?"""
        ...

    def value(self, t: Tensor, y: Tensor) -> Tensor: ...

    def implicit_slope(self, t: Tensor, y: Tensor, c: Tensor) -> Tensor: ...


losses: Registry[Any] = Registry("loss")


@losses.register("least-squares")
class LeastSquares:
    """½ (t − y)²."""

    curvature: ClassVar[float] = 1.0
    binary: ClassVar[bool] = False

    def value(self, t: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (t - y).square()

    def implicit_slope(self, t: Tensor, y: Tensor, c: Tensor) -> Tensor:
        return (t - y) / (1 + c)


@losses.register("logistic")
class Logistic:
    """log(1 + e^t) − y t; with several outputs their sum: a class, or a label, each against the rest."""

    curvature: ClassVar[float] = 0.25
    binary: ClassVar[bool] = True
    link: ClassVar[Link] = SIGMOID

    def value(self, t: Tensor, y: Tensor) -> Tensor:
        from torch.nn.functional import softplus

        return softplus(t) - y * t

    def of_each(self, outputs: Tensor, wanted: Tensor) -> Tensor:
        from torch.nn.functional import binary_cross_entropy_with_logits

        return binary_cross_entropy_with_logits(outputs, wanted, reduction="none").sum(1)

    def implicit_slope(self, t: Tensor, y: Tensor, c: Tensor) -> Tensor:
        """The root of s = σ(t − c s) − y by Newton's method, halving a bracket wherever it leaves that or dawdles."""
        import torch

        low, high = -y.to(t), 1 - y.to(t)
        s, last = t.sigmoid() - y, torch.ones_like(t)
        for _ in range(_NEWTON):
            p = (t - c * s).sigmoid()
            excess = s - p + y
            low, high = s.where(excess <= 0, low), s.where(excess >= 0, high)
            newton = s - excess / (1 + c * p * (1 - p))
            good = (newton >= low) & (newton <= high) & ((newton - s).abs() <= last / 2)
            # What has been found stays, however long others take.
            before, s = s, newton.where(good, (low + high) / 2).where(last > 0, s)
            last = (s - before).abs()
            if not bool(last.any()):
                break
        return s


@losses.register("huber")
@dataclass(frozen=True)
class Huber:
    """½ r² up to |r| = δ and δ|r| − ½δ² beyond, r = t − y."""

    delta: Annotated[Positive, "where the square ends and the line begins"] = 1.35
    curvature: ClassVar[float] = 1.0
    binary: ClassVar[bool] = False

    def value(self, t: Tensor, y: Tensor) -> Tensor:
        r = (t - y).abs()
        near = r.clamp_max(self.delta)
        return near * (r - near / 2)

    def implicit_slope(self, t: Tensor, y: Tensor, c: Tensor) -> Tensor:
        return ((t - y) / (1 + c)).clamp(-self.delta, self.delta)


@losses.register("hinge")
class Hinge:
    """max(0, 1 − z t), z = 2y − 1."""

    curvature: ClassVar[float] = math.inf
    binary: ClassVar[bool] = True

    def value(self, t: Tensor, y: Tensor) -> Tensor:
        return (1 - (2 * y - 1) * t).clamp_min(0)

    def implicit_slope(self, t: Tensor, y: Tensor, c: Tensor) -> Tensor:
        z = 2 * y.to(t) - 1
        return -z * ((1 - z * t) / c.clamp_min(_TINY)).clamp(0, 1)


@losses.register("quantile")
@dataclass(frozen=True)
class Quantile:
    """τ r where r = y − t > 0, (τ − 1) r elsewhere: the τ-quantile; τ = ½ is half the absolute error."""

    tau: Annotated[float, Field(gt=0, lt=1), "which quantile of the targets is fitted"] = 0.5
    curvature: ClassVar[float] = math.inf
    binary: ClassVar[bool] = False

    def value(self, t: Tensor, y: Tensor) -> Tensor:
        r = y - t
        return (self.tau * r).maximum((self.tau - 1) * r)

    def implicit_slope(self, t: Tensor, y: Tensor, c: Tensor) -> Tensor:
        return ((t - y) / c.clamp_min(_TINY)).clamp(-self.tau, 1 - self.tau)


_NEWTON = 60  # steps at most; a few suffice unless c is huge, where the bracket is halved instead
_TINY = 1e-30  # a record of zeros has c = 0 and moves nothing whatever its slope


@losses.register("poisson")
class Poisson:
    """e^t − y t: counts y ≥ 0 with mean e^t. Without a resolvent, so for methods that take gradients."""

    binary: ClassVar[bool] = False
    link: ClassVar[Link] = EXP

    targets: ClassVar[str] = "whole numbers from 0 on"

    def value(self, t: Tensor, y: Tensor) -> Tensor:
        return t.exp() - y * t

    def takes(self, y: Any) -> bool:
        """Are these targets, an array, such numbers?"""
        return bool(((y >= 0) & (y == y.round())).all())


@losses.register("cross-entropy")
class CrossEntropy:
    """−log softmax of the label's output: what networks with an output per class have if no loss is named."""

    link: ClassVar[Link] = SOFTMAX

    def of_class(self, outputs: Tensor, y: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, y, reduction="none")


@losses.register("squared")
class Squared:
    """½ (output − target)²; with several outputs their sum, a class or a label each: ridge regression."""

    binary: ClassVar[bool] = False

    def value(self, t: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (t - y).square()

    def of_each(self, outputs: Tensor, wanted: Tensor) -> Tensor:
        return 0.5 * (outputs - wanted).square().sum(1)


def own_loss(function: Callable[[Tensor, Tensor], Tensor]) -> Any:
    """A kind of loss that is the caller's function: (outputs, targets) → one number for each record."""
    name = kind_name(getattr(function, "__name__", type(function).__name__))
    name = name if name.replace("-", "").isalnum() else "own"  # a lambda has no name
    # Of a torch module the function itself: one that is called as a module could only be traced inside another.
    per_record = staticmethod(getattr(function, "forward", function))
    made = make_dataclass(name, [], frozen=True, namespace={"kind": name, "per_record": per_record})
    made.__module__ = getattr(function, "__module__", None) or type(function).__module__
    made.__doc__ = f"A loss of your own: {name}."
    losses.adopt(made)
    return made()
