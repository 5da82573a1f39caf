"""Records less their mean: both halves against sums that are written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gossamer.kernels.clipped_sum import CentredSum, ClippedSum


def subtract(records: Tensor, centre: Tensor) -> Tensor:
    return records - centre


def square(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets).square() / 2


def clip(norms: Tensor) -> Tensor:
    return (0.5 / norms).clamp(max=1.0)


def made(centre: Any = subtract) -> tuple[CentredSum, Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    inner = ClippedSum(nn.Linear(3, 1, bias=False), square)
    mask = torch.tensor([[True, True, False, True], [True, True, True, True]])
    return CentredSum(inner, 3, centre), torch.zeros(2, 6), torch.randn(2, 4, 3), torch.randn(2, 4), mask


def test_while_the_centre_is_0_clipped_records_are_summed_in_its_place() -> None:
    kernel, points, x, y, mask = made()
    points[:, 3:] = 1.0
    total, norms = kernel(points, x, y, mask, clip)
    lengths = x.norm(dim=2)
    expected = (x * ((0.5 / lengths).clamp(max=1) * mask)[..., None]).sum(1)
    torch.testing.assert_close(total[:, :3], expected)
    assert not total[:, 3:].any()
    torch.testing.assert_close(norms, lengths * mask)


def test_norms_are_weighed_in_units_where_there_are_some() -> None:
    kernel, points, x, y, mask = made()
    unit = torch.tensor([2.0, 0.5])
    total, _ = kernel(points, x, y, mask, clip, unit=unit)
    weights = (0.5 * unit[:, None] / x.norm(dim=2)).clamp(max=1) * mask
    torch.testing.assert_close(total[:, :3], (x * weights[..., None]).sum(1))


def test_a_record_that_is_not_finite_or_not_there_adds_nothing() -> None:
    kernel, points, x, y, mask = made()
    expected, _ = kernel(points, x, y, mask & torch.tensor([True, False, True, True]), clip)
    x[:, 1], x[0, 2] = float("inf"), float("nan")
    total, norms = kernel(points, x, y, mask, clip)
    torch.testing.assert_close(total, expected)
    assert not norms[:, 1].any()


def test_then_gradients_at_centred_records_go_in_the_place_of_the_parameters() -> None:
    kernel, points, x, y, mask = made()
    points[:, :3], points[:, 3:] = 0.3, torch.randn(2, 3)
    total, _ = kernel(points, x, y, mask, clip)
    centred = x - 0.3
    error = torch.einsum("mbi,mi->mb", centred, points[:, 3:]) - y
    gradients = error[..., None] * centred
    weights = (0.5 / gradients.norm(dim=2)).clamp(max=1) * mask
    torch.testing.assert_close(total[:, 3:], (gradients * weights[..., None]).sum(1), rtol=1e-4, atol=1e-6)
    assert not total[:, :3].any()


def test_full_lots_are_centred_once_and_again_when_the_centre_moves() -> None:
    calls = []

    def counted(records: Tensor, centre: Tensor) -> Tensor:
        calls.append(1)
        return records - centre

    kernel, points, x, y, mask = made(counted)
    points[:] = 0.3
    kernel(points, x, y, mask, clip)
    kernel(points, x, y, mask, clip)
    assert len(calls) == 1
    points[:, 0] = 0.4
    moved, _ = kernel(points, x, y, mask, clip)
    other, _ = made()[0](points, x.clone(), y, mask, clip)
    assert len(calls) == 2
    torch.testing.assert_close(moved, other)
