"""Features of a network with public weights, EfficientNet-Lite, trained on other records long before.

The weights are fixed and public and an image goes through them by itself: with neighbouring data sets all other records
have the same features, so what a run proves of the features it proves of the images. The network is EfficientNet-Lite
(Tan and Le 2019; ReLU6, no squeeze-and-excitation) up to its last average, written for fixed weights alone: every batch
normalisation is an affine map with the constants of the weights' training, folded into the convolution before it, so
that no image can reach another's features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from gossamer.data.features.steps import Shape, Step, StepKind, check_images, steps
from gossamer.data.origins import WEIGHTS
from gossamer.errors import UserError, ending

_EPSILON = 1e-3  # of the batch normalisations
FEATURES = 1280  # whatever the width


@dataclass(frozen=True)
class Stage:
    """Blocks of one width; the first of them has the stride."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    channels: int


_STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


def scaled_stages(width: float, depth: float) -> list[Stage]:
    """Those of a wider and deeper variant: widths in steps of 8, the first and the last stage are not repeated."""
    scaled = []
    for position, stage in enumerate(_STAGES):
        ends = position in (0, len(_STAGES) - 1)
        blocks = stage.blocks if ends else math.ceil(depth * stage.blocks)
        scaled.append(replace(stage, blocks=blocks, channels=_eights(width * stage.channels)))
    return scaled


def _eights(channels: float) -> int:
    """The nearest multiple of 8 that is at most a tenth below."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


class FixedConvolution(nn.Module):
    """A convolution and the batch normalisation after it, as one convolution with a bias; borders as in TensorFlow."""

    kernel: Tensor
    shift: Tensor

    def __init__(self, weights: Mapping[str, Tensor], name: str, norm: str, *, stride: int = 1) -> None:
        super().__init__()
        scale = weights[f"{norm}.weight"] / (weights[f"{norm}.running_var"] + _EPSILON).sqrt()
        kernel = weights[f"{name}.weight"]
        folded = (kernel * scale[:, None, None, None]).contiguous(memory_format=torch.channels_last)
        self.register_buffer("kernel", folded)  # channels last: a third faster on one core
        self.register_buffer("shift", weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale)
        self.stride, self.groups = stride, kernel.shape[0] if kernel.shape[1] == 1 else 1

    def forward(self, x: Tensor) -> Tensor:
        size = self.kernel.shape[-1]
        if self.stride == 1:
            return functional.conv2d(x, self.kernel, self.shift, padding=size // 2, groups=self.groups)
        # What is odd about the border goes to the right and to the bottom.
        rows, columns = (max((-(-n // self.stride) - 1) * self.stride + size - n, 0) for n in x.shape[2:])
        x = functional.pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        return functional.conv2d(x, self.kernel, self.shift, stride=self.stride, groups=self.groups)


class Block(nn.Module):
    """Inverted residual: 1×1 up, k×k within each channel, 1×1 down; added to what came in where both fit."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, *, stride: int, expands: bool) -> None:
        super().__init__()
        self.expand = FixedConvolution(weights, f"{name}._expand_conv", f"{name}._bn0") if expands else None
        self.within = FixedConvolution(weights, f"{name}._depthwise_conv", f"{name}._bn1", stride=stride)
        self.project = FixedConvolution(weights, f"{name}._project_conv", f"{name}._bn2")
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        up = x if self.expand is None else functional.relu6(self.expand(x), inplace=True)
        y: Tensor = self.project(functional.relu6(self.within(up), inplace=True))
        return x + y if self.stride == 1 and x.shape == y.shape else y


class EfficientNetLite(nn.Module):
    """Images (B, 3, S, S) with values about [−1, 1] → (B, 1280): the mean of each of the last channels."""

    def __init__(self, weights: Mapping[str, Tensor], *, width: float, depth: float) -> None:
        super().__init__()
        self.stem = FixedConvolution(weights, "_conv_stem", "_bn0", stride=2)
        stages, number = [], 0
        for stage in scaled_stages(width, depth):
            blocks = []
            for k in range(stage.blocks):
                stride, expands = stage.stride if k == 0 else 1, stage.expansion > 1
                blocks.append(Block(weights, f"_blocks.{number}", stride=stride, expands=expands))
                number += 1
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.head = FixedConvolution(weights, "_conv_head", "_bn1")

    def forward(self, images: Tensor, stages: int = 0) -> Tensor:
        """With `stages`, the means of the last so many follow: (B, 1280 + their channels)."""
        x, means = functional.relu6(self.stem(images), inplace=True), []
        for stage in self.stages:
            x = stage(x)
            means.append(x.mean((2, 3)))
        last = functional.relu6(self.head(x), inplace=True).mean((2, 3))
        return torch.cat([last, *means[len(means) - stages :]], 1)


_TOGETHER = 4  # images: the widest layer of more does not stay in a core's cache
_BLACK, _GREY = 127 / 255, 128 / 255  # the weights were trained on (value − 127) / 128


@steps.register("pretrained")
class Pretrained(StepKind):
    """Pixels in [0, 1], grey or in colour, enlarged to side × side; 1,280 numbers of at least 0.

    `stages`: after them the means of the last so many stages, of any sign and at scales of their own.
    """

    weights: str = "efficientnet-lite2"
    side: Annotated[int, Field(ge=32, le=512)] = 128
    mirror: bool = False
    stages: Annotated[int, Field(ge=0, le=len(_STAGES))] = 0

    costly: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.weights not in WEIGHTS:
            known = f"there are {', '.join(WEIGHTS)}{ending(self.weights, WEIGHTS)}"
            raise UserError(f"data.transform: pretrained has weights = {self.weights!r}; {known}")

    def key(self) -> dict[str, Any]:
        return {**super().key(), "sha256": WEIGHTS[self.weights].digest}

    def build(self, before: Shape, data_dir: Path | None = None) -> Step:
        channels, _, _ = check_images("pretrained", before)
        if channels not in (1, 3):
            raise UserError(f"data.transform: pretrained needs 1 or 3 channels, not {channels}.")
        entry = WEIGHTS[self.weights]
        widths = [stage.channels for stage in scaled_stages(entry.width, entry.depth)]

        @cache
        def network() -> EfficientNetLite:  # at first use: a shape, or features in the cache, need no weights
            return EfficientNetLite(entry.tensors(data_dir), width=entry.width, depth=entry.depth)

        def apply(block: Tensor) -> Tensor:
            starts = range(0, len(block), _TOGETHER)
            return torch.cat([self._features(block[at : at + _TOGETHER], network()) for at in starts])

        return Step(of=self, shape=(FEATURES + sum(widths[len(widths) - self.stages :]),), apply=apply)

    def _features(self, images: Tensor, network: EfficientNetLite) -> Tensor:
        images = images.expand(-1, 3, -1, -1)
        large = functional.interpolate(images, (self.side, self.side), mode="bilinear", align_corners=False)
        large = ((large - _BLACK) / _GREY).contiguous(memory_format=torch.channels_last)
        result: Tensor = network(large, self.stages)
        return (result + network(large.flip(3), self.stages)) / 2 if self.mirror else result
