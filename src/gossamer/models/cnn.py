"""Small convolutional networks. Pooling before ReLU gives the same function in half the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gossamer.models.image import image_shape
from gossamer.models.table import models
from gossamer.options.types import Count

if TYPE_CHECKING:
    from torch import nn


@models.register("shallow-cnn")
@dataclass(frozen=True, kw_only=True)
class ShallowCNN:
    """Two convolutions and two dense layers (Dyn-D2P on Fashion-MNIST; the paper leaves the widths open).

    Narrow by default: noise grows with the number of parameters, and one sample a round is little signal.
    """

    filters: Annotated[
        list[Count], Field(min_length=2, max_length=2, description="channels of the two convolutions")
    ] = field(default_factory=lambda: [8, 16])
    hidden: Annotated[Count, Field(description="width of the dense layer")] = 32

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        channels, height, width = image_shape("shallow-cnn", input_shape, smallest=4)
        first, second = self.filters
        return nn.Sequential(
            nn.Conv2d(channels, first, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(first, second, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(second * (height // 4) * (width // 4), self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, outputs),
        )


@models.register("mnist-cnn")
@dataclass(frozen=True, kw_only=True)
class MnistCNN:
    """One convolution and two linear layers (dp-consensus, Appendix B).

    The paper gives no widths; the authors' public code has these (and Mish for ReLU, on 32×32 images).
    """

    filters: Annotated[Count, Field(description="channels of the convolution")] = 3
    kernel: Annotated[Count, Field(description="side of the convolution's window, in pixels")] = 5
    hidden: Annotated[Count, Field(description="width of the hidden layer")] = 64

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        channels, height, width = image_shape("mnist-cnn", input_shape, smallest=self.kernel + 1)
        pooled = ((height - self.kernel + 1) // 2) * ((width - self.kernel + 1) // 2)
        return nn.Sequential(
            nn.Conv2d(channels, self.filters, self.kernel),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(self.filters * pooled, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, outputs),
        )
