"""Lots: Poisson coins, fixed-size subsets and full passes, from a seeded stream so that nothing flakes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.support.refusals import expect_refusal

from gossamer.kernels.noise import Stream
from gossamer.mechanism.sampling import (
    BallsAndBinsSampler,
    FixedSizeSampler,
    FullSampler,
    OnePassSampler,
    PoissonSampler,
)

STREAM = Stream.seeded(7)


def counts(sampler: object, sizes: list[int], steps: int) -> list[np.ndarray]:
    """How often each record of each node was drawn."""
    seen = [np.zeros(size) for size in sizes]
    for step in range(steps):
        lot = sampler.draw(STREAM, range(len(sizes)), sizes, step)  # type: ignore[attr-defined]
        for i in range(len(sizes)):
            seen[i] += np.bincount(lot.rows[i][lot.mask[i]].numpy(), minlength=sizes[i])
    return seen


def test_poisson_includes_each_record_at_its_nodes_rate() -> None:
    steps, rates, sizes = 2000, [0.1, 0.3], [40, 25]
    for rate, hits in zip(rates, counts(PoissonSampler(rates), sizes, steps), strict=True):
        # Bonferroni over 65 records at an error rate of 1e-6 in all; the stream is fixed, so this never flakes.
        low, high = stats.binom.ppf([1e-8, 1 - 1e-8], steps, rate)
        assert ((hits >= low) & (hits <= high)).all()
        wrong_low, _ = stats.binom.ppf([1e-8, 1 - 1e-8], steps, 1.5 * rate)
        assert (hits < wrong_low).any()


def test_poisson_lot_sizes_are_binomial() -> None:
    sizes = [50]
    lots = [int(PoissonSampler([0.2]).draw(STREAM, [0], sizes, s).mask.sum()) for s in range(3000)]
    assert np.mean(lots) == pytest.approx(10, abs=0.3)
    assert np.var(lots) == pytest.approx(50 * 0.2 * 0.8, rel=0.12)


def test_poisson_at_rate_one_takes_everyone() -> None:
    lot = PoissonSampler([1.0]).draw(STREAM, [0], [11], 0)
    assert lot.rows[0].tolist() == list(range(11))
    assert lot.mask.all()


def test_fixed_size_is_a_uniform_subset() -> None:
    steps, size, lot = 3000, 12, 4
    sampler = FixedSizeSampler([lot], [size])
    for step in range(20):
        drawn = sampler.draw(STREAM, [0], [size], step).rows[0].tolist()
        assert len(set(drawn)) == lot
    (hits,) = counts(sampler, [size], steps)
    low, high = stats.binom.ppf([1e-8, 1 - 1e-8], steps, lot / size)
    assert ((hits >= low) & (hits <= high)).all()


def test_ragged_lots_are_padded_never_cut() -> None:
    lot = FullSampler(3).draw(STREAM, [0, 1, 2], [3, 5, 1], 0)
    assert lot.mask.sum(1).tolist() == [3, 5, 1]
    assert lot.rows.shape == (3, 5)


def test_nodes_and_steps_draw_independently() -> None:
    sampler = PoissonSampler([0.5, 0.5])
    lot = sampler.draw(STREAM, [0, 1], [64, 64], 0)
    again = sampler.draw(STREAM, [0, 1], [64, 64], 1)
    rows = [set(lot.rows[i][lot.mask[i]].tolist()) for i in (0, 1)]
    assert rows[0] != rows[1]
    assert rows[0] != set(again.rows[0][again.mask[0]].tolist())


def test_the_priced_rate_is_the_drawn_rate() -> None:
    assert list(PoissonSampler([0.1, 0.3]).rates) == [0.1, 0.3]
    assert list(FixedSizeSampler([2, 5], [10, 20]).rates) == [0.2, 0.25]
    assert list(FullSampler(2).rates) == [1.0, 1.0]
    with pytest.raises(ValueError, match="made for nodes of"):
        FixedSizeSampler([2], [10]).draw(STREAM, [0], [11], 0)


def test_records_of_different_rates_are_priced_at_the_largest() -> None:
    rates, steps = [0.1, 0.4, 1.0], 2000
    sampler = PoissonSampler(rates, of_records=True)
    assert list(sampler.rates) == [1.0]
    (hits,) = counts(sampler, [3], steps)
    low, high = stats.binom.ppf(1e-8, steps, rates), stats.binom.ppf(1 - 1e-8, steps, rates)
    assert ((hits >= low) & (hits <= high)).all()
    with expect_refusal(key="baseline", names="rates"):
        sampler.repeated(2, [3, 3])
    assert list(PoissonSampler([0.5, 0.5], of_records=True).repeated(2, [2, 2]).rates) == [0.5, 0.5]


def test_runs_side_by_side_draw_at_their_nodes_rate() -> None:
    assert list(PoissonSampler([0.1, 0.3]).repeated(2, [5] * 4).rates) == [0.1, 0.1, 0.3, 0.3]
    assert list(FixedSizeSampler([2, 5], [10, 20]).repeated(2, [10, 10, 20, 20]).rates) == [
        0.2,
        0.2,
        0.25,
        0.25,
    ]
    assert list(FullSampler(2).repeated(3, [4] * 6).rates) == [1.0] * 6


@settings(deadline=None, max_examples=40)
@given(size=st.integers(1, 60), lot=st.integers(1, 20), seed=st.integers(0, 1000))
def test_one_pass_lots_are_disjoint_and_cover_the_data(size: int, lot: int, seed: int) -> None:
    lot = min(lot, size)
    sampler, stream = OnePassSampler([lot], [size]), Stream.seeded(seed)
    for number in range(2):
        turns = sampler.turns[0]
        seen: list[int] = []
        for t in range(number * turns, (number + 1) * turns):
            drawn = sampler.draw(stream, [0], [size], t)
            assert drawn.mask.sum() <= lot
            seen += drawn.rows[drawn.mask].tolist()
            assert sampler.passes(t) == [number]
        assert sorted(seen) == list(range(size))


def test_passes_are_dealt_anew_and_in_secret() -> None:
    sampler = OnePassSampler([10], [100])
    orders = []
    for stream in (Stream.seeded(1), Stream.seeded(2)):
        fresh = OnePassSampler([10], [100])
        orders.append([fresh.draw(stream, [0], [100], t).rows.flatten().tolist() for t in (0, 10)])
    assert len({tuple(sorted(rows)) for order in orders for rows in order}) == 4
    assert sampler.rates == [0.1]


def test_one_record_less_leaves_the_other_lots_as_they_are() -> None:
    """Under add/remove, parallel composition needs that; a permutation cut into lots would shift all of them."""
    lots = []
    for size in (57, 56):
        sampler, stream = OnePassSampler([10], [60]), Stream.seeded(4)
        draws = [sampler.draw(stream, [0], [size], t) for t in range(6)]
        lots.append([set(d.rows[d.mask].tolist()) for d in draws])
    gone = [a - b for a, b in zip(*lots, strict=True)]
    assert sorted(map(len, gone)) == [0, 0, 0, 0, 0, 1]
    assert set().union(*gone) == {56}
    assert all(b <= a for a, b in zip(*lots, strict=True))


def test_more_records_than_declared_have_no_place() -> None:
    with pytest.raises(ValueError, match="places"):
        OnePassSampler([10], [20]).draw(Stream.seeded(0), [0], [21], 0)


def bins_of(stream: Stream, turns: int, size: int, number: int, node: int = 0) -> np.ndarray:
    """The lot of every record in one pass, each lot drawn by a sampler of its own: nothing need be remembered."""
    bins = np.full(size, -1)
    for t in range(turns):
        drawn = BallsAndBinsSampler([turns]).draw(stream, [node], [size], number * turns + t)
        rows = drawn.rows[drawn.mask].numpy()
        assert (bins[rows] == -1).all()  # disjoint
        bins[rows] = t
    assert (bins >= 0).all()  # and all of them
    return bins


@settings(deadline=None, max_examples=40)
@given(size=st.integers(1, 60), turns=st.integers(1, 20), seed=st.integers(0, 1000))
def test_balls_and_bins_lots_are_disjoint_and_cover_the_data(size: int, turns: int, seed: int) -> None:
    stream = Stream.seeded(seed)
    for number in range(2):
        bins_of(stream, turns, size, number)
    sampler = BallsAndBinsSampler([turns, 2])
    assert sampler.passes(turns) == [1, turns // 2]
    assert sampler.lot_numbers(turns) == [0, turns % 2]


def test_balls_and_bins_are_uniform_and_independent_of_each_other() -> None:
    """χ² of lots, of pairs of records, of a record in two passes, of a record on two nodes: each fails one run in 10⁶.

    A permutation dealt into equal lots, as one-pass lots are, fails the test of pairs: it keeps two records apart.
    """
    turns, size, passes, stream = 5, 200, 400, Stream.seeded(11)
    bins = np.stack([bins_of(stream, turns, size, number) for number in range(passes)])
    other = np.stack([bins_of(stream, turns, size, number, node=1) for number in range(passes)])
    pairs = {
        "lots": (bins, np.zeros_like(bins), turns - 1),
        "neighbours": (bins[:, ::2], bins[:, 1::2], turns**2 - 1),
        "passes": (bins[::2], bins[1::2], turns**2 - 1),
        "nodes": (bins, other, turns**2 - 1),
    }
    for name, (one, two, freedom) in pairs.items():
        counts = np.bincount((one * turns + two).ravel(), minlength=turns**2)
        counts = counts[counts > 0] if name == "lots" else counts
        expected = one.size / (freedom + 1)
        assert float(((counts - expected) ** 2 / expected).sum()) < stats.chi2.isf(1e-6, freedom), name
    sizes = (bins == 0).sum(1)
    assert sizes.std() == pytest.approx(np.sqrt(size * 0.2 * 0.8), rel=0.2)  # binomial: ragged


def test_in_balls_and_bins_a_record_less_leaves_all_others_where_they_are() -> None:
    stream = Stream.seeded(4)
    assert (bins_of(stream, 6, 57, 3)[:56] == bins_of(stream, 6, 56, 3)).all()


def test_nodes_with_passes_of_their_own_draw_side_by_side_as_alone() -> None:
    sampler, stream = BallsAndBinsSampler([3, 5]), Stream.seeded(2)
    together = sampler.draw(stream, [4, 7], [30, 20], 11)
    for i, (node, turns, size) in enumerate([(4, 3, 30), (7, 5, 20)]):
        alone = BallsAndBinsSampler([turns]).draw(stream, [node], [size], 11)
        assert together.rows[i][together.mask[i]].tolist() == alone.rows[alone.mask].tolist()
    assert list(sampler.repeated(2, [1] * 4).rates) == [1 / 3, 1 / 3, 1 / 5, 1 / 5]
