"""2 × 2 max pools: torch's numbers, to the last bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gossamer.kernels.direct import speed_up_pools


def pool(**options: object) -> nn.Sequential:
    module = nn.Sequential(nn.MaxPool2d(2, **options))  # type: ignore[arg-type]
    speed_up_pools(module)
    return module


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 9), st.integers(2, 9))
@torch.no_grad()
def test_values_are_those_of_torch(seed: int, height: int, width: int) -> None:
    x = torch.randn(3, 2, height, width, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(pool()(x), nn.functional.max_pool2d(x, 2))


def test_gradients_are_those_of_torch() -> None:
    """Of equal entries the first has it."""
    fast, slow = (torch.zeros(1, 1, 4, 4, requires_grad=True) for _ in range(2))
    pool()(fast).sum().backward()
    nn.functional.max_pool2d(slow, 2).sum().backward()
    assert fast.grad is not None
    assert slow.grad is not None
    assert torch.equal(fast.grad, slow.grad)


@torch.no_grad()
def test_not_a_number_stays_one() -> None:
    x = torch.zeros(1, 1, 4, 4)
    x[0, 0, 1, 1] = torch.nan
    assert torch.equal(pool()(x).isnan(), nn.functional.max_pool2d(x, 2).isnan())


@torch.no_grad()
@pytest.mark.parametrize(
    "options", [{"stride": 1}, {"padding": 1}, {"dilation": 2}, {"ceil_mode": True}, {"return_indices": True}]
)
def test_other_pools_are_left_alone(options: dict[str, object]) -> None:
    x = torch.randn(2, 1, 5, 5, generator=torch.Generator().manual_seed(0))
    found, expected = pool(**options)(x), nn.MaxPool2d(2, **options)(x)  # type: ignore[arg-type]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
