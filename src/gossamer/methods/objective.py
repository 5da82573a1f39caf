"""What is minimised: the loss of the configuration, as the parts that read records need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gossamer.config.schema import RunConfig
from gossamer.errors import UserError, short
from gossamer.kernels.clipped_sum import CentredSum, ClippedSum
from gossamer.models.layers import Centred, centre_records
from gossamer.models.losses import SIGMOID, CrossEntropy, LinearLoss, Logistic, Squared, Task, task_of

if TYPE_CHECKING:
    from gossamer.mechanism.reader import Vector


def linear_loss(config: RunConfig) -> LinearLoss | None:
    """The loss named under [loss], if it has slopes and the model is linear; None where others do without them."""
    named = config.loss
    if named is None or hasattr(named, "per_record"):
        return None
    if config.model.kind == "linear" and not hasattr(named, "value"):
        raise UserError(
            f"loss.kind = {named.kind!r} is of networks with an output per class; model.kind = 'linear' takes "
            "least-squares, logistic, huber, hinge, quantile or poisson."
        )
    if config.model.kind == "linear":
        return named if isinstance(named, LinearLoss) else None
    if hasattr(named, "value") and named.binary and not hasattr(named, "of_each"):
        raise UserError(
            f"loss.kind = {named.kind!r} is of a single number; it needs model.kind = 'linear', not "
            f"{config.model.kind!r}."
        )
    return None


def per_sample_loss(classes: int | None, config: RunConfig | None = None) -> Any:
    """(outputs, targets) → one loss per record."""
    named, model = (config.loss, config.model.kind) if config else (None, None)
    if hasattr(named, "per_record"):
        return _own(named)
    if config is not None:
        linear_loss(config)  # refuses what does not fit the model
    if config is not None and config.data.multi_label:
        return _of_labels(named or Logistic(), config.model.kind)
    if model == "linear" or classes is None:
        return _of_one_output(named, classes)
    return _of_classes(classes, named, model)


def _of_labels(named: Any, model: str) -> Any:
    """Labels of yes or no, an output each."""
    if model == "linear":
        raise UserError(
            f"model.kind = {short(model)} gives one number, and these records have several labels; use 'softmax', with "
            "an output for each."
        )
    if not hasattr(named, "of_each"):
        raise UserError(f"loss.kind = {named.kind!r} is not of several labels a record; use 'logistic' or 'squared'.")
    return lambda outputs, y: named.of_each(outputs, y.to(outputs))


def _of_one_output(named: Any, classes: int | None) -> Any:
    """A single output: numbers, or two classes."""
    if named is None and classes is not None:
        raise UserError(
            "model.kind = 'linear' has one output, and these data have classes; use loss.kind = 'logistic' or "
            "'hinge', or model.kind = 'softmax'."
        )
    named = named or Squared()
    if not hasattr(named, "value") or named.binary != (classes == 2):
        targets: dict[Any, str] = {True: "labels of two classes", False: "numbers as targets"}
        due = targets.get(getattr(named, "binary", None), "classes")
        those = f"{classes} classes" if classes else "numbers to predict"
        raise UserError(f"loss.kind = {named.kind!r} needs {due}, and these data have {those}; choose another loss.")
    return lambda outputs, y: named.value(outputs.flatten(), y.flatten())


def _of_classes(classes: int, named: Any, model: str | None) -> Any:
    """An output per class."""
    if model == "one-vs-all":  # Σ over classes of ln(1 + exp(−y ⟨w, x⟩)), y = ±1
        return lambda outputs, y: nn.functional.softplus(
            torch.where(nn.functional.one_hot(y, outputs.shape[1]).bool(), -outputs, outputs)
        ).sum(1)
    named = named or CrossEntropy()
    if hasattr(named, "of_class"):
        return named.of_class
    if not hasattr(named, "of_each"):
        raise UserError(
            f"loss.kind = {named.kind!r} needs numbers as targets, and these data have {classes} classes; choose "
            "another loss."
        )
    # Every class as an output of its own: ridge regression, or one logistic regression each.
    return lambda outputs, y: named.of_each(outputs, nn.functional.one_hot(y, outputs.shape[1]).to(outputs))


def _own(named: Any) -> Any:
    """The caller's own loss: one number a record, or records could not be told apart."""

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        losses: Tensor = named.per_record(outputs, y)
        # What is traced has no shape yet; the trace is followed afterwards.
        if isinstance(losses, Tensor) and losses.shape != outputs.shape[:1]:
            raise UserError(
                f"loss.kind = {named.kind!r} gives numbers of shape {tuple(losses.shape)} for {len(outputs)} records; "
                'it must give one number for each, as torch\'s losses do with reduction="none".'
            )
        return losses

    return loss


def prediction_task(classes: int | None, labels: int | None, config: RunConfig) -> Task:
    """What is predicted under this loss; a loss of the user's own gives outputs no meaning as probabilities."""
    named, link = config.loss, None
    if hasattr(named, "per_record"):
        link = None
    elif config.model.kind == "one-vs-all" and classes is not None:
        link = SIGMOID
    elif named is not None:
        link = getattr(named, "link", None)
    elif labels is not None:
        link = Logistic.link
    elif classes is not None:
        link = CrossEntropy.link
    return task_of(classes, labels, link, getattr(named, "tau", None))


def _weighted(loss: Any, config: RunConfig, classes: int | None) -> Any:
    """Times the weight of the record's class, where weights are known: private ones are found before the first round.

    Gradients are clipped afterwards, so that a record still moves no sum by more than the bound.
    """
    weights, key = config.data.class_weights, "data.class_weights"
    if weights is not None and classes is None:
        raise UserError(f"{key} needs classes; the data have numbers to predict; leave it out.")
    if weights is None or weights == "private" or classes is None:
        return loss
    if len(weights) != classes:
        raise UserError(f"{key} lists {len(weights)} weights, and there are {classes} classes; give one for each.")

    def of_class(outputs: Tensor, y: Tensor) -> Tensor:
        # Written with numbers, not with a table of them: this is seen to keep records apart, on any device.
        own = nn.functional.one_hot(y, classes)
        weight = sum(number * own[:, place] for place, number in enumerate(weights))
        weighted: Tensor = weight * loss(outputs, y)
        return weighted

    return of_class


def gradient_vector(config: RunConfig, module: nn.Module, classes: int | None) -> Vector:
    """The gradient of a record's loss; with `privacy.centre`, after the private mean is subtracted from the record."""
    loss = _weighted(per_sample_loss(classes, config), config, classes)
    if isinstance(module, Centred):
        return CentredSum(ClippedSum(module.head, loss), module.centre.numel(), centre_records)
    return ClippedSum(module, loss)
