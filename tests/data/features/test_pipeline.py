"""`data.transform`: what each step does, what is refused, and that no training record sees another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gossamer.data import load as loading
from gossamer.data.dataset import Dataset
from gossamer.data.features import pipeline
from gossamer.data.features.chain import shape_after
from gossamer.data.features.pipeline import transformed
from gossamer.data.load import load
from gossamer.errors import UserError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def made(x: np.ndarray, name: str = "made") -> Dataset:
    x = x.astype(np.float32)
    labels = np.zeros(len(x), np.int64)
    half = len(x) // 2
    return Dataset(name, x[:half], labels[:half], x[half:], labels[half:], 1, True, None, {})


def table(rows: int = 60, columns: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns)) * np.arange(1, columns + 1) + 2


def pictures() -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(20, 1, 8, 8))


def apply(dataset: Dataset, *steps: Any, public: Dataset | None = None, keep: bool = False) -> Dataset:
    def source(kind: str, options: dict[str, Any]) -> Dataset:
        assert public is not None
        return public

    return transformed(dataset, list(steps), source, keep=keep)


def test_group_norm_and_unit_norm_look_at_one_record() -> None:
    data = apply(made(pictures()), "scattering", {"kind": "group-norm", "groups": 27}, "unit-norm")
    x = data.x_train
    assert x.shape[1:] == (81, 2, 2)
    assert np.allclose(np.linalg.norm(x.reshape(len(x), -1), axis=1), 1, atol=1e-5)
    groups = x.reshape(len(x), 27, -1)
    assert np.allclose(groups.mean(2), 0, atol=1e-6)
    assert json.loads(data.provenance["transform"])[1]["groups"] == 27


def test_the_logarithm_keeps_order_and_has_a_floor() -> None:
    x = np.array([[[[-1.0, 0.0], [0.5, 2.0]]]], dtype=np.float32)
    found = apply(made(np.repeat(x, 2, 0)), {"kind": "log", "floor": 0.25}).x_train[0].ravel()
    assert np.allclose(found, np.log([0.25, 0.25, 0.75, 2.25]), atol=1e-6)


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


def test_projection_is_public_pca_partly_whitened() -> None:
    public, data = made(table(400, seed=1)), made(table())
    p = public.x_train.astype(np.float64)
    values, vectors = np.linalg.eigh(np.cov(p.T, bias=True))
    values, vectors = values[::-1][:4], vectors[:, ::-1][:, :4]
    for power in (0.0, 0.6, 1.0):
        step = {"kind": "projection", "public": "p", "dimensions": 4, "whitening": power}
        ours = apply(data, step, public=public).x_train
        expected = (data.x_train - p.mean(0)) @ vectors * values ** (-power / 2)
        assert np.allclose(np.abs(ours), np.abs(expected), rtol=1e-3, atol=1e-4)  # signs are free


def test_standardise_uses_public_mean_and_deviation_and_drops_constants() -> None:
    p = table(400, seed=1)
    p[:, 2] = 7.0
    public, data = made(p), made(table())
    ours = apply(data, {"kind": "standardise", "public": "p"}, public=public).x_train
    mean, deviation = public.x_train.mean(0), public.x_train.std(0)
    deviation[2] = np.inf
    assert np.allclose(ours, np.clip((data.x_train - mean) / deviation, -5, 5), atol=1e-3)
    assert not ours[:, 2].any()


def test_random_fourier_features_have_a_gaussian_kernel() -> None:
    x = np.random.default_rng(0).normal(size=(8, 5))
    step = {"kind": "random-fourier", "dimensions": 40_000, "width": 2.0}
    z = apply(made(x), step).x_train
    square = ((x[:4, None] - x[None, :4]) ** 2).sum(2)
    assert np.allclose(z @ z.T, np.exp(-square / 8), atol=0.03)
    assert np.array_equal(z, apply(made(x), step).x_train)


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


def test_the_shape_is_known_without_reading_records(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = ["scattering", "group-norm", {"kind": "projection", "public": "mnist", "dimensions": 300}]
    monkeypatch.setattr(loading, "load", lambda *_, **__: pytest.fail("read"))
    assert shape_after(steps[:1], (1, 28, 28)) == (81, 7, 7)
    assert shape_after(steps, (1, 28, 28)) == (300,)
    assert shape_after([], (3, 4)) == (3, 4)


WRONG: list[tuple[Any, str]] = [
    ("scattering", "must be a list"),
    (["wavelets"], "a step is one of"),
    ([{"kind": "unit-norm", "p": 2}], "not an option"),
    ([{"kind": "log", "floor": 0.0}], "above 0"),
    ([{"kind": "group-norm", "groups": 7}], "does not divide"),
    ([{"kind": "group-norm", "groups": 0}], "does not divide"),
    ([{"kind": "scattering", "scales": 9}], "use 1 to 5"),
    ([{"kind": "scattering", "scales": 3}], "multiples of 8"),
    (["unit-norm", "scattering", "scattering"], "multiples of 4"),
    ([{"kind": "random-fourier", "dimensions": 0}], "use 1 to 100,000"),
    ([{"kind": "random-fourier", "width": 0.0}], "above 0"),
    ([{"kind": "projection", "dimensions": 3}], "public is missing"),
    ([{"kind": "projection", "public": "digits", "dimensions": 3}], "training set's own"),
    ([{"kind": "projection", "public": "nowhere", "dimensions": 3}], "is not known; it can be"),
    ([{"kind": "projection", "public": 3, "dimensions": 3}], "must name a data set"),
    ([{"kind": "projection", "public": "digits", "dimensions": 65}], "of 64 there are"),
    ([{"kind": "projection", "public": "digits", "dimensions": 3, "whitening": 2.0}], "lie in"),
    ([{"kind": "standardise", "public": "digits", "rows": 1}], "at least 2"),
    ([{"kind": "random-fourier", "dimensions": 4}, "scattering"], "needs images"),
]


@pytest.mark.parametrize(("transform", "words"), WRONG)
def test_mistakes_are_one_sentence(transform: Any, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        load("digits", transform=transform)
    assert "\n" not in str(caught.value)


def test_a_public_set_of_another_shape_is_refused() -> None:
    with pytest.raises(UserError, match="shape"):
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
    with pytest.raises(UserError, match="own records"):
        apply(made(x), step, public=subset)
    apply(made(x), step, public=made(table(seed=1)))


def test_public_records_that_are_all_alike_are_refused() -> None:
    with pytest.raises(UserError, match="all alike"):
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
