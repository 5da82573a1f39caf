"""Attacks on planned releases alone, by draws of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.balls import one_pass

from gossamer.accounting.profiles import gaussian, laplace
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Laplace, TruncatedGaussian
from gossamer.auditing import verdict as verdicts
from gossamer.auditing.attacks import Releases, draw
from gossamer.kernels.noise import Stream
from gossamer.methods.claims import km_noise
from reproductions.noises import exact_epsilon


def test_theorem_6_of_dp_dkm_is_refuted_by_the_mechanism_alone() -> None:
    sigma, bound = km_noise("truncated-gaussian", 0.5, 1e-3, 1.0)
    release = TruncatedGaussian(
        sigma=sigma, bound=bound, sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove"
    )
    attack = Releases([release], lambda number: Stream.seeded(5 + number))
    _, verdict = verdicts.try_until_decided(attack, 1e-3, 0.999, verdicts.Promised({"claimed": 0.5}), attack.runs)
    assert verdict.violated == ("claimed",)
    assert verdict.epsilon <= exact_epsilon(gaussian(sigma, bound), 1.0, 1e-3)


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_laplace_noise_keeps_its_word(rate: float) -> None:
    release = Laplace(sigma=1.0, sensitivity=1.0, sampling="poisson", rate=rate, adjacency="add-remove")
    attack = Releases([release], Stream.seeded)
    _, verdict = verdicts.try_until_decided(
        attack, 1e-6, 0.999, verdicts.Promised({"proven": np.log1p(rate * np.expm1(1.0))}), attack.runs
    )
    assert verdict.violated == ()
    assert verdict.epsilon > 0.6 * np.log1p(rate * np.expm1(1.0))


@pytest.mark.parametrize("noise", [gaussian(0.7), gaussian(0.7, 0.9), laplace(0.5), laplace(0.5, 1.1)])
def test_drawn_noise_has_the_density_it_should(noise: Any) -> None:
    """20,000 draws, fixed seed; against the distribution function, and against one of another scale."""
    rng = np.random.default_rng(0)
    sample = draw(noise, rng.random(20_000), rng.random(20_000))
    grid = np.linspace(-2, 2, 81)
    observed = np.searchsorted(np.sort(sample), grid, "right") / len(sample)
    low = np.full_like(grid, -noise.reach())
    assert np.abs(observed - noise.between(low, grid)).max() < 0.015
    other = replace(noise, scale=noise.scale * 1.3, bound=noise.bound * 1.1)
    assert np.abs(observed - other.between(np.full_like(grid, -other.reach()), grid)).max() > 0.02


def test_a_record_that_draws_its_lot_is_in_one_of_a_pass_for_sure() -> None:
    """With next to no noise every coin shows; coins of their own for each lot would leave it out at times."""
    attack = Releases(one_pass(4, 0.05), Stream.seeded)
    found = attack.batch(0, 400)
    assert ((found.scores > 0) == found.heads).all()


@pytest.mark.parametrize(("adjacency", "released"), [("add-remove", None), ("add-remove", 3), ("replace-one", None)])
def test_secret_lots_keep_their_word(adjacency: str, released: int | None) -> None:
    """40,000 coins on a pass of eight lots: below what is proven, above what one lot of known place would be."""
    lots = one_pass(8, 0.7, adjacency=adjacency, released=released)
    price = proven(lots, 1e-3, adjacency).epsilon
    attack = Releases(lots, Stream.seeded)
    _, verdict = verdicts.try_until_decided(attack, 1e-3, 0.999, verdicts.Promised({"proven": price}), attack.runs)
    assert verdict.violated == ()
    assert verdict.epsilon > (0.4 if adjacency == "add-remove" else 0.2) * price
