"""What every noise owes: the levels of a run, and that a mechanism of each kind keeps the contract."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.mechanism import noise_of

from gossamer.accounting import releases
from gossamer.kernels.noise import Stream
from gossamer.mechanism.clipping import Geometric
from gossamer.mechanism.noise import Levels, Participation
from gossamer.mechanism.noise.base import COINS, COUNT, MASK, NOISE, SAMPLING, OwnNorm, Silent
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.mechanism.noise.shaped import Laplace, TruncatedGaussian, TruncatedGeneralised, TruncatedLaplace

M, D = 3, 40
PART = Participation("poisson", 0.25, "replace-one", 2)
MADE: dict[str, Any] = {
    "gaussian": noise_of(1.5, M, Gaussian()),
    "own-norm": noise_of(1.5, M, OwnNorm()),
    "none": noise_of(0.0, M, Silent()),
    "laplace": noise_of(1.5, M, Laplace()),
    "truncated-laplace": noise_of(1.5, M, TruncatedLaplace(), end=3.0),
    "truncated-gaussian": noise_of(1.5, M, TruncatedGaussian(), end=3.0),
    "truncated-generalised": noise_of(1.5, M, TruncatedGeneralised(shape=3.0), end=3.0),
}
every_noise = pytest.mark.parametrize("noise", MADE.values(), ids=list(MADE))


def add(noise: Any, active: torch.Tensor, k: int = 0, nodes: range = range(M)) -> torch.Tensor:
    sums = torch.ones(len(nodes), D)
    ones = torch.ones(len(nodes), dtype=torch.float64)
    noise.add(Stream.seeded(2), nodes, k, sums, multiplier=1.5 * ones, bound=0.5 * ones, active=active)
    return sums


def test_no_two_uses_of_the_stream_share_a_purpose() -> None:
    assert len({NOISE, SAMPLING, COUNT, MASK, COINS}) == 5


def test_levels_are_a_factor_of_each_node_times_a_shape_of_the_draw() -> None:
    made = Levels(torch.tensor([1.0, 3.0]), Geometric(2.0, 0.25, 4))
    assert made(2).tolist() == pytest.approx([1.0, 3.0])
    assert made.repeated(2)(2).tolist() == pytest.approx([1.0, 1.0, 3.0, 3.0])


@every_noise
def test_noise_goes_to_the_active_nodes_alone_and_anew_in_every_draw(noise: Any) -> None:
    some = torch.tensor([True, False, True])
    first, second = add(noise, some), add(noise, some, k=1)
    assert torch.equal(first[1], torch.ones(D))
    for i in (0, 2):
        assert bool((first[i] != 1).any()) == noise.adds
        assert torch.equal(first[i], second[i]) != noise.adds
    assert torch.equal(first[0], first[2]) != noise.adds
    assert torch.equal(first, add(noise, some))  # seeded


@every_noise
def test_a_release_takes_over_how_records_take_part(noise: Any) -> None:
    release = noise.release(0, 1.5, 0.5, D, PART, enforced=True)
    said = (release.sampling, release.rate, release.adjacency, release.pass_number)
    assert said == ("poisson", 0.25, "replace-one", 2)
    assert release.sensitivity == 0.5
    assert math.isinf(noise.release(0, 1.5, 0.5, D, PART, enforced=False).sensitivity)
    event = releases.Event(draw=4, release=release)
    assert releases.Event.from_json(event.to_json()) == event


@every_noise
def test_runs_side_by_side_have_the_levels_of_their_node(noise: Any) -> None:
    uneven = dataclasses.replace(noise, levels=Levels(torch.tensor([1.0, 2.0, 3.0]), noise.levels.shape))
    twice = uneven.repeated(2)
    assert twice.levels.factor.tolist() == [1, 1, 2, 2, 3, 3]
    assert (twice.adds, twice.scale_is_public) == (noise.adds, noise.scale_is_public)
    noised = add(twice, torch.ones(2 * M, dtype=torch.bool), nodes=range(2 * M))
    assert len(np.unique(noised.numpy(), axis=0)) == (2 * M if noise.adds else 1)
