from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from gossamer.kernels.noise import Stream, _Coins, discrete_normal

STREAM = Stream.seeded(3)


def counts_against(draws: np.ndarray, square: float) -> float:
    """The p-value of a chi-square test against exp(−x²/2σ²), the tails pooled."""
    reach = int(4 * square**0.5) + 1
    x = np.arange(-50 * reach, 50 * reach + 1)
    mass = np.exp(-(x**2) / (2 * square))
    mass /= mass.sum()
    inside = np.abs(x) <= reach
    wanted = np.append(mass[inside], mass[~inside].sum()) * len(draws)
    found = np.append([(draws == k).sum() for k in x[inside]], (np.abs(draws) > reach).sum())
    keep = wanted > 5
    wanted, found = np.append(wanted[keep], wanted[~keep].sum()), np.append(found[keep], found[~keep].sum())
    return float(stats.chisquare(found, wanted * found.sum() / wanted.sum()).pvalue)


@pytest.mark.parametrize("square", [Fraction(1, 3), Fraction(2), Fraction(41, 4)])
def test_the_distribution(square: Fraction) -> None:
    draws = discrete_normal(STREAM, 0, 0, 0, count=6000, variance=square)
    assert draws.dtype == np.int64
    assert counts_against(draws, float(square)) > 0.001
    for wrong in (square * 4 / 9, square * 9 / 4):
        assert counts_against(draws, float(wrong)) < 1e-6


def test_large_scales_have_the_right_spread() -> None:
    sigma = 1 << 30
    draws = discrete_normal(STREAM, 0, 0, 1, count=1500, variance=sigma**2) / sigma
    assert stats.kstest(draws, "norm").pvalue > 0.01


def test_coins_are_fair_and_exact_at_the_ends() -> None:
    coins = _Coins(STREAM, 1, 2, 3)
    assert {coins.below(1) for _ in range(5)} == {0}
    assert all(coins.exponential(0, 7) for _ in range(50))
    thirds = np.bincount([coins.below(3) for _ in range(6000)])
    assert stats.chisquare(thirds).pvalue > 0.001
    for top, bottom in ((1, 2), (1, 1), (5, 2)):
        heads = sum(coins.exponential(top, bottom) for _ in range(6000))
        assert stats.binomtest(heads, 6000, float(np.exp(-top / bottom))).pvalue > 0.001


def test_the_same_range_gives_the_same_integers() -> None:
    a, b, c = (discrete_normal(STREAM, 0, node, 0, count=50, variance=9) for node in (1, 1, 2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    with pytest.raises(ValueError, match="positive"):
        discrete_normal(STREAM, 0, 0, 0, count=1, variance=0)
