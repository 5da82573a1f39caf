"""Which releases of disjoint lots count, and as what: a ledger that does not fit is never priced lower for it."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.balls import one_pass
from tests.support.releases import gaussian

from gossamer.accounting.passes import DISTINCT, LARGEST_SHIFT, BallsAndBinsPair, hidden_lots, lots_of, sort
from gossamer.accounting.releases import Laplace, collate


def sorted_lots(releases, **options):
    return sort(collate(releases), amplified=True, **options)


def test_each_pass_is_one_pair_and_a_begun_one_counts_what_it_released():
    found = sorted_lots(one_pass(5, 2.0) + one_pass(5, 2.0, number=1) + one_pass(5, 4.0, number=2, released=3))
    whole, again, begun = found.hidden
    assert whole == again
    for pair, mu, count in ((whole, 0.5, 5), (begun, 0.25, 3)):
        assert pair == BallsAndBinsPair(((pair.shifts[0][0], count),), 5)
        assert mu < pair.shifts[0][0] < mu * (1 + 1e-10)
    assert not found.alone
    assert not found.disjoint
    assert not found.rounded


def test_without_amplification_a_pass_is_its_lots():
    lots = one_pass(5)
    found = sort(collate(lots), amplified=False)
    assert found.disjoint == [lots]
    assert not found.hidden


@pytest.mark.parametrize(
    "spoil",
    [
        lambda lots: [*lots, lots[2]],
        lambda lots: [*lots[:-1], replace(lots[-1], lot_number=0)],
        lambda lots: [*lots[:-1], replace(lots[-1], lot_number=0, sigma=3.0)],
        lambda lots: [*lots[:-1], replace(lots[-1], lot_number=None)],
        lambda lots: [*lots[:-1], replace(lots[-1], lot_number=len(lots))],
        lambda lots: [*lots[:-1], replace(lots[-1], lot_number=-1)],
        lambda lots: [replace(lot, pass_number=None) for lot in lots],
        lambda lots: [*lots[:-1], replace(lots[-1], rate=1 / 100)],
        lambda lots: [replace(lot, rate=0.19) for lot in lots],
    ],
    ids=["twice", "same lot", "same lot, other noise", "no lot", "a lot too many", "negative", "no pass",
         "two numbers of lots", "a rate that is no share"],
)  # fmt: skip
def test_what_is_no_pass_counts_whole_and_without_secrets(spoil):
    """Not even parallel composition: that a record was in one lot only is what the numbers would have said."""
    lots = spoil(one_pass(5))
    for amplified in (True, False):
        found = sort(collate(lots), amplified=amplified)
        assert sum(count for _, count in found.alone) == len(lots)
        assert not found.hidden
        assert not found.disjoint


def test_only_gaussian_noise_of_some_size_hides():
    other = Laplace(
        sigma=2.0, sensitivity=1.0, sampling="balls-and-bins", rate=0.2, adjacency="add-remove",
        pass_number=0, lot_number=4,
    )  # fmt: skip
    for odd in (other, replace(one_pass(5)[-1], sigma=0.9 / LARGEST_SHIFT)):
        found = sorted_lots([*one_pass(5, released=4), odd])
        assert len(found.disjoint[0]) == 5
        assert not found.hidden
        assert not hidden_lots([odd])
    assert not hidden_lots(one_pass(1))  # the only lot is no secret
    assert hidden_lots(one_pass(2))


def test_other_lots_stay_as_they_were():
    lot, batch = gaussian(3.0, sampling="one-pass", rate=0.2), gaussian(1.0)
    found = sorted_lots([lot, batch, batch, *one_pass(4)])
    assert found.alone == [(batch, 2)]
    assert found.disjoint == [[lot]]
    assert len(found.hidden) == 1


@given(ratio=st.floats(1.1, 1e6), lots=st.integers(DISTINCT + 2, 120), tolerance=st.sampled_from([0.01, 0.25]))
def test_many_different_noises_are_rounded_to_less_noise(ratio, lots, tolerance):
    releases = one_pass(lots, lambda k: ratio ** (k / lots))
    found = sorted_lots(releases, tolerance=tolerance)
    assert found.rounded
    (pair,) = found.hidden
    standing = sorted(mu for mu, count in pair.shifts for _ in range(count))
    true = sorted(1 / release.sigma for release in releases)
    assert all(a >= b for a, b in zip(standing, true, strict=True))
    assert standing[-1] <= true[-1] * (1 + 1e-10)
    step = max(1.02 if tolerance < 0.05 else 1.1, ratio ** (1 / 200))
    assert all(a <= b * step * (1 + 1e-9) for a, b in zip(standing, true, strict=True))
    assert len(pair.shifts) <= math.log(ratio) / math.log(step) + 2  # few: that is what it is for


@given(lots=st.integers(1, 10**6))
def test_lots_are_read_off_the_rate(lots):
    assert lots_of(replace(one_pass(2)[0], rate=1 / lots)) == lots


def test_a_rate_between_has_no_number_of_lots():
    assert lots_of(replace(one_pass(2)[0], rate=0.3)) is None
    assert lots_of(replace(one_pass(2)[0], rate=math.nextafter(0.25, 1))) == 4


@given(multiplier=st.floats(0.2, 50), clips=st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=12))
def test_the_same_multiplier_on_other_sensitivities_is_the_same_noise(multiplier, clips):
    """σ = zC rounds differently for every C; that must not make each lot a noise of its own, nor less of it."""
    lots = [
        replace(lot, sensitivity=clip, sigma=multiplier * clip)
        for lot, clip in zip(one_pass(len(clips)), clips, strict=True)
    ]
    (pair,) = sorted_lots(lots).hidden
    assert len(pair.shifts) <= 2
    assert min(mu for mu, _ in pair.shifts) >= 1 / multiplier
