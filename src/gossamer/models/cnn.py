"""Small convolutional networks. Pooling before ReLU gives the same function in half the time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gossamer.errors import UserError
from gossamer.models.image import image_shape

if TYPE_CHECKING:
    from torch import nn


def shallow_cnn(
    input_shape: tuple[int, ...], outputs: int, *, filters: Sequence[int] = (8, 16), hidden: int = 32
) -> "nn.Module":
    """Two convolutions and two dense layers (Dyn-D2P on Fashion-MNIST; the paper leaves the widths open).

    Narrow by default: noise grows with the number of parameters, and one sample a round is little signal.
    """
    from torch import nn

    if len(filters) != 2 or min(filters) < 1 or hidden < 1:
        raise UserError(
            f"model.filters = {list(filters)} and model.hidden = {hidden} must be two widths and one, from 1"
        )
    channels, height, width = image_shape("shallow-cnn", input_shape, smallest=4)
    first, second = filters
    return nn.Sequential(
        nn.Conv2d(channels, first, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(first, second, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(second * (height // 4) * (width // 4), hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )


def mnist_cnn(
    input_shape: tuple[int, ...], outputs: int, *, filters: int = 3, kernel: int = 5, hidden: int = 64
) -> "nn.Module":
    """One convolution and two linear layers (dp-consensus, Appendix B).

    The paper gives no widths; the authors' public code has these (and Mish for ReLU, on 32×32 images).
    """
    from torch import nn

    for name, value in (("filters", filters), ("kernel", kernel), ("hidden", hidden)):
        if value < 1:
            raise UserError(f"model.{name} = {value} must be at least 1")
    channels, height, width = image_shape("mnist-cnn", input_shape, smallest=kernel + 1)
    pooled = ((height - kernel + 1) // 2) * ((width - kernel + 1) // 2)
    return nn.Sequential(
        nn.Conv2d(channels, filters, kernel),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(filters * pooled, hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )
