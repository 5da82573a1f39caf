"""Residual networks for small images (CIFAR style: 3×3 stem, no early pooling), GroupNorm for BatchNorm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gossamer.models.image import image_shape
from gossamer.models.table import models
from gossamer.options.types import Count

if TYPE_CHECKING:
    from torch import nn


@models.register("resnet9")
@dataclass(frozen=True, kw_only=True)
class ResNet9:
    """Eight convolutions and one linear layer, two residual blocks (dp-consensus on CIFAR-100).

    The authors' public code has a third block, between the last two poolings, and leaky ReLU.
    """

    width: Annotated[
        Count, Field(description="channels of the first stage; later ones have multiples of it")
    ] = 64
    groups: Annotated[Count, Field(description="groups of channels that are normalised together")] = 16

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        from gossamer.models.residual import GlobalMax, Residual, conv_norm

        channels, _, _ = image_shape("resnet9", input_shape, smallest=8)
        width, groups = self.width, self.groups

        def step(before: int, after: int, *, pool: bool = False) -> list[nn.Module]:
            # Pooling commutes with ReLU and leaves it a quarter of the work.
            pooling: list[nn.Module] = [nn.MaxPool2d(2)] if pool else []
            return [conv_norm(before, after, groups=groups), *pooling, nn.ReLU()]

        def block(size: int) -> Residual:
            return Residual(nn.Sequential(*step(size, size), *step(size, size)), outer_relu=False)

        return nn.Sequential(
            *step(channels, width),
            *step(width, 2 * width, pool=True),
            block(2 * width),
            *step(2 * width, 4 * width, pool=True),
            *step(4 * width, 8 * width, pool=True),
            block(8 * width),
            GlobalMax(),
            nn.Linear(8 * width, outputs),
        )


@models.register("resnet18")
@dataclass(frozen=True, kw_only=True)
class ResNet18:
    """He et al. 2016 in four stages of two basic blocks (AdaD2P and Dyn-D2P on CIFAR-10)."""

    width: Annotated[
        Count, Field(description="channels of the first stage; later ones have multiples of it")
    ] = 64
    groups: Annotated[Count, Field(description="groups of channels that are normalised together")] = 16

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        from gossamer.models.residual import GlobalMean, Residual, conv_norm

        channels, _, _ = image_shape("resnet18", input_shape, smallest=8)
        width, groups = self.width, self.groups

        def block(before: int, after: int, stride: int) -> Residual:
            body = nn.Sequential(
                conv_norm(before, after, groups=groups, stride=stride),
                nn.ReLU(),
                conv_norm(after, after, groups=groups),
            )
            same = stride == 1 and before == after
            shortcut = None if same else conv_norm(before, after, groups=groups, stride=stride, kernel=1)
            return Residual(body, shortcut, outer_relu=True)

        layers: list[nn.Module] = [conv_norm(channels, width, groups=groups), nn.ReLU()]
        before = width
        for stage in range(4):
            after = width * 2**stage
            layers += [block(before, after, stride=1 if stage == 0 else 2), block(after, after, stride=1)]
            before = after
        return nn.Sequential(*layers, GlobalMean(), nn.Linear(before, outputs))
