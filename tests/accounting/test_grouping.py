"""Groups of pairs bound what they stand for, from above and from below."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.accounting.composer import Composition
from gossamer.accounting.pairs import GaussianPair, Grouping, NoisePair
from gossamer.accounting.profiles import laplace


@settings(deadline=None, max_examples=6)
@given(st.lists(st.floats(0.1, 3.0), min_size=2, max_size=20), st.sampled_from(["one-sided", "symmetrised"]))
def test_grouping_only_loosens(mus, kind):
    pairs = [(GaussianPair(mu, 0.02, kind), 3) for mu in mus]
    exact = Composition(Grouping(pairs, 10**9).pessimistic()).bounds(1e-5)
    for groups in (1, 4):
        grouping = Grouping(pairs, groups)
        assert sum(count for _, count in grouping.pessimistic()) == 3 * len(mus)
        assert Composition(grouping.pessimistic()).bounds(1e-5, 0.05).upper >= exact.lower
        assert Composition(grouping.optimistic()).bounds(1e-5, 0.05).lower <= exact.upper
    assert Composition(pairs).bounds(1e-5, 0.02).upper >= exact.lower


def exact_pairs():
    return [(GaussianPair(0.1 * k, 0.02), k) for k in range(1, 31)]


def test_no_more_groups_than_asked_for_and_each_stands_at_its_ends():
    grouping = Grouping(exact_pairs(), 5)
    above, below = grouping.pessimistic(), grouping.optimistic()
    assert len(above) == len(below) <= 5
    assert sum(count for _, count in above) == sum(range(1, 31))
    assert max(pair.mu for pair, _ in above) == pytest.approx(3.0)
    assert min(pair.mu for pair, _ in below) == pytest.approx(0.1)
    ends = [(low.mu, high.mu) for (low, _), (high, _) in zip(below, above, strict=True)]
    assert all(low <= high for low, high in ends)
    assert all(high < low for (_, high), (low, _) in itertools.pairwise(ends))  # they do not overlap


def test_an_anchor_never_has_more_noise_than_what_it_stands_for():
    grouping = Grouping(exact_pairs(), 5)
    anchors = grouping.anchors()
    assert set(anchors) == {pair for pair, _ in exact_pairs()}
    assert all(stand_in.mu >= pair.mu for pair, stand_in in anchors.items())
    assert set(anchors.values()) == {pair for pair, _ in grouping.pessimistic()}


def test_finer_leaves_the_original_and_ends_with_every_pair_alone():
    grouping = Grouping(exact_pairs(), 3)
    grouping.choose(lambda pair: pair.mu, 500.0)
    before = grouping.pessimistic()
    sizes = [len(grouping.finer(times).pessimistic()) for times in (1, 2, 8, 1e6)]
    assert sizes == sorted(sizes)
    assert sizes[0] == len(before) < sizes[-1] == 30
    assert grouping.pessimistic() == before
    assert sorted(grouping.finer(1e6).pessimistic(), key=str) == sorted(exact_pairs(), key=str)


def test_equal_pairs_are_counted_together_and_other_families_kept_apart():
    other = NoisePair(laplace(2.0), 1.0, 0.1)
    pairs = [
        (GaussianPair(1.0, 0.1), 2),
        (other, 1),
        (GaussianPair(1.0, 0.1), 3),
        (GaussianPair(1.0, 0.2), 1),
        (other, 4),
    ]
    assert Grouping(pairs, 1).pessimistic() == [
        (other, 5),
        (GaussianPair(1.0, 0.1), 5),
        (GaussianPair(1.0, 0.2), 1),
    ]


def test_groups_are_narrow_where_a_step_costs_more():
    """A cost that rises only at the upper end: there the groups must be cut, and hardly below."""
    grouping = Grouping(exact_pairs(), 1)
    grouping.choose(lambda pair: max(0.0, pair.mu - 2.0), 40.0)
    cuts = [pair.mu for pair, _ in grouping.pessimistic()]
    assert len(cuts) < 30
    assert sum(mu > 2.0 for mu in cuts) > sum(mu <= 2.0 for mu in cuts)
