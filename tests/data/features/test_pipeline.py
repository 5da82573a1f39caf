"""`data.transform`: what each step does, what is refused, and that no training record sees another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.features import SMALL_PATCHES, apply, features, images, made, pictures, table
from tests.support.refusals import expect_refusal

from gossamer.data.dataset import Dataset
from gossamer.data.features import pipeline, steps
from gossamer.data.load import load


def test_no_training_record_changes_the_features_of_another() -> None:
    public, x = made(table(seed=1)), table()
    steps = [
        {"kind": "standardise", "public": "p"},
        {"kind": "projection", "public": "p", "dimensions": 3},
        {"kind": "random-fourier", "dimensions": 20},
        "unit-norm",
    ]
    changed = x.copy()
    changed[0] += 5
    one, other = (apply(made(values), *steps, public=public).x_train for values in (x, changed))
    assert not np.allclose(one[0], other[0])
    assert np.array_equal(one[1:], other[1:])


def test_what_takes_long_is_cached_by_content(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def features(x: np.ndarray, *steps: Any) -> np.ndarray:
        return apply(made(x), *steps, keep=True).x_train

    first = features(pictures(), "scattering", "unit-norm")
    monkeypatch.setattr(pipeline, "_apply", lambda *_: pytest.fail("computed again"))
    assert np.array_equal(features(pictures(), "scattering", "unit-norm"), first)
    assert np.array_equal(features(pictures(), {"kind": "scattering", "angles": 8}, "unit-norm"), first)
    assert features(pictures(), "scattering").shape == first.shape  # the first stage is there by itself
    monkeypatch.undo()
    monkeypatch.setenv("GOSSAMER_CACHE", str(own_cache))
    assert not np.array_equal(features(pictures() / 2 + 0.1, "scattering", "unit-norm"), first)
    assert not np.array_equal(
        features(pictures(), {"kind": "scattering", "angles": 4}, "unit-norm")[:, :1], first[:, :1]
    )
    for damaged in own_cache.rglob("x_train.npy"):
        damaged.write_bytes(b"")
    assert np.array_equal(features(pictures(), "scattering", "unit-norm"), first)


def test_what_is_quick_is_not_kept(own_cache: Path) -> None:
    apply(made(table()), {"kind": "random-fourier", "dimensions": 5}, keep=True)
    assert not own_cache.exists()


def test_a_fit_takes_the_public_sets_kept_stage(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public, steps = (
        made(pictures()[::-1]),
        ["scattering", {"kind": "projection", "public": "p", "dimensions": 3}],
    )
    expected = apply(made(pictures()), *steps, public=public).x_train
    apply(public, "scattering", keep=True)
    seen: list[int] = []
    plain = pipeline._blocks
    monkeypatch.setattr(pipeline, "_blocks", lambda s, x, label: (seen.append(len(s)), plain(s, x, label))[1])
    assert np.array_equal(apply(made(pictures()), *steps, public=public).x_train, expected)
    assert 0 in seen  # nothing had to be done to the public records any more


def test_own_records_find_the_public_sets_costly_stage_kept(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records themselves are computed again and kept nowhere; the public set's stage is kept by its content."""
    steps = [
        "scattering",
        {"kind": "standardise", "public": "p"},
        {"kind": "projection", "public": "p", "dimensions": 3},
    ]
    seen: list[str] = []
    plain = pipeline._apply
    monkeypatch.setattr(pipeline, "_apply", lambda s, x, label: (seen.append(label), plain(s, x, label))[1])
    first = apply(made(pictures()), *steps, public=made(pictures()[::-1])).x_train
    assert [label for label in seen if label.startswith("public")] == ["public features of made"]
    seen.clear()
    assert np.array_equal(apply(made(pictures()), *steps, public=made(pictures()[::-1])).x_train, first)
    assert not any(label.startswith("public") for label in seen)
    assert len([*own_cache.rglob("x_train.npy")]) == 1
    apply(made(pictures()), *steps, public=made(pictures()[::-1] / 2))
    assert any(label.startswith("public") for label in seen)


def test_records_of_the_users_own_are_copied_nowhere(own_cache: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x_train=table(), y_train=np.arange(60) % 2)
    data = load("npz", path=str(tmp_path / "own.npz"), classes=2, transform=["unit-norm"])
    assert np.allclose(np.linalg.norm(data.x_train, axis=1), 1, atol=1e-5)
    assert not own_cache.exists()


def test_own_records_may_name_an_own_public_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x_train=table(), y_train=np.arange(60) % 2)
    np.savez(tmp_path / "public.npz", x_train=table(seed=1), y_train=np.arange(60) % 2)
    public = {"kind": "npz", "path": str(tmp_path / "public.npz"), "classes": 2}
    step = {"kind": "standardise", "public": public}
    data = load("npz", path=str(tmp_path / "own.npz"), classes=2, transform=[step])
    assert abs(float(data.x_train.mean())) < 0.3


def test_a_public_set_of_another_shape_is_refused() -> None:
    with expect_refusal(key="public", value="p"):
        apply(made(table()), {"kind": "standardise", "public": "p"}, public=made(table(columns=4)))


def test_the_training_set_is_known_by_its_records() -> None:
    x = table()
    step = {"kind": "standardise", "public": "p"}
    subset = Dataset(
        "part",
        x[1:25].astype(np.float32),
        *(made(x).y_train, made(x).x_test, made(x).y_test),
        1,
        True,
        None,
        {},
    )
    with expect_refusal(key="public", value="p"):
        apply(made(x), step, public=subset)
    fresh = table(seed=1)
    apply(made(x), step, public=made(fresh))
    for copies in (1, 3, 15):  # of thirty: not only a set that is mostly the training set
        mixed = fresh.copy()
        mixed[:copies] = x[:copies]
        with expect_refusal(key="public", value="p"):
            apply(made(x), step, public=made(mixed))


def test_public_records_that_are_all_alike_are_refused() -> None:
    with expect_refusal(key="public", value="p"):
        apply(
            made(table()),
            {"kind": "projection", "public": "p", "dimensions": 2},
            public=made(np.ones((8, 6))),
        )


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = apply(made(pictures()), "scattering").x_train
    monkeypatch.setattr(pipeline, "BLOCK_FLOATS", 3 * 324)
    monkeypatch.setattr(pipeline, "LEAST_ROWS", 1)
    parts = apply(made(pictures()), "scattering").x_train
    assert torch.allclose(torch.from_numpy(whole), torch.from_numpy(parts), atol=1e-6)


def test_what_beside_computed_is_kept_under_all_its_options(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(**options: Any) -> np.ndarray:
        step = {"kind": "beside", "branches": [["scattering"], [{**SMALL_PATCHES, **options}]]}
        return features(images(), step, "unit-norm", public=images(60, seed=1), keep=True)

    first = kept()
    other = kept(threshold=0.5)
    assert not np.array_equal(first, other)
    monkeypatch.setattr(pipeline, "_apply", lambda *_: pytest.fail("computed again"))
    assert np.array_equal(kept(), first)
    assert np.array_equal(kept(threshold=0.25), first)  # the default, said
    assert np.array_equal(kept(threshold=0.5), other)


def test_a_public_set_inside_a_branch_must_not_be_the_training_set() -> None:
    x = images()
    for public in (x, x[:-2], x[19::-1].repeat(2, 0)):
        with expect_refusal(key="public", value="p"):
            features(x, {"kind": "beside", "branches": [[SMALL_PATCHES]]}, public=public)


def test_neither_threads_nor_blocks_change_what_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    x, public = images(), images(200, seed=1)
    monkeypatch.setattr(steps, "_EXACT", 100)
    transform = [
        {"kind": "beside", "branches": [[SMALL_PATCHES, "unit-norm"], ["unit-norm"]]},
        {"kind": "projection", "public": "p", "dimensions": 20},
    ]
    found, threads = [], torch.get_num_threads()
    try:
        for count, floats in ((1, 1 << 20), (2, 1 << 20), (1, 5000)):
            torch.set_num_threads(count)
            monkeypatch.setattr(pipeline, "BLOCK_FLOATS", floats)
            monkeypatch.setattr(pipeline, "LEAST_ROWS", 1)
            found.append(features(x, *transform, public=public))
    finally:
        torch.set_num_threads(threads)
    assert np.allclose(found[0], found[1], atol=2e-3 * np.abs(found[0]).max())
    assert np.allclose(found[0], found[2], atol=2e-3 * np.abs(found[0]).max())
