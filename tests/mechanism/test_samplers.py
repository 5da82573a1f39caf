"""Lots: Poisson coins, fixed-size subsets and full passes, from a seeded stream so that nothing flakes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.mechanism.samplers import (
    FixedSizeSampler,
    FullSampler,
    OnePassSampler,
    PoissonSampler,
    UnevenPoissonSampler,
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


def test_in_every_pass_each_record_is_in_exactly_one_lot() -> None:
    sampler = OnePassSampler([4, 3], [10, 6])  # the second node holds fewer records than it declared
    turns, sizes = sampler.turns, [10, 5]
    assert turns == [3, 2]
    for node, size in enumerate(sizes):
        orders = set()
        for number in range(5):
            drawn: list[int] = []
            for step in range(number * turns[node], (number + 1) * turns[node]):
                assert sampler.passes(step)[node] == number
                lot = sampler.draw(STREAM, [0, 1], sizes, step)
                rows = lot.rows[node][lot.mask[node]].tolist()
                assert len(rows) <= sampler.lots[node]
                drawn += rows
            assert sorted(drawn) == list(range(size))
            orders.add(tuple(drawn))
        assert len(orders) > 1  # a new permutation in every pass
    with pytest.raises(ValueError, match="holds 7 records but declared places for 6"):
        sampler.draw(STREAM, [0, 1], [10, 7], 0)


def test_a_record_less_leaves_the_others_in_their_lots() -> None:
    """Why a permutation deals places and not lots: neighbouring data sets differ in one record's lot alone."""
    for step in range(3):
        with_it, without = (OnePassSampler([4], [10]).draw(STREAM, [0], [size], step) for size in (10, 9))
        rows = [set(lot.rows[0][lot.mask[0]].tolist()) for lot in (with_it, without)]
        assert rows[0] - {9} == rows[1]


def test_records_of_different_rates_are_priced_at_the_largest() -> None:
    rates, steps = [0.1, 0.4, 1.0], 2000
    sampler = UnevenPoissonSampler(rates)
    assert list(sampler.rates) == [1.0]
    (hits,) = counts(sampler, [3], steps)
    low, high = stats.binom.ppf(1e-8, steps, rates), stats.binom.ppf(1 - 1e-8, steps, rates)
    assert ((hits >= low) & (hits <= high)).all()
    with pytest.raises(UserError, match="draws records at different rates here, which an audit cannot stack"):
        sampler.repeated(2, [3, 3])
    assert list(UnevenPoissonSampler([0.5, 0.5]).repeated(2, [2, 2]).rates) == [0.5, 0.5]


def test_runs_side_by_side_draw_at_their_nodes_rate() -> None:
    assert list(PoissonSampler([0.1, 0.3]).repeated(2, [5] * 4).rates) == [0.1, 0.1, 0.3, 0.3]
    assert list(FixedSizeSampler([2, 5], [10, 20]).repeated(2, [10, 10, 20, 20]).rates) == [
        0.2,
        0.2,
        0.25,
        0.25,
    ]
    assert list(FullSampler(2).repeated(3, [4] * 6).rates) == [1.0] * 6
