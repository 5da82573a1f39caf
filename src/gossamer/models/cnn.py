"""Small convolutional networks. Pooling before ReLU gives the same function in half the time."""

from typing import TYPE_CHECKING

from gossamer.errors import UserError
from gossamer.models.image import image_shape

if TYPE_CHECKING:
    from torch import nn


def shallow_cnn(input_shape: tuple[int, ...], outputs: int) -> "nn.Module":
    """Two convolutions and two dense layers (Dyn-D2P on Fashion-MNIST; the paper leaves the widths open)."""
    from torch import nn

    channels, height, width = image_shape("shallow-cnn", input_shape, smallest=4)
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), 64),
        nn.ReLU(),
        nn.Linear(64, outputs),
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
