"""Curves and histograms of scores, against counts."""

from __future__ import annotations

import numpy as np
import pytest

from gossamer.auditing import bounds
from gossamer.auditing.bounds import Coins


def coins(count: int = 4000, shift: float = 1.0) -> Coins:
    rng = np.random.default_rng(0)
    heads = rng.random(count) < 0.5
    return Coins(rng.normal(size=count) + shift * heads, heads, np.zeros(count, dtype=np.int64))


def test_the_curve_rises_from_nothing_to_all_and_has_the_right_area() -> None:
    from scipy.stats import norm

    points = np.array(bounds.roc(coins()))
    assert points[0].tolist() == [0.0, 0.0]
    assert points[-1].tolist() == [1.0, 1.0]
    assert (np.diff(points, axis=0) >= 0).all()
    area = np.trapezoid(points[:, 1], points[:, 0])
    assert area == pytest.approx(norm.cdf(1 / np.sqrt(2)), abs=0.03)
    some = coins()
    for false, true in points[1:-1:40]:  # every point is a threshold's
        cuts = some.scores[np.isclose([(some.sides[1] >= cut).mean() for cut in some.scores], false)]
        assert any(np.isclose((some.sides[0] >= cut).mean(), true) for cut in cuts)


def test_without_one_side_there_is_no_curve() -> None:
    alone = Coins(np.ones(3), np.ones(3, dtype=bool), np.zeros(3, dtype=np.int64))
    assert bounds.roc(alone) == []
    assert bounds.auc(alone) is None


def test_the_area_counts_pairs_and_ties_half() -> None:
    some = Coins(np.array([3.0, 1.0, 2.0, 2.0]), np.array([True, True, False, True]), np.zeros(4, dtype=np.int64))
    heads, tails = some.sides
    pairs = np.subtract.outer(heads, tails)
    assert bounds.auc(some) == ((pairs > 0) + (pairs == 0) / 2).mean() == 0.5
    apart = coins(shift=50.0)
    assert bounds.auc(apart) == 1.0


def test_shares_add_up_and_lie_where_the_scores_do() -> None:
    found = bounds.histogram(coins(shift=3.0))
    for side in ("in", "out"):
        assert sum(found[side]) == pytest.approx(1.0)
        assert len(found[side]) == len(found["edges"]) - 1
    middles = (np.array(found["edges"][1:]) + found["edges"][:-1]) / 2
    assert middles @ found["in"] - middles @ found["out"] == pytest.approx(3.0, abs=0.1)
    equal = Coins(np.full(4, 2.0), np.array([True, False] * 2), np.zeros(4, dtype=np.int64))
    flat = bounds.histogram(equal)
    assert flat["edges"][-1] > flat["edges"][0]  # an axis of no width could not be drawn
    assert sum(flat["in"]) == 1.0
