"""Clips: what a record weighs, and the bound that this makes on its contribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.support.mechanism import private_mean
from tests.support.refusals import expect_refusal

from gossamer.mechanism.clipping import Clip, ClipKind, FollowedQuantile, clips
from gossamer.mechanism.sampling import PoissonSampler

D = 6


def test_quantile_clip_finds_the_quantile_and_splits_the_noise() -> None:
    """Records of norms 1 … 100, target ¾: C settles near 75; the split is one Gaussian at the stated multiplier."""
    x = torch.zeros(1, 100, D)
    x[0, :, 0] = torch.arange(1.0, 101.0)
    clip = FollowedQuantile(
        torch.tensor([5.0], dtype=torch.float64), 0.75, 0.3, torch.tensor([4.0], dtype=torch.float64)
    )
    grad, book = private_mean(x, clip=clip, z=1.0)
    for _ in range(150):
        grad(torch.zeros(1, D))
    assert float(clip.bounds[0]) == pytest.approx(75, rel=0.15)
    assert book.events[-1][1].release.noise_multiplier == pytest.approx(1.0)
    z_gradient = float(clip.multiplier_left(torch.tensor([1.0], dtype=torch.float64))[0])
    assert z_gradient**-2 + (2 * 4.0) ** -2 == pytest.approx(1.0)


def test_each_node_clips_at_its_own_quantile_on_the_real_kernel() -> None:
    """A linear model with one output and loss = output: the gradient is the record, so sums are known by hand."""
    from torch import nn

    from gossamer.kernels.clipped_sum import ClippedSum

    x = torch.randn(3, 4, D, generator=torch.Generator().manual_seed(1)) * 3
    bounds = torch.tensor([0.5, 2.0, 100.0], dtype=torch.float64)
    clip = FollowedQuantile(bounds.clone(), 0.5, 0.1, torch.ones(3, dtype=torch.float64))
    kernel = ClippedSum(nn.Linear(D, 1, bias=False), lambda out, y: out.flatten(), max_bytes=1)  # one record a slice
    grad, _ = private_mean(x, clip=clip, vector=kernel, lots=[1.0, 1.0, 1.0])
    expected = torch.stack(
        [(r * (b / r.norm(dim=1)).clamp_max(1)[:, None]).sum(0) for r, b in zip(x, bounds.float(), strict=True)]
    )
    np.testing.assert_allclose(grad(torch.zeros(3, D)).numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)


def quantile_noise(draws: int = 600) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Gradient noise and count noise of a quantile clip, each read off where nothing else is: (gradient, count, σ_Δ C, σ_b)."""
    C, z, count_noise, lr, lot = 0.5, 1.0, 0.8, 0.1, 40.0
    clip = FollowedQuantile(
        torch.full((2,), C, dtype=torch.float64), 0.5, lr, torch.full((2,), count_noise, dtype=torch.float64)
    )
    grad, _ = private_mean(
        torch.zeros(2, 1, 40), z=z, clip=clip, lots=[1.0, 1.0], sampler=PoissonSampler([1e-18, 1e-18])
    )
    grad._lots = torch.full((2,), lot, dtype=torch.float64)
    gradients, counts = [], []
    for _ in range(draws):
        clip.bounds = torch.full((2,), C, dtype=torch.float64)
        gradients.append(grad(torch.zeros(2, 40)).flatten().numpy())
        # empty lots: the share is ½ + σ_b ξ / L, and C moved by exp(−lr (share − ½))
        counts.append((-torch.log(clip.bounds / C) / lr * lot).numpy())
    return (
        np.concatenate(gradients),
        np.concatenate(counts),
        C * (z**-2 - (2 * count_noise) ** -2) ** -0.5,
        count_noise,
    )


def test_quantile_clip_pays_for_the_count_with_more_noise_on_the_gradient() -> None:
    """Both noises have the stated spread (fixed key; accepts σ, rejects ⅔σ and 3⁄2σ) and are drawn apart."""
    gradients, counts, sigma, count_sigma = quantile_noise()
    for sample, spread in ((gradients, sigma), (counts, count_sigma)):
        assert stats.kstest(sample, stats.norm(0, spread).cdf).pvalue > 1e-4
        for wrong in (2 / 3, 3 / 2):
            assert stats.kstest(sample, stats.norm(0, wrong * spread).cdf).pvalue < 1e-4
    # The unenlarged multiplier (σ = z C) would be caught too: it is 22% smaller.
    assert stats.kstest(gradients, stats.norm(0, 0.5).cdf).pvalue < 1e-4
    first = gradients.reshape(-1, 40)[:, 0]
    assert abs(np.corrcoef(first, counts)[0, 1]) < 0.2


OPTIONS: dict[str, dict[str, Any]] = {
    "constant": {"bound": 0.7},
    "decaying": {"start": 2.0, "ratio": 4.0},
    "sequence": {"values": [3.0, 0.5]},
    "normalised": {"gamma": 0.01},
    "quantile": {"start": 0.3},
    "assumed": {"bound": 2.5},
    "record-ball": {"radius": 2.0},
    "none": {},
}
every_clip = pytest.mark.parametrize("name", list(OPTIONS))


def made(name: str, draws: int = 8, nodes: int = 2) -> tuple[ClipKind, Clip]:
    kind = clips.parse({"kind": name, **OPTIONS[name]})
    ones = torch.ones(nodes, dtype=torch.float64)
    return kind, kind.make(draws, 40 * ones, ones)


def test_every_clip_stands_in_the_table() -> None:
    assert set(OPTIONS) == set(clips)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(OPTIONS)),
    k=st.integers(0, 7),
    exponents=st.lists(st.floats(-30, 30), min_size=1, max_size=6),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_a_clip_that_says_so_bounds_every_weighted_norm(
    name: str, k: int, exponents: list[float], dtype: torch.dtype
) -> None:
    step = made(name)[1].at(k, 2)
    norms = torch.tensor([[10.0**e for e in exponents], [0.0] * len(exponents)], dtype=dtype)
    weights = step.weigh(norms if step.unit is None else norms / step.unit.to(dtype)[:, None])
    assert bool(torch.isfinite(weights).all())
    assert bool((weights >= 0).all())
    if step.enforced:
        assert bool((weights * norms <= step.reference[:, None].to(dtype) * (1 + 1e-6)).all())
    else:
        assert torch.equal(weights, torch.ones_like(norms))


@every_clip
def test_a_clip_enforces_what_its_kind_says(name: str) -> None:
    kind, clip = made(name)
    bounded = clip.at(0, 2).enforced or math.isfinite(kind.record_bound)
    assert kind.enforced == bounded


REFERENCES: dict[str, list[float]] = {
    "constant": [0.7] * 8,
    "decaying": [2.0 * 4 ** (-k / 8) for k in range(8)],
    "sequence": [3.0] * 4 + [0.5] * 4,
    "normalised": [1.0] * 8,
    "quantile": [0.3] * 8,  # before it has seen a norm
    "assumed": [2.5] * 8,
    "record-ball": [math.inf] * 8,
    "none": [math.inf] * 8,
}


@every_clip
def test_the_reference_of_every_draw_is_public_and_known(name: str) -> None:
    kind, clip = made(name)
    for k, expected in enumerate(REFERENCES[name]):
        reference = clip.at(k, 2).reference
        assert reference.tolist() == pytest.approx([expected] * 2, rel=1e-6)
        if name in {"constant", "decaying", "sequence"}:
            assert kind.schedule(8)(k) == pytest.approx(expected, rel=1e-12)
    assert clip.scale_is_public == (name != "quantile")


@every_clip
def test_a_short_vector_stays_as_it_is_unless_it_is_normalised(name: str) -> None:
    step = made(name)[1].at(0, 1)
    norms = torch.tensor([[0.1]])
    weight = float(step.weigh(norms if step.unit is None else norms / step.unit[0]))
    assert weight == pytest.approx(1 / 0.11 if name == "normalised" else 1.0)


def test_the_quantile_goes_on_from_a_checkpoint_as_if_it_had_never_stopped() -> None:
    x = torch.randn(2, 30, D, generator=torch.Generator().manual_seed(5)) * 4

    def start() -> tuple[Any, Any]:
        clip = FollowedQuantile(torch.ones(2).double(), 0.5, 0.3, torch.full((2,), 2.0).double())
        return private_mean(x, clip=clip, z=1.0)[0], clip

    (whole, bounds), (first, _), (second, resumed) = start(), start(), start()
    values = [whole(torch.zeros(2, D)) for _ in range(6)]
    for _ in range(3):
        first(torch.zeros(2, D))
    kept = {key: value.clone() for key, value in first.state().items()}
    first(torch.zeros(2, D))  # what happens after the checkpoint does not reach into it
    second.restore(kept)
    assert torch.equal(kept["clip_bounds"], resumed.bounds)
    assert not torch.equal(resumed.bounds, torch.ones(2).double())
    for expected in values[3:]:
        assert torch.equal(second(torch.zeros(2, D)), expected)
    assert torch.equal(resumed.bounds, bounds.bounds)


def test_a_quantile_moves_down_where_too_many_are_below_and_only_where_a_node_takes_part() -> None:
    clip = FollowedQuantile(torch.tensor([1.0, 1.0, 1.0]).double(), 0.5, 0.2, torch.zeros(3).double())
    norms = torch.tensor([[0.1, 0.2, 0.3, 0.4], [5.0, 6.0, 0.5, 7.0], [0.1, 0.1, 0.1, 0.1]])
    lots, active = torch.full((3,), 4.0), torch.tensor([True, True, False])
    clip.follow(norms, torch.ones(3, 4, dtype=torch.bool), lambda counts, scale: counts, lots, active)
    assert clip.bounds.tolist() == pytest.approx([math.exp(-0.2 * 0.5), math.exp(0.2 * 0.25), 1.0])


def test_a_bound_never_leaves_what_float32_can_say() -> None:
    clip = FollowedQuantile(torch.tensor([1e-12, 1e12]), 0.5, 1e3, torch.zeros(2))
    mask, lots = torch.ones(2, 1, dtype=torch.bool), torch.ones(2)
    clip.follow(torch.tensor([[0.0], [1e30]]), mask, lambda counts, scale: counts, lots, torch.ones(2).bool())
    assert clip.bounds.tolist() == pytest.approx([1e-12, 1e12])


def test_a_count_that_takes_the_whole_budget_is_refused() -> None:
    """σ_b = z/2 leaves nothing for the sum; a little more does."""
    ones = torch.ones(1, dtype=torch.float64)
    with expect_refusal(key="privacy.clip.count_noise", value="0.5", remedy=True):
        clips.parse({"kind": "quantile", "count_noise": 0.5}).make(8, 10 * ones, ones)
    near = clips.parse({"kind": "quantile", "count_noise": 0.51}).make(8, 10 * ones, ones)
    assert math.isfinite(float(near.multiplier_left(ones)))
