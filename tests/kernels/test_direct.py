"""Convolutions of few channels: the library's numbers, and every record's own gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.per_sample import WEIGHS, assert_sum, cross_entropy
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from gossamer.kernels import direct
from gossamer.kernels.bookkeeping import BookKeeping
from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.stack import ParameterStack


def library(a: Tensor, weight: Tensor, bias: Tensor, padding: tuple[int, int], pool: bool) -> Tensor:
    lot = len(a) // len(weight)
    out = torch.cat(
        [
            F.conv2d(a[i * lot : (i + 1) * lot], w, b, padding=padding)
            for i, (w, b) in enumerate(zip(weight, bias, strict=True))
        ]
    )
    return F.max_pool2d(out, 2) if pool else out


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    channels=st.integers(1, 5),
    outputs=st.integers(1, 6),
    sides=st.tuples(st.integers(5, 11), st.integers(5, 11)),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    pool=st.booleans(),
)
def test_outputs_and_both_gradients_are_those_of_the_library(
    seed: int,
    channels: int,
    outputs: int,
    sides: tuple[int, int],
    kernel: tuple[int, int],
    padding: tuple[int, int],
    pool: bool,
) -> None:
    padding = min(padding[0], kernel[0] - 1), min(padding[1], kernel[1] - 1)
    if pool and min(s + 2 * p - k + 1 for s, p, k in zip(sides, padding, kernel, strict=True)) < 2:
        return
    draw = torch.Generator().manual_seed(seed)
    a = torch.randn(6, channels, *sides, generator=draw, requires_grad=True)
    weight = torch.randn(2, outputs, channels, *kernel, generator=draw)
    bias = torch.randn(2, outputs, generator=draw)
    expected = library(a, weight, bias, padding, pool)
    out, places = direct.forward(a, weight, bias, padding, pool=pool)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)

    g = torch.randn(out.shape, generator=draw)
    at_inputs = direct.input_gradient(g, places, weight, a, padding)
    torch.testing.assert_close(at_inputs, torch.autograd.grad(expected, a, g)[0], rtol=1e-4, atol=1e-4)

    found = direct.weight_gradients(a, g, places, kernel, padding)
    assert found.shape == (6, *weight.shape[1:])
    for record in range(6):
        own = weight[record // 3].clone().requires_grad_()
        one = library(a[record : record + 1].detach(), own[None], bias[None, record // 3], padding, pool)
        (alone,) = torch.autograd.grad(one, own, g[record : record + 1])
        torch.testing.assert_close(found[record], alone, rtol=1e-4, atol=1e-4)


def test_of_equal_entries_the_first_has_the_gradient_and_no_number_wins_over_all() -> None:
    """As in torch: a plane of zeros, and planes with a hole at each of the four places."""
    a = torch.zeros(5, 1, 2, 2)
    for place in range(4):
        a[place + 1, 0, place // 2, place % 2] = torch.nan
    one = torch.ones(1, 1, 1, 1, 1)
    out, places = direct.forward(a, one, None, (0, 0), pool=True)
    _, indices = F.max_pool2d(a, 2, return_indices=True)
    assert places.flatten().tolist() == indices.flatten().tolist() == [0, 0, 1, 2, 3]
    assert out.isnan().flatten().tolist() == [False, True, True, True, True]


@pytest.mark.parametrize(
    ("device", "dtype", "channels", "side", "kernel", "padding", "outputs", "expected"),
    [
        ("cpu", torch.float32, 8, 14, (3, 3), (1, 1), 16, True),
        ("cpu", torch.float64, 8, 14, (3, 3), (1, 1), 16, False),
        ("meta", torch.float32, 8, 14, (3, 3), (1, 1), 16, False),
        ("cpu", torch.float32, 64, 8, (3, 3), (1, 1), 64, False),  # many weights
        ("cpu", torch.float32, 32, 8, (3, 3), (1, 1), 32, False),  # many for so small a plane
        ("cpu", torch.float32, 8, 4, (3, 3), (1, 1), 8, False),  # too small a plane
        ("cpu", torch.float32, 8, 400, (3, 3), (1, 1), 8, False),  # too large a plane
        ("cpu", torch.float32, 1, 14, (1, 1), (1, 1), 8, False),  # outputs of padding alone
    ],
)
def test_where_it_is_used(
    device: str,
    dtype: torch.dtype,
    channels: int,
    side: int,
    kernel: tuple[int, int],
    padding: tuple[int, int],
    outputs: int,
    expected: bool,
) -> None:
    a = torch.empty(2, channels, side, side, dtype=dtype, device=device)
    assert direct.suits(a, kernel, padding, outputs) is expected


class Twice(nn.Module):
    """The map behind the convolution is read twice, so the pool may not become part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.pool = nn.Conv2d(1, 4, 3), nn.MaxPool2d(2)
        self.last = nn.Linear(4 * 16 + 4 * 64, 3)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.convolution(x)
        return self.last(torch.cat([self.pool(wide).flatten(1), wide.flatten(1)], dim=1))


def pooled(kind: type[nn.Module], **options: object) -> nn.Module:
    """Ends in one number for each of four channels, whatever the pool."""
    return nn.Sequential(nn.Conv2d(1, 4, 3), kind(2, **options), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("make", "side", "fused"),
    [
        (lambda: pooled(nn.MaxPool2d), 10, 1),
        (lambda: pooled(nn.MaxPool2d, stride=1), 10, 0),
        (lambda: pooled(nn.MaxPool2d, ceil_mode=True), 11, 0),
        (lambda: pooled(nn.AvgPool2d), 10, 0),
        (Twice, 10, 0),
    ],
)
def test_pools_become_part_of_the_convolution_before_them(make: object, side: int, fused: int) -> None:
    torch.manual_seed(0)
    module = make()  # type: ignore[operator]
    points = ParameterStack(module).flatten(module).repeat(2, 1) + 0.1 * torch.randn(2, 1)
    x, y = torch.randn(2, 3, 1, side, side), torch.randint(0, 3, (2, 3))
    mask = torch.tensor([[True, True, True], [True, False, True]])
    kept = BookKeeping(module, cross_entropy, x, y)
    assert sum(getattr(rule, "pool", False) for rule in kept.rules.values()) == fused
    found = ClippedSum(module, cross_entropy, method="book-keeping")(points, x, y, mask, WEIGHS["constant"])
    assert_sum(found, module, points, x, y, mask, WEIGHS["constant"])
