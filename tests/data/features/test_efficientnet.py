"""The network against one that is written differently, and against published numbers."""

from __future__ import annotations

import math

import pytest
import torch
from tests.support.weights import expected_shapes, random_weights
from torch import nn
from torch.nn import functional

from gossamer.data.features.pretrained import EfficientNetLite, scaled_stages


def parameters(width: float, depth: float) -> int:
    """As counted for whole networks: running statistics are none, the classifier of 1,000 classes belongs to it."""
    shapes = expected_shapes(width, depth)
    return sum(math.prod(s) for name, s in shapes.items() if "running" not in name) + 1280 * 1000 + 1000


@pytest.mark.parametrize(
    ("width", "depth", "millions"), [(1.0, 1.0, 4.7), (1.0, 1.1, 5.4), (1.1, 1.2, 6.1), (1.4, 1.8, 13.0)]
)
def test_as_many_parameters_as_are_published(width: float, depth: float, millions: float) -> None:
    assert parameters(width, depth) / 1e6 == pytest.approx(millions, abs=0.06)


def test_the_smallest_has_sixteen_blocks_and_halves_the_side_five_times() -> None:
    plan = scaled_stages(1.0, 1.0)
    assert sum(stage.blocks for stage in plan) == 16
    assert math.prod(stage.stride for stage in plan) == 16  # and the first convolution
    assert [stage.channels for stage in scaled_stages(1.1, 1.2)] == [16, 24, 48, 88, 120, 208, 352]


class Reference(nn.Module):
    """With batch normalisations of torch and pads of its own, in evaluation mode; one image at a time."""

    def __init__(self, weights: dict[str, torch.Tensor], width: float, depth: float) -> None:
        super().__init__()
        self.weights, self.plan = weights, scaled_stages(width, depth)

    def convolve(self, x: torch.Tensor, name: str, norm: str, stride: int) -> torch.Tensor:
        kernel = self.weights[f"{name}.weight"]
        size, groups = kernel.shape[-1], kernel.shape[0] if kernel.shape[1] == 1 else 1
        total = max(size - (stride if x.shape[-1] % stride == 0 else x.shape[-1] % stride), 0)
        x = functional.pad(x, (total // 2, -(-total // 2)) * 2)
        x = functional.conv2d(x, kernel, stride=stride, groups=groups)
        w = self.weights
        return functional.batch_norm(
            x,
            w[f"{norm}.running_mean"],
            w[f"{norm}.running_var"],
            w[f"{norm}.weight"],
            w[f"{norm}.bias"],
            eps=1e-3,
        )

    def forward(self, x: torch.Tensor, beside: int = 0) -> torch.Tensor:
        x = self.convolve(x, "_conv_stem", "_bn0", 2).clamp(0, 6)
        number, ends = 0, []
        for stage in self.plan:
            for k in range(stage.blocks):
                name, y = f"_blocks.{number}", x
                if stage.expansion > 1:
                    y = self.convolve(y, f"{name}._expand_conv", f"{name}._bn0", 1).clamp(0, 6)
                y = self.convolve(y, f"{name}._depthwise_conv", f"{name}._bn1", 1 if k else stage.stride)
                y = self.convolve(y.clamp(0, 6), f"{name}._project_conv", f"{name}._bn2", 1)
                x = x + y if k else y
                number += 1
            ends.append(x.flatten(2).mean(2))
        last = self.convolve(x, "_conv_head", "_bn1", 1).clamp(0, 6).mean((2, 3))
        return torch.cat([last, *reversed(ends[::-1][:beside])], 1)


@pytest.mark.parametrize("side", [32, 45])
@torch.no_grad()
def test_the_folded_network_is_the_one_with_batch_normalisations(side: int) -> None:
    weights = random_weights(1.0, 1.0)
    images = torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(1))
    ours = EfficientNetLite(weights, width=1.0, depth=1.0)(images)
    theirs = torch.cat([Reference(weights, 1.0, 1.0)(image[None]) for image in images])
    assert ours.shape == (3, 1280)
    assert ours.std(0).mean() > 1e-3  # it tells images apart
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("beside", [2, 7])
@torch.no_grad()
def test_means_of_the_last_stages_follow_the_last_ones(beside: int) -> None:
    weights = random_weights(1.0, 1.0)
    image = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    ours = EfficientNetLite(weights, width=1.0, depth=1.0)(image, beside)
    assert ours.shape == (1, 1280 + sum(stage.channels for stage in scaled_stages(1.0, 1.0)[-beside:]))
    torch.testing.assert_close(ours, Reference(weights, 1.0, 1.0)(image, beside), rtol=1e-3, atol=1e-4)


def test_training_mode_changes_nothing() -> None:
    """There is no batch normalisation left that could look at the batch, and nothing to train."""
    network = EfficientNetLite(random_weights(1.0, 1.0), width=1.0, depth=1.0)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    assert not list(network.parameters())
    assert torch.equal(network.train()(images), network.eval()(images))
