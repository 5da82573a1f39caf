"""The mechanism: what leaves it is the clipped sum plus the stated noise over a public constant, and is logged first."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.mechanism import private_mean

from gossamer.kernels.noise import Stream
from gossamer.kernels.rounding import EXCESS
from gossamer.mechanism.clipping import ClipTo, Constant, FollowedQuantile, Geometric, NormalisedClip
from gossamer.mechanism.reader import Records
from gossamer.mechanism.sampling import FullSampler, Lot, PoissonSampler

D = 6


def test_mean_of_clipped_vectors_over_the_public_lot() -> None:
    x = torch.randn(3, 4, D, generator=torch.Generator().manual_seed(0)) * 3
    grad, _ = private_mean(x, clip=ClipTo(Constant(0.7)), lots=[8.0, 2.0, 4.0])
    expected = np.zeros((3, D))
    for i in range(3):
        for record in x[i].numpy():
            expected[i] += record * min(1.0, 0.7 / np.linalg.norm(record))
    expected /= np.array([8.0, 2.0, 4.0])[:, None]
    np.testing.assert_allclose(grad(torch.zeros(3, D)).numpy(), expected, rtol=1e-5, atol=1e-7)


def test_diagnostics_are_those_of_the_lot_before_the_noise() -> None:
    x = torch.randn(2, 5, D, generator=torch.Generator().manual_seed(1)) * 2
    grad, _ = private_mean(x, clip=ClipTo(Constant(1.5)), z=3.0, diagnostics=True)
    grad(torch.zeros(2, D))
    norms = np.linalg.norm(x.numpy(), axis=2)
    clipped = x.numpy() * np.minimum(1.0, 1.5 / norms)[..., None]
    seen = grad.last_diagnostics
    np.testing.assert_allclose(seen.mean_norm, norms.mean(1), rtol=1e-5)
    np.testing.assert_allclose(seen.clipped, (norms > 1.5).mean(1), rtol=1e-6)
    np.testing.assert_allclose(seen.lot_norm, np.linalg.norm(clipped.mean(1), axis=1), rtol=1e-5)


def test_weighted_divisors_scale_the_mean_and_leave_the_quantile_alone() -> None:
    x = torch.randn(2, 50, D, generator=torch.Generator().manual_seed(0))
    results = []
    for divisors in (None, [25.0, 100.0]):
        clip = FollowedQuantile(torch.ones(2), 0.5, 0.2, torch.full((2,), 2.0))
        grad, _ = private_mean(x, clip=clip, z=1.0, divisors=divisors)
        results.append((grad(torch.zeros(2, D)), clip.bounds.clone()))
    (plain, bounds), (weighted, same) = results
    np.testing.assert_allclose(weighted, plain * torch.tensor([[2.0], [0.5]]), rtol=1e-6)
    np.testing.assert_array_equal(bounds, same)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 6),
    scale=st.sampled_from([1e-8, 1e-2, 1.0, 1e4]),
    clip=st.sampled_from([ClipTo(Constant(0.5)), ClipTo(Geometric(2.0, 0.25, 10)), NormalisedClip(gamma=0.01)]),
    seed=st.integers(0, 10**6),
)
def test_one_record_moves_the_sum_by_at_most_the_sensitivity(rows, scale, clip, seed) -> None:  # type: ignore[no-untyped-def]
    x = torch.randn(1, rows, D, generator=torch.Generator().manual_seed(seed)) * scale
    lots = [float(rows)]
    with_it, book = private_mean(x, clip=clip, lots=lots)
    without, _ = private_mean(x[:, 1:], clip=clip, lots=lots)
    for _ in range(3):
        difference = (with_it(torch.zeros(1, D)) - without(torch.zeros(1, D))).norm() * rows
        assert float(difference) <= book.events[-1][1].release.sensitivity * (1 + 1e-5)


def test_events_are_written_before_the_value_leaves() -> None:
    class DiskFullError(Exception):
        pass

    class BrokenBook:
        def write(self, releases: object) -> None:
            raise DiskFullError

    grad, _ = private_mean(torch.ones(1, 2, D), z=1.0, book=BrokenBook())
    with pytest.raises(DiskFullError):
        grad(torch.zeros(1, D))


def test_events_say_what_happened() -> None:
    grad, book = private_mean(
        torch.ones(2, 3, D), z=1.5, clip=ClipTo(Geometric(2.0, 0.5, 4)), sampler=PoissonSampler([0.5, 0.25])
    )
    for _ in range(4):
        grad(torch.zeros(2, D))
    assert [(node, e.draw) for node, e in book.events] == [(i, k) for k in range(4) for i in (0, 1)]
    for node, e in book.events:
        assert e.release.sensitivity == pytest.approx(2.0 * 0.5 ** (e.draw / 4) * (1 + EXCESS))
        assert e.release.noise_multiplier == pytest.approx(1.5, rel=1e-12)
        assert (e.release.sampling, e.release.rate, e.release.adjacency) == (
            "poisson",
            [0.5, 0.25][node],
            "add-remove",
        )


def test_a_node_at_its_budget_draws_no_more() -> None:
    grad, book = private_mean(torch.ones(2, 3, D), z=0.1, allowance=[1, 3])
    values = [grad(torch.zeros(2, D)) for _ in range(4)]
    assert [bool(v[0].abs().sum() > 0) for v in values] == [True, False, False, False]
    assert [bool(v[1].abs().sum() > 0) for v in values] == [True, True, True, False]
    assert [node for node, _ in book.events] == [0, 1, 1, 1]


def test_an_empty_lot_is_noise_alone_and_still_counts() -> None:
    grad, book = private_mean(torch.full((1, 1, 300), 100.0), z=1.0, sampler=PoissonSampler([1e-18]), lots=[1.0])
    value = grad(torch.zeros(1, 300))
    assert float(value.std()) == pytest.approx(1.0, rel=0.2)
    assert len(book.events) == 1


def test_records_of_unequal_nodes_are_addressed_right() -> None:
    records = Records(torch.arange(6.0)[:, None], torch.arange(6), [2, 0, 4])
    lot = FullSampler(3).draw(Stream.seeded(0), [0, 1, 2], records.sizes, 0)
    x, y, _, _ = records.take(lot)
    assert x[0][lot.mask[0]].flatten().tolist() == [0.0, 1.0]
    assert lot.mask[1].sum() == 0
    assert y[2][lot.mask[2]].tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("size", [1e3, 1e10, 1e19, 1e30, 3e38])
def test_one_extreme_record_moves_the_real_sum_by_at_most_the_clip(size: float) -> None:
    from torch import nn

    from gossamer.kernels.clipped_sum import ClippedSum
    from gossamer.methods.base import per_sample_loss

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(D, 8), nn.ReLU(), nn.Linear(8, 3))
    x = torch.randn(1, 5, D)
    x[0, 0] = size
    labels = torch.zeros(5, dtype=torch.long)

    def total(records: torch.Tensor) -> torch.Tensor:
        kernel = ClippedSum(net, per_sample_loss(3))
        rows = Records(records[0], labels[: len(records[0])], [len(records[0])])
        grad, _ = private_mean(records, clip=ClipTo(Constant(0.5)), vector=kernel, records=rows, lots=[1.0])
        points = torch.cat([p.detach().flatten() for p in net.parameters()])[None]
        return grad(points)

    moved = (total(x) - total(x[:, 1:])).norm()
    assert torch.isfinite(moved)
    assert float(moved) <= 0.5 * (1 + 1e-4)


def test_lots_of_persons_bring_all_of_their_records() -> None:
    records = Records(torch.arange(7.0)[:, None], torch.arange(7), [5, 2], persons=[np.array([1, 3, 1]), np.array([2])])
    assert records.units == [3, 1]
    lot = Lot(torch.tensor([[1, 2], [0, 0]]), torch.tensor([[True, True], [True, False]]))
    _, y, mask, persons = records.take(lot)
    assert y[0][mask[0]].tolist() == [1, 2, 3, 4]
    assert y[1][mask[1]].tolist() == [5, 6]
    assert persons is not None
    assert persons.counts.tolist() == [[3, 1], [2, 0]]
    assert persons.of[0].tolist() == [0, 0, 0, 1]
    with pytest.raises(ValueError, match="persons of 4 records at a node that holds 5"):
        Records(torch.zeros(5, 1), torch.zeros(5), [5], persons=[np.array([4])])
