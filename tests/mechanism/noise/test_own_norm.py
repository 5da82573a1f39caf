"""Noise scaled by the sum's own norm, which nothing can be proven about."""

from __future__ import annotations

import numpy as np
import torch
from tests.support.mechanism import noise_of, private_mean

from gossamer.accounting import releases
from gossamer.kernels.noise import Stream
from gossamer.mechanism.clipping import NoClip
from gossamer.mechanism.noise import Participation
from gossamer.mechanism.noise.base import OwnNorm


def test_own_norm_noise_follows_the_gradient() -> None:
    x = torch.zeros(2, 1, 4000)
    x[0, 0, 0], x[1, 0, 0] = 10.0, 0.1
    grad, book = private_mean(x, clip=NoClip(), noise=noise_of(0.3, 2, OwnNorm()), lots=[1.0, 1.0])
    spread = grad(torch.zeros(2, 4000))[:, 1:].std(dim=1)
    np.testing.assert_allclose(spread.numpy(), [3.0, 0.03], rtol=0.05)
    assert book.events[0][1].release.kind == "own-norm-gaussian"
    assert book.events[0][1].release.sensitivity == float("inf")


def test_its_release_says_no_more_than_the_multiplier() -> None:
    """σ is in units of a norm that nobody else knows, so no accountant may price it."""
    part = Participation("poisson", 0.1, "add-remove")
    release = noise_of(0.3, 1, OwnNorm()).release(0, 0.3, 2.0, 10, part, enforced=True)
    assert release == releases.OwnNormGaussian(
        sigma=0.3, sensitivity=2.0, sampling="poisson", rate=0.1, adjacency="add-remove"
    )
    assert release.unpriceable("add-remove")
    assert OwnNorm().without_proof
    assert not noise_of(0.3, 1, OwnNorm()).scale_is_public


def test_a_sum_of_zero_gets_no_noise_at_all() -> None:
    sums = torch.zeros(1, 4)
    one = torch.ones(1, dtype=torch.float64)
    everyone = torch.ones(1, dtype=torch.bool)
    noise_of(0.3, 1, OwnNorm()).add(Stream.seeded(0), [0], 0, sums, multiplier=one, bound=one, active=everyone)
    assert not sums.any()
