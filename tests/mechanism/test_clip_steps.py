"""Lots clipped as a whole: how far one record moves them, what is released, and whether the price holds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from tests.support.mechanism import private_mean, record_is_gradient

from gossamer.accounting.releases import CLIPPED_LOT
from gossamer.kernels.rounding import EXCESS
from gossamer.mechanism.clipping import ClipLotTo, Constant, ConstantClip, DecayingClip, Geometric
from gossamer.mechanism.sampling import PoissonSampler

L, C = 4.0, 0.5


def clipped_mean(records: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """(d,) as a node would release it without noise: of the records that are in the lot."""
    step = ClipLotTo(Constant(C), torch.tensor([L])).at(0, 1)
    mask = torch.ones(1, len(records), dtype=torch.bool) if mask is None else mask
    x = records[None]
    sums, _ = step.sums(record_is_gradient, torch.zeros(1, records.shape[1]), x, x[..., 0], mask)
    return (sums[0] / L).double()


lots = st.tuples(st.integers(0, 2**31), st.integers(1, 6), st.integers(1, 5), st.floats(-6.0, 15.0))


@settings(max_examples=200, deadline=None)
@given(lots, st.integers(0, 5), st.floats(-6.0, 15.0))
def test_no_record_moves_the_mean_by_more_than_twice_the_bound(
    drawn: tuple[int, int, int, float], place: int, size: float
) -> None:
    """Added, taken away or replaced, whatever the records are: and nothing leaves the ball."""
    seed, count, width, scale = drawn
    chance = torch.Generator().manual_seed(seed)
    records = torch.randn(count, width, generator=chance) * 10.0**scale
    other = torch.randn(width, generator=chance) * 10.0**size
    place %= count
    mask = torch.ones(1, count, dtype=torch.bool)
    mask[0, place] = False
    replaced = records.clone()
    replaced[place] = other
    whole, without, swapped = clipped_mean(records), clipped_mean(records, mask), clipped_mean(replaced)
    for value in (whole, without, swapped):
        assert float(value.norm()) <= C * (1 + 1e-6)
    assert float((whole - without).norm()) <= 2 * C * (1 + 1e-6)
    assert float((whole - swapped).norm()) <= 2 * C * (1 + 1e-6)


def test_one_record_can_cross_the_ball() -> None:
    """So twice the bound is no more than is needed."""
    others = torch.full((3, 2), -5.0)
    crossing = torch.cat([others, torch.full((1, 2), 40.0)])
    assert float((clipped_mean(others) - clipped_mean(crossing)).norm()) == pytest.approx(2 * C)


def test_what_is_released_is_the_clipped_mean_and_the_noise_is_on_the_mean() -> None:
    """σ times C, not over the lot once more; the ledger's line has both times the lot, as the sum that was noised."""
    x = torch.randn(2, 5, 300, generator=torch.Generator().manual_seed(1))
    clip = ClipLotTo(Geometric(C, 1 / 9, 10), torch.tensor([5.0, 5.0]))
    still, _ = private_mean(x, clip=clip)
    for k in range(10):
        mean, bound = x.mean(1), C * 9 ** (-k / 10)
        expected = mean * (bound / mean.norm(dim=1, keepdim=True)).clamp_max(1)
        np.testing.assert_allclose(still(torch.zeros(2, 300)).numpy(), expected.numpy(), rtol=1e-5)
    noisy, book = private_mean(torch.zeros(2, 5, 20_000), clip=ConstantClip(bound=C, of="lot").make(1, torch.tensor([5.0, 5.0]), torch.ones(2)), z=0.7)  # fmt: skip
    assert float(noisy(torch.zeros(2, 20_000)).std()) == pytest.approx(0.7 * C, rel=0.02)
    release = book.events[0][1].release
    assert (release.sensitivity, release.noise_multiplier) == pytest.approx((5 * C * (1 + EXCESS), 0.7))
    assert release.clipped == CLIPPED_LOT
    assert release.shift("add-remove") == release.shift("replace-one") == pytest.approx(2 * 5 * C * (1 + EXCESS))


def test_mean_and_bound_are_a_records_where_the_lot_is_one_record() -> None:
    """With lots of one record both readings of the paper are the same."""
    x = torch.randn(4, 1, 7, generator=torch.Generator().manual_seed(2)) * 3
    ones, largest = torch.ones(4), torch.ones(4)
    whole, _ = private_mean(x, clip=DecayingClip(start=2.0, ratio=4.0, of="lot").make(5, ones, largest))
    each, _ = private_mean(x, clip=DecayingClip(start=2.0, ratio=4.0).make(5, ones, largest))
    for _ in range(5):
        point = torch.zeros(4, 7)
        np.testing.assert_allclose(whole(point).numpy(), each(point).numpy(), rtol=1e-5)


@pytest.mark.parametrize("shift", [1.0, 2.0])
def test_an_attack_reaches_the_price_and_would_break_half_of_it(shift: float) -> None:
    """Records that pull the lot to one side of its ball whoever is drawn, and one that pulls it to the other.

    δ(ε) of the best threshold test, from 2 × 60,000 releases of the reader itself, against that of the pair that the
    accountant takes, ((1 − q) N(0) + q N(2C), N(0)), and against the pair at C, which a clip of records would have.
    """
    runs, q, sigma, epsilon = 60_000, 0.3, 1.0, 0.5
    others = torch.full((runs, 30, 1), -1e3)
    canary = torch.full((runs, 1, 1), 1e6)
    outcomes = []
    for x in (others, torch.cat([others, canary], 1)):
        grad, _ = private_mean(
            x,
            clip=ClipLotTo(Constant(1.0), torch.ones(runs)),
            z=sigma,
            sampler=PoissonSampler([q] * runs),
            lots=[1.0] * runs,
        )
        outcomes.append(np.sort(grad(torch.zeros(runs, 1)).double().numpy()[:, 0]))
    thresholds = np.linspace(-3, 5, 200)
    without, with_it = (1 - np.searchsorted(values, thresholds) / runs for values in outcomes)
    found = float((with_it - math.exp(epsilon) * without).max())
    t = np.linspace(-10, 10, 20_001)
    tail = norm.sf(t)
    priced = float(((1 - q) * tail + q * norm.sf(t - shift / sigma) - math.exp(epsilon) * tail).max())
    if shift == 2.0:
        assert found == pytest.approx(priced, abs=0.01)
    else:
        assert found > 2 * priced
