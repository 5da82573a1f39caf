"""One release of all records: what a person moves, how much noise there is, what is written, and when."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.support.mechanism import Book

from gossamer.accounting.profiles import gdp_epsilon, gdp_mu
from gossamer.accounting.releases import Event, OneSided, Release, Unnoised
from gossamer.kernels.noise import RATIO, Stream
from gossamer.mechanism.reader import Records
from gossamer.mechanism.summaries import (
    SHRINK,
    Columns,
    Histogram,
    Labels,
    Moments,
    SecondMoment,
    Summary,
    dyadic_edges,
    noised,
    private_totals,
    release_of,
    unit_weights,
)

WIDTH, CLASSES = 4, 3
COLUMNS = Columns(tuple(range(WIDTH)), -2.0, 3.0)
ALL: tuple[Summary, ...] = (
    Labels(CLASSES), Moments(COLUMNS), Histogram(COLUMNS, dyadic_edges(8, 4)), SecondMoment(WIDTH),
)  # fmt: skip
STRANGE = [0.0, -2.0, 3.0, 1e-30, 3e38, -3e38, math.inf, -math.inf, math.nan]


def persons(seed: int, counts: list[int], strange: float) -> Records:
    """Records of persons with so many each, some values of which no column should have."""
    draw = np.random.default_rng(seed)
    x = draw.uniform(-3, 4, (sum(counts), WIDTH)).astype(np.float32)
    odd = draw.random(x.shape) < strange
    x[odd] = draw.choice(STRANGE, int(odd.sum()))
    y = torch.from_numpy(draw.integers(0, CLASSES, len(x)))
    return Records(torch.from_numpy(x), y, [len(x)], persons=[np.array(counts)])


def total(summary: Summary, records: Records) -> torch.Tensor:
    return summary.total(*records.of(0), unit_weights(records, 0))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from([1, 2, 7, 40]), max_size=3),
    st.sampled_from([1, 2, 3, 10, 100, 1000]),
    st.sampled_from([1, 5, 1000]),
    st.sampled_from([0.0, 0.1, 1.0]),
)
@pytest.mark.parametrize("summary", ALL, ids=lambda s: type(s).__name__)
def test_a_person_of_1_to_1000_records_moves_it_by_no_more_than_is_priced(
    summary: Summary, seed: int, others: list[int], one: int, other: int, strange: float
) -> None:
    with_one, with_other, rest = persons(seed, [one], strange), persons(seed + 1, [other], strange), None
    if others:
        rest = persons(seed + 2, others, strange)
    without = 0.0 if rest is None else total(summary, rest)
    first, second = total(summary, with_one), total(summary, with_other)
    release = summary.released_as(sigma=1.0, sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove")
    assert torch.isfinite(first).all()
    assert float(first.norm()) <= release.shift("add-remove")
    assert float((first - second).norm()) <= release.shift("replace-one")
    if rest is not None:  # and it is a sum: others do not change what one moves
        x, y = (torch.cat([a, b]) for a, b in zip(rest.of(0), with_one.of(0), strict=True))
        both = total(summary, Records(x, y, [len(x)], persons=[np.array([*others, one])]))
        assert torch.allclose(both - without, first, atol=1e-9)


def test_a_person_of_one_record_counts_as_a_record() -> None:
    some = persons(0, [1] * 30, 0.2)
    alone = Records(some.x, some.y, [30])
    for summary in ALL:
        assert torch.equal(total(summary, some), total(summary, alone))


def test_the_bounds_are_met() -> None:
    """Noise for less would be too little."""
    upper = Records(torch.full((1, WIDTH), 3.0), torch.zeros(1, dtype=torch.int64), [1])
    for summary in ALL:
        assert float(total(summary, upper).norm()) == pytest.approx(1.0, rel=1e-5)
    lower = Records(torch.full((1, WIDTH), -2.0), torch.ones(1, dtype=torch.int64), [1])
    for summary in (Labels(CLASSES), Histogram(COLUMNS, dyadic_edges(8, 4))):
        apart = float((total(summary, upper) - total(summary, lower)).norm())
        assert apart == pytest.approx(math.sqrt(2), rel=1e-5)


def released(
    multiplier: float, summary: Summary | None = None, book: Any = None, records: Records | None = None
) -> np.ndarray:
    summary = summary or Histogram(Columns(tuple(range(40))), dyadic_edges(20, 32))
    records = records or Records(torch.full((3, 40), math.nan), torch.zeros(3), [1, 2])
    event = Event(-2, release_of(summary.released_as, multiplier, "add-remove"))
    found = private_totals(summary, records, [4, 7], events=[event] * 2, stream=Stream.seeded(3), book=book or Book())
    return found.double().numpy()


@pytest.mark.parametrize(("wrong", "accepted"), [(1.0, True), (2 / 3, False), (3 / 2, False)])
def test_the_noise_is_what_the_ledger_says(wrong: float, accepted: bool) -> None:
    book = Book()
    found = released(5.0, book=book)
    written = book.events[0][1].release
    assert isinstance(written, OneSided)
    for row in found:  # of records whose values are no numbers: noise alone
        z = row / (written.sigma * wrong)
        pvalue = stats.chi2.cdf((z**2).sum(), z.size)
        assert (1e-6 < pvalue < 1 - 1e-6) == accepted
    assert abs(np.corrcoef(found)[0, 1]) < 0.06  # nodes have their own
    later = private_totals(
        Histogram(Columns(tuple(range(40))), dyadic_edges(20, 32)),
        Records(torch.full((3, 40), math.nan), torch.zeros(3), [1, 2]),
        [4, 7],
        events=[Event(-1, written)] * 2,
        stream=Stream.seeded(3),
        book=Book(),
    )
    assert abs(np.corrcoef(found[0], later[0].numpy())[0, 1]) < 0.06  # and so have steps


def test_every_node_writes_one_event_of_all_its_records() -> None:
    book, silent = Book(), Book()
    released(5.0, book=book)
    assert [(node, event.draw) for node, event in book.events] == [(4, -2), (7, -2)]
    release: Release = book.events[0][1].release
    assert (release.sensitivity, release.sampling, release.rate) == (1.0, "full", 1.0)
    released(0.0, book=silent)
    assert isinstance(silent.events[0][1].release, Unnoised)  # no proof, and it says so


def test_the_event_is_on_file_before_the_records_are_read() -> None:
    class Stopped(Book):
        def write(self, releases: object) -> None:
            raise OSError("no space left")

    class Unread(Records):
        def of(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
            raise AssertionError("read")

    with pytest.raises(OSError, match="no space"):
        released(1.0, Labels(2), Stopped(), Unread(torch.ones(2, 1), torch.zeros(2), [1, 1]))


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_an_attacker_who_knows_all_other_records_gets_what_is_priced_and_no_more(relation: str) -> None:
    """A canary person of 100 records: the likelihood ratio of the released counts, over many releases."""
    tries, epsilon, delta = 1000, 5.0, 1e-3
    summary = Labels(2)
    unit = OneSided(sigma=1.0, sensitivity=1.0, sampling="full", rate=1.0, adjacency=relation)
    mu = gdp_mu(epsilon, delta)
    event = Event(-1, release_of(OneSided, unit.shift(relation) / mu, relation))

    def scores(label: int | None) -> np.ndarray:
        """`tries` releases: as many nodes, alike."""
        own = [5] if label is None else [5, 100]
        y = torch.cat([torch.tensor([0, 0, 1, 1, 1]), torch.full((sum(own[1:]),), label or 0)])
        records = Records(
            torch.zeros(len(y) * tries, 1),
            y.repeat(tries),
            [len(y)] * tries,
            persons=[np.array(own)] * tries,
        )
        stream = Stream.seeded(11 + (label or 0) + (label is not None))
        found = private_totals(summary, records, range(tries), events=[event] * tries, stream=stream, book=Book())
        towards = torch.tensor([1.0, -1.0 if relation == "replace-one" else 0.0])
        return (found @ towards).numpy()

    inside, outside = scores(0), scores(1 if relation == "replace-one" else None)
    audited = 0.0
    for threshold in np.quantile(inside, np.linspace(0.1, 0.9, 9)):
        missed, false = int((inside < threshold).sum()), int((outside >= threshold).sum())
        rates = [stats.beta.ppf(0.9995, wrong + 1, tries - wrong) for wrong in (missed, false)]
        audited = max(audited, -sum(stats.norm.ppf(rates)))
    assert gdp_epsilon(audited, delta) <= epsilon
    assert audited > 0.7 * mu  # it is a real attack


def noisy(counts: list[int], multiplier: float, seed: int) -> torch.Tensor:
    exact = SHRINK * torch.tensor(counts, dtype=torch.float64)
    return noised(exact, Stream.seeded(seed), 6, 0, 0, multiplier)


def test_the_last_digits_tell_no_count() -> None:
    """Sums of (1 − 2⁻³⁰) in doubles would say themselves modulo 256 below the digits of float32 noise."""
    counts = list(range(256))
    found = noisy(counts, 8.0, 1)
    read = torch.round(-found * 2**30).long() % 256
    # By chance 1 in 256 is right: more than 8 of 256 are once in 10⁵ times.
    assert int((read == torch.tensor(counts)).sum()) <= 8
    assert int(((read % 16) == torch.tensor(counts) % 16).sum()) <= 40  # 16 by chance; once in 10⁶ times


def test_sums_near_nothing_show_no_count_either() -> None:
    """Of float32 results near 0 the grid is finest: one event, of a probability that the count would decide."""
    seen = []
    for count in (1, 2):
        found = noisy([count] * 400_000, 5.0, count).float().double()
        seen.append(int(((found.abs() < 2**-6) & (torch.round(found * 2**30).long() % 64 == 63)).sum()))
    assert max(seen) <= 40  # 16 expected of one in 64; without a grid 1,000 and 0


@pytest.mark.parametrize("multiplier", [0.03, 1.0, 7.3, 900.0])
def test_what_leaves_is_whole_multiples_of_a_public_step(multiplier: float) -> None:
    size = 20_000
    released = noised(torch.zeros(size, dtype=torch.float64), Stream.seeded(3), 6, 0, 0, multiplier)
    steps = released / (multiplier / RATIO)
    assert (steps - steps.round()).abs().max() < 1e-9
    assert released.std().item() == pytest.approx(multiplier, rel=0.02)  # 4 deviations
