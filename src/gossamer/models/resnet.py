"""Residual networks for small images (CIFAR style: 3×3 stem, no early pooling), GroupNorm for BatchNorm."""

from typing import TYPE_CHECKING

from gossamer.errors import UserError
from gossamer.models.image import image_shape

if TYPE_CHECKING:
    from torch import nn


def resnet9(input_shape: tuple[int, ...], outputs: int, *, width: int = 64, groups: int = 16) -> "nn.Module":
    """Eight convolutions and one linear layer, two residual blocks (dp-consensus on CIFAR-100).

    The authors' public code has a third block, between the last two poolings, and leaky ReLU.
    """
    from torch import nn

    from gossamer.models.residual import GlobalMax, Residual, conv_norm

    channels, _, _ = image_shape("resnet9", input_shape, smallest=8)
    _check(width, groups)

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


def resnet18(input_shape: tuple[int, ...], outputs: int, *, width: int = 64, groups: int = 16) -> "nn.Module":
    """He et al. 2016 in four stages of two basic blocks (AdaD2P and Dyn-D2P on CIFAR-10)."""
    from torch import nn

    from gossamer.models.residual import GlobalMean, Residual, conv_norm

    channels, _, _ = image_shape("resnet18", input_shape, smallest=8)
    _check(width, groups)

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


def _check(width: int, groups: int) -> None:
    for name, value in (("width", width), ("groups", groups)):
        if value < 1:
            raise UserError(f"model.{name} = {value} must be at least 1")
