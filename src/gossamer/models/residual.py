"""Building blocks of the residual networks, with GroupNorm: it looks at one record at a time."""

from math import gcd

import torch
from torch import Tensor, nn


def conv_norm(before: int, after: int, *, groups: int, stride: int = 1, kernel: int = 3) -> nn.Sequential:
    """Convolution without bias (the norm has one) and GroupNorm."""
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.GroupNorm(gcd(groups, after), after),
    )


class Residual(nn.Module):
    """relu(body(x) + shortcut(x)), or body(x) + shortcut(x) without the outer ReLU."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, *, outer_relu: bool) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut if shortcut is not None else nn.Identity()
        self.outer_relu = outer_relu

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.body(x) + self.shortcut(x)
        return torch.relu(total) if self.outer_relu else total


class GlobalMean(nn.Module):
    """Mean over all pixels of each channel."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


class GlobalMax(nn.Module):
    """Maximum over all pixels of each channel."""

    def forward(self, x: Tensor) -> Tensor:
        return x.amax(dim=(2, 3))
