"""Gaussian noise: its size is what the release says, and what leaves are whole steps."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from tests.support.mechanism import levels, private_mean

from gossamer.kernels.noise import RATIO, Stream
from gossamer.mechanism.clipping import ClipTo, Constant
from gossamer.mechanism.noise import Participation
from gossamer.mechanism.noise.gaussian import GaussianNoise


def drawn(z: float, draws: int = 400) -> np.ndarray:
    grad, _ = private_mean(torch.zeros(2, 1, 50), z=z, clip=ClipTo(Constant(0.5)), lots=[2.0, 2.0])
    return torch.cat([grad(torch.zeros(2, 50)).flatten() for _ in range(draws)]).numpy()


def test_noise_has_the_stated_standard_deviation() -> None:
    """40,000 draws, fixed key: accepts σ = z·C/L and rejects ⅔σ and 3⁄2σ, each at p = 1e-6."""
    sample, sigma = drawn(1.2), 1.2 * 0.5 / 2.0
    assert stats.kstest(sample, stats.norm(0, sigma).cdf).pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(sample, stats.norm(0, wrong * sigma).cdf).pvalue < 1e-6


M = 4
STEP = {"multiplier": torch.tensor([1.0, 2.0, 0.5, 1.0]).double(), "bound": torch.full((M,), 0.5).double()}
EVERYONE = torch.ones(M, dtype=torch.bool)


def correlation(seed: int, m: int = M) -> torch.Tensor:
    factors = np.random.default_rng(seed).normal(size=(m, m + 2))
    cov = factors @ factors.T
    size = np.sqrt(np.diag(cov))
    return torch.from_numpy(cov / np.outer(size, size))


def correlated(seed: int = 1) -> GaussianNoise:
    return GaussianNoise(levels(1.0, M), correlation(seed))


def added(noise: GaussianNoise, *, active: torch.Tensor = EVERYONE, ready: bool = False) -> np.ndarray:
    """20,000 coordinates of noise on sums of 0."""
    sums, stream = torch.zeros(M, 20_000), Stream.seeded(4)
    ahead = noise.ahead(stream, range(M), 0, 20_000) if ready else None
    noise.add(stream, range(M), 0, sums, active=active, ready=ahead, **STEP)
    return sums.double().numpy()


def fits(values: np.ndarray, covariance: np.ndarray) -> bool:
    """Σ zᵀ C⁻¹ z is χ² with as many degrees of freedom as numbers; every mean product within five deviations."""
    count = values.size
    total = np.einsum("ik,ij,jk->", values, np.linalg.inv(covariance), values)
    size = np.diag(covariance)
    error = np.sqrt((np.outer(size, size) + covariance**2) / values.shape[1])
    near = np.abs(values @ values.T / values.shape[1] - covariance) < 5 * error
    return bool(near.all()) and abs(total - count) < 5 * np.sqrt(2 * count)


def test_the_covariance_over_nodes_is_the_stated_one() -> None:
    noise, scale = correlated(), (STEP["multiplier"] * STEP["bound"]).numpy()
    stated = correlation(1).numpy() * np.outer(scale, scale)
    values = added(noise)
    assert fits(values, stated)
    assert not fits(values, np.diag(scale**2))
    assert not fits(values, 1.5 * stated)
    assert not fits(values, stated / 1.5)
    assert fits(added(GaussianNoise(levels(1.0, M))), np.diag(scale**2))


def test_noise_drawn_ahead_is_the_noise_that_would_be_drawn() -> None:
    noise = GaussianNoise(levels(1.0, M))
    assert np.array_equal(added(noise, ready=True), added(noise))


@pytest.mark.parametrize("ready", [False, True])
def test_a_node_that_takes_no_part_gets_no_noise_and_leaves_the_others_theirs(ready: bool) -> None:
    some = torch.tensor([True, False, True, True])
    noise = GaussianNoise(levels(1.0, M))
    alone, together = added(noise, active=some, ready=ready), added(noise)
    assert not alone[1].any()
    assert np.array_equal(alone[[0, 2, 3]], together[[0, 2, 3]])


def test_a_release_states_the_noise_that_is_added() -> None:
    part = Participation("full", 1.0, "add-remove")
    noise = GaussianNoise(levels(1.0, M))
    assert noise.release(2, 1.3, 0.4, 10, part, enforced=True).sigma == pytest.approx(0.52, rel=1e-12)
    assert math.isinf(noise.release(2, 1.3, 0.4, 10, part, enforced=False).sensitivity)


def test_what_leaves_is_a_whole_number_of_public_steps() -> None:
    sums = torch.from_numpy(np.random.default_rng(0).normal(size=(M, 5000))).float()
    GaussianNoise(levels(1.0, M)).add(Stream.seeded(1), range(M), 0, sums, active=EVERYONE, **STEP)
    steps = sums.double() / ((STEP["multiplier"] * STEP["bound"])[:, None] / RATIO)
    assert (steps - steps.round()).abs().max() < 1e-3


@pytest.mark.parametrize("seed", range(8))
def test_a_release_says_what_the_other_rows_leave_of_the_noise(seed: int) -> None:
    """Who sees all rows predicts row i's noise from the others' as well as least squares can; that much is left."""
    C = correlation(seed)
    noise, part = GaussianNoise(levels(1.0, M), C), Participation("full", 1.0, "add-remove")
    exact = 1 / np.sqrt(np.diag(np.linalg.inv(C.numpy())))
    for i in range(M):
        release = noise.release(i, 1.3, 0.4, 10, part, enforced=True)
        others = [j for j in range(M) if j != i]
        attack = np.linalg.solve(C.numpy()[np.ix_(others, others)], C.numpy()[others, i])
        weights = np.eye(M)[i]
        weights[others] = -attack
        left = np.sqrt(weights @ C.numpy() @ weights)
        assert release.sigma == pytest.approx(1.3 * 0.4 * left, rel=1e-9)
        assert release.sigma == pytest.approx(1.3 * 0.4 * exact[i], rel=1e-9)
        assert release.sensitivity == 0.4
        assert release.sigma <= 1.3 * 0.4 * (1 + 1e-12)
        for tried in np.random.default_rng(seed).normal(size=(50, M)):  # no other way of adding up rows does better
            tried[i] = 1.0
            assert tried @ C.numpy() @ tried >= left**2 * (1 - 1e-9)


def test_only_nodes_with_as_much_noise_left_share_a_line_of_the_ledger() -> None:
    C = torch.eye(M, dtype=torch.float64)
    C[0, 1] = C[1, 0] = 0.6
    apart = [GaussianNoise(levels(1.0, M), C).ledger_key(i) for i in range(M)]
    assert apart == pytest.approx([0.8, 0.8, 1.0, 1.0])
    assert GaussianNoise(levels(1.0, M)).ledger_key(0) is None


def test_runs_side_by_side_are_correlated_within_a_run_only() -> None:
    twice = correlated().repeated(2)
    assert isinstance(twice, GaussianNoise)
    assert twice.correlation is not None
    for i, j in itertools.product(range(2 * M), repeat=2):  # node i's runs stand together
        expected = float(correlation(1)[i // 2, j // 2]) if i % 2 == j % 2 else 0.0
        assert float(twice.correlation[i, j]) == expected
    assert len(twice.levels.factor) == 2 * M
