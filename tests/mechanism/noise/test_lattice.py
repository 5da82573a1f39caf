"""Noise in whole numbers of lattice steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from tests.support.mechanism import levels, noise_of, private_mean

from gossamer.kernels.noise import Stream
from gossamer.mechanism.clipping import ClipTo, Constant
from gossamer.mechanism.noise import Participation
from gossamer.mechanism.noise.gaussian import LatticeNoise


def test_lattice_noise_is_whole_multiples_of_the_stated_spread() -> None:
    x = torch.randn(1, 3, 200, generator=torch.Generator().manual_seed(0))
    grad, book = private_mean(
        x, clip=ClipTo(Constant(0.5)), noise=noise_of(1.5, 1, arithmetic="lattice"), lots=[1.0]
    )
    plain, _ = private_mean(x, clip=ClipTo(Constant(0.5)), lots=[1.0])
    step = 0.5 / (1000 * 200**0.5)
    noise = []
    for _ in range(4):
        value = grad(torch.zeros(1, 200))[0].double().numpy()
        np.testing.assert_allclose(
            value / step, np.round(value / step), atol=0.06
        )  # float32 carries the result
        noise.append(value - plain(torch.zeros(1, 200))[0].double().numpy())
    event = book.events[0][1].release
    assert event.sensitivity == pytest.approx(0.5 * 1.001, rel=1e-9)
    assert event.noise_multiplier == pytest.approx(1.5, rel=1e-12)
    sample = np.concatenate(noise)
    assert stats.kstest(sample, stats.norm(0, event.sigma).cdf).pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(sample, stats.norm(0, wrong * event.sigma).cdf).pvalue < 1e-4


def test_rounding_widens_the_sensitivity_by_half_a_step_in_every_coordinate_at_either_end() -> None:
    """Two sums that differ by a vector of norm C land on lattice points at most C + γ √d apart."""
    noise, C, d = LatticeNoise(levels(1.0, 1)), torch.tensor([0.3], dtype=torch.float64), 50
    wide = float(noise.sensitivity(C, d))
    step = 0.3 / (1000 * d**0.5)
    assert wide == pytest.approx(0.3 + step * d**0.5, rel=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(200):
        one, move = rng.normal(size=d), rng.normal(size=d)
        other = one + 0.3 * move / np.linalg.norm(move)
        apart = np.linalg.norm(np.round(one / step) - np.round(other / step)) * step
        assert apart <= wide


def test_a_node_that_takes_no_part_keeps_its_sum() -> None:
    sums = torch.full((2, 5), 0.123)
    ones = torch.ones(2, dtype=torch.float64)
    active = torch.tensor([True, False])
    LatticeNoise(levels(1.0, 2)).add(
        Stream.seeded(1), range(2), 0, sums, multiplier=ones, bound=ones, active=active
    )
    assert torch.equal(sums[1], torch.full((5,), 0.123))
    assert not torch.equal(sums[0], sums[1])


def test_nothing_is_drawn_ahead_and_a_bound_that_is_only_believed_is_no_sensitivity() -> None:
    noise = LatticeNoise(levels(1.0, 1))
    assert noise.ahead(Stream.seeded(1), [0], 0, 3) is None
    release = noise.release(0, 2.0, 0.5, 3, Participation("full", 1.0, "add-remove"), enforced=False)
    assert (release.sigma, release.sensitivity) == (1.0, float("inf"))  # type: ignore[attr-defined]
