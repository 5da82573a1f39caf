"""Comparison of models that two ways of running the same seeded run gave."""

from __future__ import annotations

import torch
from torch import Tensor

MOST_STEPS = 0.005  # share of coordinates whose release may have been rounded to the next step


def assert_same_numbers(one: Tensor, other: Tensor) -> None:
    """Raise an AssertionError unless both are equal but for the order of additions.

    Sums whose last digits differ are rounded to the same whole number of steps, or rarely to the next one.
    """
    one, other = one.double(), other.double()
    assert one.shape == other.shape
    far = (one - other).abs() > 1e-5 + 1e-4 * other.abs()
    if far.any():
        assert far.double().mean() <= MOST_STEPS, f"{far.double().mean():.2%} of the numbers differ"
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.02 * float(other.abs().max()))
