"""The mechanism: what leaves it is the clipped sum plus the stated noise over a public constant, and is logged first."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.support.mechanism import Book, noise_of

from gossamer.accounting.releases import Event
from gossamer.kernels.noise import Stream
from gossamer.mechanism.clipping import ClipTo, FollowedQuantile, Normalise, Unclipped
from gossamer.mechanism.noise.own_norm import OwnNorm
from gossamer.mechanism.reader import PrivateGradient, Records
from gossamer.mechanism.samplers import FullSampler, PoissonSampler
from gossamer.mechanism.schedules import Constant, Geometric

D = 6


def record_is_gradient(points, x, y, mask, weigh, *, unit=None):  # type: ignore[no-untyped-def]
    """A vector part whose per-record vector is the record itself: sums and norms are known in closed form."""
    norms = x.norm(dim=2) * mask
    weights = weigh(norms if unit is None else norms / unit[:, None])
    return (x * (weights * mask)[..., None]).sum(1), norms


def make(x: torch.Tensor, *, clip=None, z: float = 0.0, sampler=None, **changes):  # type: ignore[no-untyped-def]
    m, J = x.shape[:2]
    book = Book()
    parts = {
        "vector": record_is_gradient,
        "records": Records(x.flatten(0, 1), torch.zeros(m * J), [J] * m),
        "sampler": sampler or FullSampler(m),
        "clip": clip or ClipTo(Constant(1.0)),
        "noise": noise_of(z, m),
        "stream": Stream.seeded(3),
        "book": book,
        "nodes": range(m),
        "lots": [float(J)] * m,
        "allowance": [10**6] * m,
        "adjacency": "add-remove",
    }
    return PrivateGradient(**{**parts, **changes}), book


def test_mean_of_clipped_vectors_over_the_public_lot() -> None:
    x = torch.randn(3, 4, D, generator=torch.Generator().manual_seed(0)) * 3
    grad, _ = make(x, clip=ClipTo(Constant(0.7)), lots=[8.0, 2.0, 4.0])
    expected = np.zeros((3, D))
    for i in range(3):
        for record in x[i].numpy():
            expected[i] += record * min(1.0, 0.7 / np.linalg.norm(record))
    expected /= np.array([8.0, 2.0, 4.0])[:, None]
    np.testing.assert_allclose(grad(torch.zeros(3, D)).numpy(), expected, rtol=1e-5, atol=1e-7)


def test_weighted_divisors_scale_the_mean_and_leave_the_quantile_alone() -> None:
    x = torch.randn(2, 50, D, generator=torch.Generator().manual_seed(0))
    results = []
    for divisors in (None, [25.0, 100.0]):
        clip = FollowedQuantile(torch.ones(2), 0.5, 0.2, torch.full((2,), 2.0))
        grad, _ = make(x, clip=clip, z=1.0, divisors=divisors)
        results.append((grad(torch.zeros(2, D)), clip.bounds.clone()))
    (plain, bounds), (weighted, same) = results
    np.testing.assert_allclose(weighted, plain * torch.tensor([[2.0], [0.5]]), rtol=1e-6)
    np.testing.assert_array_equal(bounds, same)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 6),
    scale=st.sampled_from([1e-8, 1e-2, 1.0, 1e4]),
    clip=st.sampled_from([ClipTo(Constant(0.5)), ClipTo(Geometric(2.0, 0.25, 10)), Normalise(0.01)]),
    seed=st.integers(0, 10**6),
)
def test_one_record_moves_the_sum_by_at_most_the_sensitivity(rows, scale, clip, seed) -> None:  # type: ignore[no-untyped-def]
    x = torch.randn(1, rows, D, generator=torch.Generator().manual_seed(seed)) * scale
    lots = [float(rows)]
    with_it, book = make(x, clip=clip, lots=lots)
    without, _ = make(x[:, 1:], clip=clip, lots=lots)
    for _ in range(3):
        difference = (with_it(torch.zeros(1, D)) - without(torch.zeros(1, D))).norm() * rows
        assert float(difference) <= book.events[-1][1].release.sensitivity * (1 + 1e-5)


def drawn(z: float, draws: int = 400) -> np.ndarray:
    grad, _ = make(torch.zeros(2, 1, 50), z=z, clip=ClipTo(Constant(0.5)), lots=[2.0, 2.0])
    return torch.cat([grad(torch.zeros(2, 50)).flatten() for _ in range(draws)]).numpy()


def test_noise_has_the_stated_standard_deviation() -> None:
    """40,000 draws, fixed key: accepts σ = z·C/L and rejects ⅔σ and 3⁄2σ, each at p = 1e-6."""
    sample, sigma = drawn(1.2), 1.2 * 0.5 / 2.0
    assert stats.kstest(sample, stats.norm(0, sigma).cdf).pvalue > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(sample, stats.norm(0, wrong * sigma).cdf).pvalue < 1e-6


def test_own_norm_noise_follows_the_gradient() -> None:
    x = torch.zeros(2, 1, 4000)
    x[0, 0, 0], x[1, 0, 0] = 10.0, 0.1
    grad, book = make(x, clip=Unclipped(), noise=noise_of(0.3, 2, OwnNorm()), lots=[1.0, 1.0])
    spread = grad(torch.zeros(2, 4000))[:, 1:].std(dim=1)
    np.testing.assert_allclose(spread.numpy(), [3.0, 0.03], rtol=0.05)
    assert book.events[0][1].release.kind == "own-norm-gaussian"
    assert book.events[0][1].release.sensitivity == float("inf")


def test_events_are_written_before_the_value_leaves() -> None:
    class DiskFullError(Exception):
        pass

    class BrokenBook:
        def append(self, node: int, event: Event) -> None:
            raise DiskFullError

    grad, _ = make(torch.ones(1, 2, D), z=1.0, book=BrokenBook())
    with pytest.raises(DiskFullError):
        grad(torch.zeros(1, D))


def test_events_say_what_happened() -> None:
    grad, book = make(
        torch.ones(2, 3, D), z=1.5, clip=ClipTo(Geometric(2.0, 0.5, 4)), sampler=PoissonSampler([0.5, 0.25])
    )
    for _ in range(4):
        grad(torch.zeros(2, D))
    assert [(node, e.step) for node, e in book.events] == [(i, k) for k in range(4) for i in (0, 1)]
    for node, e in book.events:
        assert e.release.sensitivity == pytest.approx(2.0 * 0.5 ** (e.step / 4))
        assert e.release.noise_multiplier == pytest.approx(1.5, rel=1e-12)
        assert (e.release.sampling, e.release.rate, e.release.adjacency) == (
            "poisson",
            [0.5, 0.25][node],
            "add-remove",
        )


def test_a_node_at_its_budget_draws_no_more() -> None:
    grad, book = make(torch.ones(2, 3, D), z=0.1, allowance=[1, 3])
    values = [grad(torch.zeros(2, D)) for _ in range(4)]
    assert [bool(v[0].abs().sum() > 0) for v in values] == [True, False, False, False]
    assert [bool(v[1].abs().sum() > 0) for v in values] == [True, True, True, False]
    assert [node for node, _ in book.events] == [0, 1, 1, 1]


def test_an_empty_lot_is_noise_alone_and_still_counts() -> None:
    grad, book = make(torch.full((1, 1, 300), 100.0), z=1.0, sampler=PoissonSampler([1e-18]), lots=[1.0])
    value = grad(torch.zeros(1, 300))
    assert float(value.std()) == pytest.approx(1.0, rel=0.2)
    assert len(book.events) == 1


def test_quantile_clip_finds_the_quantile_and_splits_the_noise() -> None:
    """Records of norms 1 … 100, target ¾: C settles near 75; the split is one Gaussian at the stated multiplier."""
    x = torch.zeros(1, 100, D)
    x[0, :, 0] = torch.arange(1.0, 101.0)
    clip = FollowedQuantile(
        torch.tensor([5.0], dtype=torch.float64), 0.75, 0.3, torch.tensor([4.0], dtype=torch.float64)
    )
    grad, book = make(x, clip=clip, z=1.0)
    for _ in range(150):
        grad(torch.zeros(1, D))
    assert float(clip.bounds[0]) == pytest.approx(75, rel=0.15)
    assert book.events[-1][1].release.noise_multiplier == pytest.approx(1.0)
    z_gradient = float(clip.multiplier_left(torch.tensor([1.0], dtype=torch.float64))[0])
    assert z_gradient**-2 + (2 * 4.0) ** -2 == pytest.approx(1.0)


def test_records_of_unequal_nodes_are_addressed_right() -> None:
    records = Records(torch.arange(6.0)[:, None], torch.arange(6), [2, 0, 4])
    lot = FullSampler(3).draw(Stream.seeded(0), [0, 1, 2], records.sizes, 0)
    x, y = records.take(lot)
    assert x[0][lot.mask[0]].flatten().tolist() == [0.0, 1.0]
    assert lot.mask[1].sum() == 0
    assert y[2][lot.mask[2]].tolist() == [2, 3, 4, 5]


def test_each_node_clips_at_its_own_quantile_on_the_real_kernel() -> None:
    """A linear model with one output and loss = output: the gradient is the record, so sums are known by hand."""
    from torch import nn

    from gossamer.kernels.clipped_sum import clipped_sum

    x = torch.randn(3, 4, D, generator=torch.Generator().manual_seed(1)) * 3
    bounds = torch.tensor([0.5, 2.0, 100.0], dtype=torch.float64)
    clip = FollowedQuantile(bounds.clone(), 0.5, 0.1, torch.ones(3, dtype=torch.float64))
    kernel = clipped_sum(
        nn.Linear(D, 1, bias=False), lambda out, y: out.flatten(), max_bytes=1
    )  # one record a slice
    grad, _ = make(x, clip=clip, vector=kernel, lots=[1.0, 1.0, 1.0])
    expected = torch.stack(
        [
            (r * (b / r.norm(dim=1)).clamp_max(1)[:, None]).sum(0)
            for r, b in zip(x, bounds.float(), strict=True)
        ]
    )
    np.testing.assert_allclose(grad(torch.zeros(3, D)).numpy(), expected.numpy(), rtol=1e-4, atol=1e-6)


def test_lattice_noise_is_whole_multiples_of_the_stated_spread() -> None:
    x = torch.randn(1, 3, 200, generator=torch.Generator().manual_seed(0))
    grad, book = make(x, clip=ClipTo(Constant(0.5)), noise=noise_of(1.5, 1, arithmetic="lattice"), lots=[1.0])
    plain, _ = make(x, clip=ClipTo(Constant(0.5)), lots=[1.0])
    step = 0.5 / (1000 * 200**0.5)
    noise = []
    for _ in range(4):
        value = grad(torch.zeros(1, 200))[0].double().numpy()
        np.testing.assert_allclose(
            value / step, np.round(value / step), atol=0.06
        )  # float32 carries the result
        noise.append(value - plain(torch.zeros(1, 200))[0].double().numpy())
    event = book.events[0][1].release
    assert event.sensitivity == pytest.approx(0.5 * 1.001, rel=1e-9)
    assert event.noise_multiplier == pytest.approx(1.5, rel=1e-12)
    sample = np.concatenate(noise)
    assert stats.kstest(sample, stats.norm(0, event.sigma).cdf).pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(sample, stats.norm(0, wrong * event.sigma).cdf).pvalue < 1e-4


def quantile_noise(draws: int = 600) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Gradient noise and count noise of a quantile clip, each read off where nothing else is: (gradient, count, σ_Δ C, σ_b)."""
    C, z, count_noise, lr, lot = 0.5, 1.0, 0.8, 0.1, 40.0
    clip = FollowedQuantile(
        torch.full((2,), C, dtype=torch.float64), 0.5, lr, torch.full((2,), count_noise, dtype=torch.float64)
    )
    grad, _ = make(
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


def test_two_gradients_of_the_same_parts_never_share_noise() -> None:
    from gossamer.config import recipes
    from gossamer.config.layers import resolve
    from gossamer.run.assemble import assemble
    from gossamer.run.outline import outline

    parts = assemble(outline(resolve(recipes.read("quickstart"), {"rounds": 10})))
    one, two = parts.reader(Book()), parts.reader(Book())  # type: ignore[arg-type]
    assert not torch.equal(one(parts.x0), two(parts.x0))


@pytest.mark.parametrize("size", [1e3, 1e10, 1e19, 1e30, 3e38])
def test_one_extreme_record_moves_the_real_sum_by_at_most_the_clip(size: float) -> None:
    from torch import nn

    from gossamer.kernels.clipped_sum import clipped_sum
    from gossamer.methods.objective import per_sample_loss

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(D, 8), nn.ReLU(), nn.Linear(8, 3))
    x = torch.randn(1, 5, D)
    x[0, 0] = size
    labels = torch.zeros(5, dtype=torch.long)

    def total(records: torch.Tensor) -> torch.Tensor:
        kernel = clipped_sum(net, per_sample_loss(3))
        rows = Records(records[0], labels[: len(records[0])], [len(records[0])])
        grad, _ = make(records, clip=ClipTo(Constant(0.5)), vector=kernel, records=rows, lots=[1.0])
        points = torch.cat([p.detach().flatten() for p in net.parameters()])[None]
        return grad(points)

    moved = (total(x) - total(x[:, 1:])).norm()
    assert torch.isfinite(moved)
    assert float(moved) <= 0.5 * (1 + 1e-4)
