"""`patches`, `beside` and wide projections against direct computation."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.features import SMALL_PATCHES, features, images
from tests.support.refusals import expect_refusal
from torch import Tensor

from gossamer.data.features.patches import Patches, k_means, normalised
from gossamer.data.features.steps import Apply, named_steps, set_up

PATCHES = Patches(public="p", size=4, filters=7, pool=3)


def learned(channels: int = 1) -> tuple[Tensor, Tensor]:
    return PATCHES.learn(lambda: [torch.from_numpy(images(30, channels, seed=1))])


def fitted(channels: int = 1) -> Apply:
    kernels, offset = learned(channels)
    return partial(PATCHES.pooled, kernels=kernels, offset=offset)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_patch_is_normalised_compared_and_averaged(channels: int) -> None:
    (kernels, offset), x = learned(channels), images(3, channels)
    ours = fitted(channels)(torch.from_numpy(x)).numpy()
    kernels = kernels.numpy().reshape(7, -1)
    found = np.zeros((3, 14, 9, 9))
    for row in range(9):
        for column in range(9):
            patch = x[:, :, row : row + 4, column : column + 4].reshape(3, -1).astype(np.float64)
            patch = patch - patch.mean(1, keepdims=True)
            patch /= np.sqrt(patch.var(1, keepdims=True) + 0.01)
            scores = patch @ kernels.T - offset.numpy().ravel()
            found[:, :, row, column] = np.maximum(np.concatenate([scores, -scores], 1) - 0.25, 0)
    expected = np.sqrt(found.reshape(3, 14, 3, 3, 3, 3).mean((3, 5)))
    assert ours.shape == (3, 14, 3, 3)
    assert np.allclose(ours, expected, atol=1e-4)


def test_scores_are_those_of_whitened_patches_with_unit_vectors() -> None:
    """On the public patches themselves: mean 0, and for n whitened values no direction has more than variance 1."""
    kernels, offset = learned()
    patches = normalised(torch.from_numpy(images(30, seed=1)), 4).flatten(0, 1)
    scores = patches @ kernels.flatten(1).T - offset.ravel()
    assert torch.allclose(scores.mean(0), torch.zeros(7), atol=0.15)  # fitted on a sample of them
    assert bool((scores.var(0) < 1.2).all())
    assert bool((scores.var(0) > 0.3).all())


def test_k_means_finds_planted_directions() -> None:
    draw = torch.Generator().manual_seed(0)
    truth = torch.nn.functional.normalize(torch.randn(4, 16, generator=draw))
    which = torch.randint(4, (4000,), generator=draw)
    points = truth[which] * (1 + torch.rand(4000, 1, generator=draw))
    points += 0.05 * torch.randn(points.shape, generator=draw)
    closest = (truth @ k_means(points, 12, draw).T).max(1).values
    assert bool((closest > 0.99).all())


def test_a_patch_without_contrast_says_nothing_of_its_own() -> None:
    """Grey images differ by their brightness only, and that is taken off."""
    grey = torch.stack([torch.full((1, 12, 12), level) for level in (0.0, 0.3, 1.0)])
    found = fitted()(grey)
    assert torch.allclose(found[0], found[1], atol=1e-3)
    assert torch.allclose(found[0], found[2], atol=1e-3)


def test_no_training_record_changes_the_features_of_another() -> None:
    x, public = images(), images(60, seed=1)
    changed = x.copy()
    changed[0] = 1 - changed[0]
    transform = [
        {"kind": "beside", "branches": [["scattering", "unit-norm"], [SMALL_PATCHES, "unit-norm"]]},
        {"kind": "projection", "public": "p", "dimensions": 20},
    ]
    one, other = (features(values, *transform, public=public) for values in (x, changed))
    assert not np.allclose(one[0], other[0])
    assert np.array_equal(one[1:], other[1:])


def test_bright_images_are_seen_as_well_as_dark_ones() -> None:
    step, x = fitted(), torch.from_numpy(images(3))
    assert torch.allclose(step(x + 300), step(x), atol=5e-3)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"kind": "patches"}, "data.transform.public missing"),
        ({"kind": "patches", "public": None}, "data.transform.public"),
        ({"kind": "patches", "public": "p", "size": 1}, "data.transform.size 1 2"),
        ({"kind": "patches", "public": "p", "size": 10, "pool": 4}, "patches.pool 4 3"),
        ({"kind": "patches", "public": "p", "filters": 0}, "data.transform.filters 0 1"),
        ({"kind": "patches", "public": "p", "threshold": -1.0}, "data.transform.threshold -1.0 0"),
        ({"kind": "patches", "public": "p", "threshold": float("inf")}, "data.transform.threshold inf"),
        ({"kind": "patches", "public": "p", "rows": 1}, "data.transform.rows 1 2"),
        ({"kind": "patches", "public": "p", "seed": 2**70}, "data.transform.seed"),
        ({"kind": "patches", "public": {"kind": "p", "scale": "unit-ball"}}, "data.transform.public scale"),
        ({"kind": ["patches"]}, "known"),
        ({"kind": "beside", "branches": []}, "data.transform.branches []"),
        ({"kind": "beside", "branches": [["wavelets"]]}, "known"),
        ({"kind": "beside", "branches": [[{"kind": "log", "base": 2}]]}, "data.transform.branches[0][0].base key"),
        ({"kind": "beside", "branches": ["scattering"]}, "data.transform.branches[0] scattering"),
    ],
)
def test_mistakes_are_one_sentence(step: Any, words: str) -> None:
    with expect_refusal(names=words) as caught:
        features(images(), step, public=images(seed=1))
    assert "\n" not in str(caught.value)


def test_patches_need_images_and_enough_of_them() -> None:
    with expect_refusal(key="data.transform", names="images"):
        set_up(named_steps([SMALL_PATCHES]), (64,))
    with expect_refusal(key="filters", value="9999", names="900"):
        features(images(), {**SMALL_PATCHES, "filters": 9999, "rows": 2000}, public=images(60, seed=1))
