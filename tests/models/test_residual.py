"""The blocks of residual networks by hand."""

import pytest
import torch
from torch import nn

from gossamer.models.layers import GlobalMax, GlobalMean, Residual, conv_norm
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
