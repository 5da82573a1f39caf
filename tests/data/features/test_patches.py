"""`patches`, `beside` and wide projections against direct computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gossamer.data.dataset import Dataset
from gossamer.data.features import pipeline, steps
from gossamer.data.features.chain import set_up, widest, written_out
from gossamer.data.features.patches import Patches
from gossamer.data.features.pipeline import transformed
from gossamer.errors import UserError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def images(rows: int = 40, channels: int = 1, size: int = 12, seed: int = 0) -> np.ndarray:
    """Smooth: neighbouring pixels go together."""
    x = np.random.default_rng(seed).uniform(size=(rows, channels, size, size))
    return (x + np.roll(x, 1, 2) + np.roll(x, 1, 3)).astype(np.float32) / 3


def made(x: np.ndarray) -> Dataset:
    labels, half = np.zeros(len(x), np.int64), len(x) // 2
    return Dataset("made", x[:half], labels[:half], x[half:], labels[half:], 1, True, None, {})


def apply(x: np.ndarray, *transform: Any, public: np.ndarray | None = None, keep: bool = False) -> np.ndarray:
    def source(kind: str, options: dict[str, Any]) -> Dataset:
        assert public is not None
        return made(public)

    return transformed(made(x), list(transform), source, keep=keep).x_train


SMALL = {"kind": "patches", "public": "p", "size": 4, "filters": 7, "pool": 3}


def fitted(channels: int = 1) -> Patches:
    step = Patches((channels, 12, 12), public="p", size=4, filters=7, pool=3)
    step.fit(lambda: [torch.from_numpy(images(30, channels, seed=1))])
    return step


@pytest.mark.parametrize("channels", [1, 3])
def test_every_patch_is_normalised_compared_and_averaged(channels: int) -> None:
    step, x = fitted(channels), images(3, channels)
    ours = step(torch.from_numpy(x)).numpy()
    kernels = step._kernels.numpy().reshape(7, -1)
    found = np.zeros((3, 14, 9, 9))
    for row in range(9):
        for column in range(9):
            patch = x[:, :, row : row + 4, column : column + 4].reshape(3, -1).astype(np.float64)
            patch = patch - patch.mean(1, keepdims=True)
            patch /= np.sqrt(patch.var(1, keepdims=True) + 0.01)
            scores = patch @ kernels.T - step._offset.numpy().ravel()
            found[:, :, row, column] = np.maximum(np.concatenate([scores, -scores], 1) - 0.25, 0)
    expected = np.sqrt(found.reshape(3, 14, 3, 3, 3, 3).mean((3, 5)))
    assert ours.shape == (3, 14, 3, 3)
    assert np.allclose(ours, expected, atol=1e-4)


def test_scores_are_those_of_whitened_patches_with_unit_vectors() -> None:
    """On the public patches themselves: mean 0, and for n whitened values no direction has more than variance 1."""
    step = fitted()
    patches = step._normalised(torch.from_numpy(images(30, seed=1))).flatten(0, 1)
    scores = patches @ step._kernels.flatten(1).T - step._offset.ravel()
    assert torch.allclose(scores.mean(0), torch.zeros(7), atol=0.15)  # fitted on a sample of them
    assert bool((scores.var(0) < 1.2).all())
    assert bool((scores.var(0) > 0.3).all())


def test_k_means_finds_planted_directions() -> None:
    draw = torch.Generator().manual_seed(0)
    truth = torch.nn.functional.normalize(torch.randn(4, 16, generator=draw))
    which = torch.randint(4, (4000,), generator=draw)
    points = truth[which] * (1 + torch.rand(4000, 1, generator=draw))
    points += 0.05 * torch.randn(points.shape, generator=draw)
    step = Patches((1, 12, 12), public="p", size=4, filters=12, pool=3)
    closest = (truth @ step._k_means(points).T).max(1).values
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
        {"kind": "beside", "branches": [["scattering", "unit-norm"], [SMALL, "unit-norm"]]},
        {"kind": "projection", "public": "p", "dimensions": 20},
    ]
    one, other = (apply(values, *transform, public=public) for values in (x, changed))
    assert not np.allclose(one[0], other[0])
    assert np.array_equal(one[1:], other[1:])


def test_beside_is_each_branch_by_itself_one_after_the_other() -> None:
    x, public = images(), images(60, seed=1)
    branches: list[list[Any]] = [["scattering", "unit-norm"], [SMALL], []]
    together = apply(x, {"kind": "beside", "branches": branches}, public=public)
    alone = [apply(x, *branch, public=public).reshape(20, -1) for branch in branches]
    assert np.allclose(together, np.concatenate(alone, 1), atol=1e-6)


def test_a_step_after_beside_is_fitted_on_all_of_it() -> None:
    x, public = images(), images(80, seed=1)
    beside = {"kind": "beside", "branches": [[SMALL, "unit-norm"], ["unit-norm"]]}
    project = {"kind": "projection", "public": "p", "dimensions": 5, "whitening": 0.0}
    ours = apply(x, beside, project, public=public)
    seen = made(np.concatenate([x, public[:40]]))  # the public training half is this one's test half
    theirs = transformed(seen, [beside], lambda *_: made(public), keep=False).x_test.astype(np.float64)
    basis = np.linalg.eigh(np.cov(theirs.T, bias=True))[1][:, ::-1][:, :5]
    expected = (apply(x, beside, public=public) - theirs.mean(0)) @ basis
    assert np.allclose(np.abs(ours), np.abs(expected), atol=1e-4)


def test_what_beside_computed_is_kept_under_all_its_options(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def features(**options: Any) -> np.ndarray:
        step = {"kind": "beside", "branches": [["scattering"], [{**SMALL, **options}]]}
        return apply(images(), step, "unit-norm", public=images(60, seed=1), keep=True)

    first = features()
    other = features(threshold=0.5)
    assert not np.array_equal(first, other)
    monkeypatch.setattr(pipeline, "_apply", lambda *_: pytest.fail("computed again"))
    assert np.array_equal(features(), first)
    assert np.array_equal(features(threshold=0.25), first)  # the default, said
    assert np.array_equal(features(threshold=0.5), other)
    named = {"kind": "beside", "branches": [["scattering"]]}
    assert written_out([named])[0]["branches"][0][0]["angles"] == 8


def test_a_public_set_inside_a_branch_must_not_be_the_training_set() -> None:
    x = images()
    for public in (x, x[:-2], x[19::-1].repeat(2, 0)):
        with pytest.raises(UserError, match="training set's own records"):
            apply(x, {"kind": "beside", "branches": [[SMALL]]}, public=public)


def test_neither_threads_nor_blocks_change_what_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    x, public = images(), images(200, seed=1)
    monkeypatch.setattr(steps, "_EXACT", 100)
    transform = [
        {"kind": "beside", "branches": [[SMALL, "unit-norm"], ["unit-norm"]]},
        {"kind": "projection", "public": "p", "dimensions": 20},
    ]
    found, threads = [], torch.get_num_threads()
    try:
        for count, floats in ((1, 1 << 20), (2, 1 << 20), (1, 5000)):
            torch.set_num_threads(count)
            monkeypatch.setattr(pipeline, "BLOCK_FLOATS", floats)
            monkeypatch.setattr(pipeline, "LEAST_ROWS", 1)
            found.append(apply(x, *transform, public=public))
    finally:
        torch.set_num_threads(threads)
    assert np.allclose(found[0], found[1], atol=2e-3 * np.abs(found[0]).max())
    assert np.allclose(found[0], found[2], atol=2e-3 * np.abs(found[0]).max())


def test_blocks_count_what_is_wide_inside_a_step() -> None:
    step = set_up([{"kind": "beside", "branches": [[SMALL], ["unit-norm"]]}], (1, 12, 12))[0]
    assert widest(step) == 14 * 9 * 9


def test_bright_images_are_seen_as_well_as_dark_ones() -> None:
    step, x = fitted(), torch.from_numpy(images(3))
    assert torch.allclose(step(x + 300), step(x), atol=5e-3)


def test_wide_projections_find_the_leading_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    basis, _ = torch.linalg.qr(torch.randn(300, 300, generator=draw, dtype=torch.float64))
    truth = torch.arange(1, 301, dtype=torch.float64) ** -1.5
    covariance = (basis * truth) @ basis.T
    monkeypatch.setattr(steps, "_EXACT", 100)
    values, vectors = steps._leading(covariance, 40)
    assert torch.allclose(values, truth[:40], rtol=2e-3)
    assert torch.allclose(vectors.T @ vectors, torch.eye(40, dtype=torch.float64), atol=1e-5)
    assert torch.allclose((vectors.T @ basis[:, :20]).square().sum(0), torch.ones(20).double(), atol=1e-3)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"kind": "patches"}, "public is missing"),
        ({"kind": "patches", "public": None}, "must name a data set"),
        ({"kind": "patches", "public": "p", "size": 1}, "2 to 12 pixels"),
        ({"kind": "patches", "public": "p", "size": 10, "pool": 4}, "use 1 to 3"),
        ({"kind": "patches", "public": "p", "filters": 0}, "use 1 to 10,000"),
        ({"kind": "patches", "public": "p", "threshold": -1.0}, "from 0 on"),
        ({"kind": "patches", "public": "p", "threshold": float("inf")}, "from 0 on"),
        ({"kind": "patches", "public": "p", "rows": 1}, "at least 2"),
        ({"kind": "patches", "public": "p", "seed": 2**70}, "use 0 to"),
        ({"kind": "patches", "public": {"kind": "p", "scale": "unit-ball"}}, "has scale; leave it out"),
        ({"kind": ["patches"]}, "a step is one of"),
        ({"kind": "beside", "branches": []}, "at least one list"),
        ({"kind": "beside", "branches": [["wavelets"]]}, "a step is one of"),
        ({"kind": "beside", "branches": [[{"kind": "log", "base": 2}]]}, "not an option"),
        ({"kind": "beside", "branches": ["scattering"]}, "does not fit"),
    ],
)
def test_mistakes_are_one_sentence(step: Any, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        apply(images(), step, public=images(seed=1))
    assert "\n" not in str(caught.value)


def test_patches_need_images_and_enough_of_them() -> None:
    with pytest.raises(UserError, match="needs images"):
        set_up([SMALL], (64,))
    with pytest.raises(UserError, match="more than the"):
        apply(images(), {**SMALL, "filters": 9999, "rows": 2000}, public=images(60, seed=1))
