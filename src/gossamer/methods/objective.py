"""What is minimised: the loss of the configuration, as the parts that read records need it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.kernels.centred_sum import CentredSum
from gossamer.kernels.clipped_sum import clipped_sum
from gossamer.models.centred import Centred, centre_records
from gossamer.models.losses import LinearLoss

if TYPE_CHECKING:
    from gossamer.mechanism.reader import Vector


CLASS_LOSSES = ("cross-entropy", "logistic", "squared")  # of networks with an output per class
_WITHOUT_PROBABILITIES = ("hinge", "squared")


def linear_loss(config: RunConfig) -> LinearLoss | None:
    """The loss named under [loss]; None where the data decide, or where it is over a class each."""
    if config.loss is None or hasattr(config.loss, "per_record"):
        return None
    if config.model.kind != "linear" and config.loss.kind in CLASS_LOSSES:
        return None
    if config.model.kind != "linear":
        raise UserError(
            f"loss.kind = {config.loss.kind!r} is of a single number; it needs model.kind = 'linear', not "
            f"{config.model.kind!r}."
        )
    if not isinstance(config.loss, LinearLoss):
        raise UserError(
            f"loss.kind = {config.loss.kind!r} is of networks with an output per class; model.kind = 'linear' takes "
            "least-squares, logistic, huber, hinge or quantile."
        )
    return config.loss


def per_sample_loss(classes: int | None, config: RunConfig | None = None) -> Any:
    """(outputs, targets) → one loss per record."""
    if config and hasattr(config.loss, "per_record"):
        return _own(config.loss)
    named = linear_loss(config) if config else None
    if config and named is not None:
        if named.binary != (classes == 2):
            wanted = "labels of two classes" if named.binary else "numbers as targets"
            has = f"{classes} classes" if classes else "numbers"
            raise UserError(
                f"loss.kind = {config.loss and config.loss.kind!r} needs {wanted}; these data have {has}."
            )
        return lambda outputs, y: named.value(outputs.flatten(), y.flatten())
    if classes and config and config.model.kind == "linear":
        raise UserError(
            "model.kind = 'linear' on classes needs loss.kind = 'logistic' or 'hinge'; or use 'softmax'."
        )
    if (
        classes and config and config.model.kind == "one-vs-all"
    ):  # Σ over classes of ln(1 + exp(−y ⟨w, x⟩)), y = ±1
        return lambda outputs, y: nn.functional.softplus(
            torch.where(nn.functional.one_hot(y, outputs.shape[1]).bool(), -outputs, outputs)
        ).sum(1)
    if classes and config and config.loss and config.loss.kind != "cross-entropy":
        return _over_classes(config.loss.kind)
    if classes:
        return lambda outputs, y: nn.functional.cross_entropy(outputs, y, reduction="none")
    if config and config.loss and config.loss.kind != "squared":
        raise UserError(
            f"loss.kind = {config.loss.kind!r} needs classes; the data have numbers to predict: use 'squared'."
        )
    return lambda outputs, y: 0.5 * (outputs.flatten() - y.flatten()).square()


def _own(named: Any) -> Any:
    """The caller's own loss: one number a record, or records could not be told apart."""

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        found: Tensor = named.per_record(outputs, y)
        # What is traced has no shape yet; the trace is followed afterwards.
        if isinstance(found, Tensor) and found.shape != outputs.shape[:1]:
            raise UserError(
                f"loss.kind = {named.kind!r} gives numbers of shape {tuple(found.shape)} for {len(outputs)} records; "
                'it must give one number for each, as torch\'s losses do with reduction="none".'
            )
        return found

    return loss


def probabilities(classes: int | None, config: RunConfig) -> Literal["softmax", "sigmoid"] | None:
    """What makes probabilities of the outputs under this loss; None where it gives them no such meaning.

    "sigmoid" is every class against the rest: where there is an output for each, they are then divided by their sum.
    """
    named = config.loss.kind if config.loss else None
    if not classes or named in _WITHOUT_PROBABILITIES or hasattr(config.loss, "per_record"):
        return None
    each = config.model.kind in ("linear", "one-vs-all") or (named is not None and named != "cross-entropy")
    return "sigmoid" if each else "softmax"


def _over_classes(kind: str) -> Any:
    """Every class as an output of its own: ridge regression, or one logistic regression each."""

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        wanted = nn.functional.one_hot(y, outputs.shape[1]).to(outputs)
        if kind == "squared":
            return 0.5 * (outputs - wanted).square().sum(1)
        return nn.functional.binary_cross_entropy_with_logits(outputs, wanted, reduction="none").sum(1)

    return loss


def gradient_vector(config: RunConfig, module: nn.Module, classes: int | None) -> Vector:
    """The gradient of a record's loss; with `privacy.centre`, after the private mean is subtracted from the record."""
    loss = per_sample_loss(classes, config)
    if isinstance(module, Centred):
        return CentredSum(clipped_sum(module.head, loss), module.centre.numel(), centre_records)
    return clipped_sum(module, loss)
