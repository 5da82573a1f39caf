"""Layers, and the checks of a user's module."""

from __future__ import annotations

import pytest
import torch
from tests.support.refusals import expect_refusal
from torch import nn

from gossamer.models.layers import (
    Centred,
    GlobalMax,
    GlobalMean,
    Residual,
    centre_records,
    check_no_mixing,
    conv_norm,
)
from gossamer.models.networks import build


def test_group_norms_divide_the_channels() -> None:
    for width, groups in ((64, 16), (12, 4), (6, 2), (5, 1)):
        network = build("resnet9", input_shape=(3, 32, 32), outputs=10, width=width)
        first = next(m for m in network.modules() if isinstance(m, nn.GroupNorm))
        assert first.num_groups == groups


def test_a_block_adds_its_body_to_its_shortcut() -> None:
    x = torch.tensor([[1.0, -3.0]])
    body = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        body.weight.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    assert Residual(body, outer_relu=False)(x).tolist() == [[-2.0, -2.0]]
    assert Residual(body, outer_relu=True)(x).tolist() == [[0.0, 0.0]]
    assert Residual(body, nn.ReLU(), outer_relu=False)(x).tolist() == [[-2.0, 1.0]]


def test_pooling_over_all_pixels() -> None:
    x = torch.arange(12.0).view(1, 2, 2, 3)
    assert GlobalMean()(x).tolist() == [[2.5, 8.5]]
    assert GlobalMax()(x).tolist() == [[5.0, 11.0]]


@pytest.mark.parametrize(("stride", "kernel", "size"), [(1, 3, 8), (2, 3, 4), (2, 1, 4)])
def test_a_convolution_keeps_the_size_but_for_its_stride(stride: int, kernel: int, size: int) -> None:
    block = conv_norm(2, 6, groups=4, stride=stride, kernel=kernel)
    out = block(torch.randn(3, 2, 8, 8))
    assert out.shape == (3, 6, size, size)
    assert block[0].bias is None
    assert block[1].num_groups == 2  # the greatest that divides both
    grouped = out.detach().view(3, 2, -1)
    torch.testing.assert_close(grouped.mean(2), torch.zeros(3, 2), atol=1e-5, rtol=0)


def test_records_lie_on_the_sphere_around_the_centre() -> None:
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    centre = torch.tensor([[[0.1, 0.2, 0.3]], [[1.0, 0.0, 0.0]]])
    before = x.clone()
    found = centre_records(x, centre)
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(2, 5))
    moved = x - centre
    torch.testing.assert_close(found * moved.norm(dim=-1, keepdim=True), moved)
    assert torch.equal(x, before)


def test_a_record_in_the_centre_itself_is_0_and_not_nan() -> None:
    x = torch.ones(1, 3)
    assert centre_records(x, torch.ones(3)).tolist() == [[0.0, 0.0, 0.0]]


def test_the_centre_is_the_first_parameter_and_starts_at_0() -> None:
    """The sums that `CentredSum` makes put the centre first."""
    network = Centred(nn.Linear(4, 2), 4)
    names = [name for name, _ in network.named_parameters()]
    assert names == ["centre", "head.weight", "head.bias"]
    assert not network.centre.any()
    x = torch.randn(3, 2, 2)
    flat = x.flatten(1)
    torch.testing.assert_close(network(x), network.head(flat / flat.norm(dim=1, keepdim=True)))


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm2d(4),
        nn.BatchNorm3d(4),
        nn.SyncBatchNorm(4),
        nn.LazyBatchNorm2d(),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.InstanceNorm2d(4, track_running_stats=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_mixing_layers_are_named(layer: nn.Module) -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sequential(nn.ReLU(), layer))
    with expect_refusal(key="model", names=[type(layer).__name__, "1.1"]) as caught:
        check_no_mixing(network)
    assert "GroupNorm" in str(caught.value)
    with expect_refusal(key="model", names="itself"):
        check_no_mixing(layer)


def test_norms_of_one_record_are_allowed() -> None:
    check_no_mixing(nn.Sequential(nn.InstanceNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm(4)))
