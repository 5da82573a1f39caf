"""The noises of DP-dKM: drawn as their events say, and priced no lower than they cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.mechanism import noise_of

from gossamer.accounting import releases
from gossamer.accounting.profiles import Noise
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise import Participation
from gossamer.mechanism.noise.shaped import Laplace, TruncatedGaussian, TruncatedGeneralised, TruncatedLaplace
from reproductions.noises import density, variance

FAMILIES: list[tuple[Any, float]] = [
    (Laplace(), math.inf), (TruncatedLaplace(), 2.0), (TruncatedGaussian(), 1.5),
    (TruncatedGeneralised(shape=3.0), 1.2), (TruncatedGeneralised(shape=1.5), math.inf),
]  # fmt: skip


def sample(kind: Any, end: float, sigma: float, count: int = 40_000) -> np.ndarray:
    out = torch.zeros(2, count // 2, dtype=torch.float64)
    scale, everyone = torch.full((2,), sigma, dtype=torch.float64), torch.ones(2, dtype=torch.bool)
    noise_of(sigma, 2, kind, end=end).add(
        Stream.seeded(5), [0, 1], 7, out, multiplier=scale, bound=torch.ones(2), active=everyone
    )
    return out.flatten().numpy()


def distance(values: np.ndarray, noise: Noise) -> float:
    """Kolmogorov–Smirnov distance to the exact distribution."""
    ordered = np.sort(values)
    exact = noise.between(np.full_like(ordered, -noise.reach()), ordered)
    ranks = np.arange(len(ordered) + 1) / len(ordered)
    return float(max(np.abs(exact - ranks[:-1]).max(), np.abs(exact - ranks[1:]).max()))


@pytest.mark.parametrize(("kind", "end"), FAMILIES)
def test_noise_is_drawn_from_the_density_its_release_names(kind: Any, end: float) -> None:
    """40,000 draws, fixed key: accepts the scale and rejects ⅔ and 3⁄2 of it, each at p = 1e-6 (KS 0.0134)."""
    sigma, limit = 0.7, 0.0134
    values, name, shape = sample(kind, end, sigma), kind.released_as.kind, kind.exponent
    assert distance(values, density(name, shape, sigma, end * sigma)) < limit
    for wrong in (2 / 3, 3 / 2):
        assert distance(values, density(name, shape, wrong * sigma, wrong * end * sigma)) > limit
    assert values.var() == pytest.approx(variance(density(name, shape, sigma, end * sigma)), rel=0.05)
    if math.isfinite(end):
        assert np.abs(values).max() <= end * sigma + sigma / 256 * 1.01  # half of a step


def test_releases_carry_what_the_accountant_needs() -> None:
    part, common = (
        Participation("full", 1.0, "add-remove"),
        {"sampling": "full", "rate": 1.0, "adjacency": "add-remove"},
    )
    made = noise_of(2.0, 1, TruncatedGaussian(), end=4.0).release(0, 2.0, 1.0, 10, part, enforced=True)
    assert made == releases.TruncatedGaussian(sigma=2.0, bound=8.0, dimensions=10, sensitivity=1.0, **common)
    other = TruncatedGeneralised(shape=3.0).release(2.0, 1.0, 10, part, math.inf)
    assert other == releases.GeneralisedGaussian(sigma=2.0, shape=3.0, dimensions=10, sensitivity=1.0, **common)
