"""Linear model and multilayer perceptron, on flattened records."""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Literal

from gossamer.errors import UserError

if TYPE_CHECKING:
    from torch import nn


def softmax(input_shape: tuple[int, ...], outputs: int, *, bias: bool = True) -> "nn.Module":
    """One linear layer: multinomial logistic regression under cross-entropy."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), outputs, bias=bias))


def linear(input_shape: tuple[int, ...], outputs: int) -> "nn.Module":
    """⟨a, x⟩, one number whatever the classes, for the losses of `losses`; starts at 0."""
    from torch import nn

    layer = nn.Linear(prod(input_shape), 1, bias=False)
    nn.init.zeros_(layer.weight)
    return nn.Sequential(nn.Flatten(), layer)


def mlp(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    hidden: Sequence[int] = (128,),
    activation: Literal["relu", "tanh"] = "relu",
) -> "nn.Module":
    """Fully connected layers; with one hidden layer the 2-layer net of AdaD2P (the width is our choice)."""
    from torch import nn

    if any(width < 1 for width in hidden):
        raise UserError(f"model.hidden = {list(hidden)} must list widths of at least 1")
    layers: list[nn.Module] = [nn.Flatten()]
    before = prod(input_shape)
    for width in hidden:
        layers += [nn.Linear(before, width), nn.ReLU() if activation == "relu" else nn.Tanh()]
        before = width
    return nn.Sequential(*layers, nn.Linear(before, outputs))
