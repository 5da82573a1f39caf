"""Linear model and multilayer perceptron, on flattened records."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from gossamer.models.table import models
from gossamer.options.types import Count

if TYPE_CHECKING:
    from torch import nn


@models.register("softmax")
@dataclass(frozen=True, kw_only=True)
class Softmax:
    """One linear layer: multinomial logistic regression under cross-entropy."""

    bias: Annotated[bool, Field(description="a constant for every class")] = True

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), outputs, bias=self.bias))


@models.register("linear")
@dataclass(frozen=True, kw_only=True)
class Linear:
    """⟨a, x⟩, one number whatever the classes, for the losses under [loss]; starts at 0."""

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        return _from_zero(input_shape, 1)


@models.register("one-vs-all")
@dataclass(frozen=True, kw_only=True)
class OneVsAll:
    """One linear classifier per class, from zero. The bias is a feature of the record (`data.bias`)."""

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        return _from_zero(input_shape, outputs)


@models.register("mlp")
@dataclass(frozen=True, kw_only=True)
class MLP:
    """Fully connected layers; with one hidden layer the 2-layer net of AdaD2P (the width is our choice)."""

    hidden: Annotated[list[Count], Field(description="widths of the hidden layers")] = field(
        default_factory=lambda: [128]
    )
    activation: Annotated[Literal["relu", "tanh"], Field(description="after every hidden layer")] = "relu"

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        layers: list[nn.Module] = [nn.Flatten()]
        before = prod(input_shape)
        for width in self.hidden:
            layers += [nn.Linear(before, width), nn.ReLU() if self.activation == "relu" else nn.Tanh()]
            before = width
        return nn.Sequential(*layers, nn.Linear(before, outputs))


def _from_zero(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    from torch import nn

    layer = nn.Linear(prod(input_shape), outputs, bias=False)
    nn.init.zeros_(layer.weight)
    return nn.Sequential(nn.Flatten(), layer)
