"""What each step computes, against closed forms."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tests.support.features import apply, made, pictures, table
from tests.support.refusals import expect_refusal

from gossamer.data.features import steps


def test_group_norm_and_unit_norm_look_at_one_record() -> None:
    data = apply(made(pictures()), "scattering", {"kind": "group-norm", "groups": 27}, "unit-norm")
    x = data.x_train
    assert x.shape[1:] == (81, 2, 2)
    assert np.allclose(np.linalg.norm(x.reshape(len(x), -1), axis=1), 1, atol=1e-5)
    groups = x.reshape(len(x), 27, -1)
    assert np.allclose(groups.mean(2), 0, atol=1e-6)
    assert json.loads(data.provenance["transform"])[1]["groups"] == 27


def test_average_pooling_takes_the_mean_of_every_square() -> None:
    data = made(pictures())
    x = data.x_train
    rows, channels, height, width = x.shape
    found = apply(data, {"kind": "average-pool", "size": 4}).x_train
    squares = x.reshape(rows, channels, height // 4, 4, width // 4, 4)
    assert np.allclose(found, squares.mean((3, 5)), atol=1e-6)
    for size, wrong in ((0, "data.transform.size 1"), (5, "average-pool.size 8")):
        with expect_refusal(value=size, names=wrong, remedy=True):
            apply(data, {"kind": "average-pool", "size": size})
    with expect_refusal(key="data.transform", names="average-pool"):
        apply(made(table()), "average-pool")


def test_the_logarithm_keeps_order_and_has_a_floor() -> None:
    x = np.array([[[[-1.0, 0.0], [0.5, 2.0]]]], dtype=np.float32)
    found = apply(made(np.repeat(x, 2, 0)), {"kind": "log", "floor": 0.25}).x_train[0].ravel()
    assert np.allclose(found, np.log([0.25, 0.25, 0.75, 2.25]), atol=1e-6)


def test_affine_is_two_public_numbers() -> None:
    x = np.array([[[[0.0, 0.25], [0.5, 1.0]]]], dtype=np.float32)
    found = apply(made(np.repeat(x, 2, 0)), {"kind": "affine", "mean": 0.25, "deviation": 0.5}).x_train[0].ravel()
    assert np.allclose(found, [-0.5, 0.0, 0.5, 1.5])
    with expect_refusal(key="data.transform.deviation", value="0.0", remedy=True):
        apply(made(np.repeat(x, 2, 0)), {"kind": "affine", "deviation": 0.0})


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


def test_a_random_projection_keeps_norms_on_average_and_follows_its_seed() -> None:
    x = np.random.default_rng(0).normal(size=(8, 30))
    step = {"kind": "random-projection", "dimensions": 20_000}
    z = apply(made(x), step).x_train
    assert np.allclose(np.linalg.norm(z, axis=1), np.linalg.norm(x[:4], axis=1), rtol=0.05)
    assert np.array_equal(z, apply(made(x), step).x_train)
    assert not np.array_equal(z, apply(made(x), {**step, "seed": 1}).x_train)
