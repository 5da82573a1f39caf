"""Modules that break the sentence "a record is alone", and vectors that are fooled by them or by arithmetic.

`HandMadeSum` is what a clipped sum was before records were kept apart: the module sees the batch of all nodes at once,
and every record's gradient is that of its own loss in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels.stack import ParameterStack

FEATURES, CLASSES = 64, 10


class Head(nn.Module):
    """A linear head behind `prepared`, which subclasses spoil."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.prepared(x.flatten(1)))
        return out

    def prepared(self, x: Tensor) -> Tensor:
        return x


class BatchNormByHand(Head):
    def prepared(self, x: Tensor) -> Tensor:
        mean, var = torch.zeros(FEATURES), torch.ones(FEATURES)
        return F.batch_norm(x, mean, var, training=self.training and len(x) > 1)


class MeanOfTheLot(Head):
    def prepared(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if self.training else x


class Mixup(Head):
    def prepared(self, x: Tensor) -> Tensor:
        return 0.7 * x + 0.3 * x[torch.randperm(len(x))] if self.training else x


class ScaledIfLarge(Head):
    def prepared(self, x: Tensor) -> Tensor:
        return x / 255 if x.max() > 1 else x


class SlightMean(Head):
    def prepared(self, x: Tensor) -> Tensor:
        return x - 0.005 * x.mean(0)


class Remembers(Head):
    """Adds the mean of the lot before: nothing in this release, everything in the next."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | None = None

    def prepared(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        seen = x if self.last is None else x + self.last
        self.last = x.detach().mean(0)
        return seen


class StandardisedRecords(Head):
    """Each record by itself, but a constant one is 0 / 0."""

    def prepared(self, x: Tensor) -> Tensor:
        return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)


MIXING: dict[str, type[Head]] = {
    "batch norm": BatchNormByHand,
    "mean of the lot": MeanOfTheLot,
    "mixup": Mixup,
    "scaled if large": ScaledIfLarge,
    "slight mean": SlightMean,
}


class HandMadeSum:
    """Σ_b weigh(‖g_b‖) g_b with the gradients of single losses in the batch of all nodes: wrong for mixing modules."""

    def __init__(
        self,
        module: nn.Module,
        loss: Any,
        *,
        norm: Callable[[Tensor], Tensor] | None = None,
        poisoned: bool = False,
    ) -> None:
        self.module, self.loss, self.stack = module, loss, ParameterStack(module)
        self.poisoned = poisoned  # a gradient that is not finite meets its weight 0, instead of being left out
        self.norm = norm or (lambda gradient: gradient.double().norm().to(gradient))

    def __call__(
        self, points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Any, *, unit: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        sums, norms = torch.zeros_like(points), torch.zeros(mask.shape)
        if not mask.numel():
            return sums, norms
        x = x.masked_fill(~x.isfinite().flatten(2).all(2).view(*mask.shape, *[1] * (x.ndim - 2)), 0)
        # All nodes at the first one's point: what matters here is that they share the batch.
        own = {name: view[0].clone().requires_grad_() for name, view in self.stack.views(points[:1]).items()}
        with torch.enable_grad():
            losses = self.loss(functional_call(self.module, own, (x.flatten(0, 1),)), y.flatten(0, 1))
        each = torch.eye(len(losses))
        parts = torch.autograd.grad(losses, list(own.values()), each, is_grads_batched=True)
        gradients = torch.cat([part.flatten(1) for part in parts], 1)
        for b in mask.flatten().nonzero()[:, 0].tolist():
            norm, node = self.norm(gradients[b]), b // mask.shape[1]
            if not bool(norm.isfinite()) and not self.poisoned:
                continue
            norms[node, b % mask.shape[1]] = norm
            scaled = norm if unit is None else norm / unit[node]
            sums[node] += weigh(scaled[None])[0] * gradients[b]
        return sums, norms
