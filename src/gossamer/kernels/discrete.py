"""The exact discrete Gaussian, for those who want a proof that covers the computer's arithmetic too.

A float32 sum of a float32 normal keeps a little of its history in its last digits, which a proof about
real numbers does not see. Gradients rounded to a lattice, with noise P[X = x] ∝ exp(−x²/2σ²) on the integers
that was drawn with integers alone, keep none. The method is rejection from a discrete Laplace (Canonne,
Kamath, Steinke 2020). A sample takes tens of microseconds: for small models. It reads the uniform bits of its
range, so give it a purpose of its own.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gossamer.kernels.noise import Stream

WORDS_AT_ONCE = 128


def discrete_normal(
    stream: Stream, purpose: int, node: int, step: int, *, count: int, variance: Fraction | int
) -> NDArray[np.int64]:
    """`count` integers of the discrete Gaussian of parameter σ² = variance, from one range of the stream."""
    square = Fraction(variance)
    if square <= 0:
        raise ValueError(f"the variance of discrete noise must be positive, not {variance}")
    coins = _Coins(stream, purpose, node, step)
    return np.array([_gaussian(coins, square) for _ in range(count)], np.int64)


class _Coins:
    """Exact random choices from one range's uniform bits, read in order."""

    def __init__(self, stream: Stream, purpose: int, node: int, step: int) -> None:
        self.stream, self.range = stream, (purpose, node, step)
        self.read, self.bits, self.left = 0, 0, 0

    def below(self, bound: int) -> int:
        """Uniform on 0 … bound − 1: as many bits as the bound has, again if they are too many."""
        width = (bound - 1).bit_length()
        while True:
            while self.left < width:
                words = self.stream.uniform_bits(*self.range, WORDS_AT_ONCE, offset=self.read)
                self.read += WORDS_AT_ONCE
                self.bits |= int.from_bytes(words.tobytes(), "little") << self.left
                self.left += 64 * WORDS_AT_ONCE
            drawn = self.bits & ((1 << width) - 1)
            self.bits >>= width
            self.left -= width
            if drawn < bound:
                return drawn

    def exponential(self, numerator: int, denominator: int) -> bool:
        """True with probability exp(−numerator/denominator)."""
        whole, rest = divmod(numerator, denominator)
        return all(self._small(1, 1) for _ in range(whole)) and self._small(rest, denominator)

    def _small(self, numerator: int, denominator: int) -> bool:
        """exp(−γ) for γ ≤ 1: the first k with a failure of probability 1 − γ/k is odd."""
        k = 1
        while self.below(denominator * k) < numerator:
            k += 1
        return k % 2 == 1


def _laplace(coins: _Coins, scale: int) -> int:
    """P[X = x] ∝ exp(−|x|/scale)."""
    while True:
        low = coins.below(scale)
        if not coins.exponential(low, scale):
            continue
        high = 0
        while coins.exponential(1, 1):
            high += 1
        size, negative = low + scale * high, coins.below(2) == 1
        if size or not negative:  # zero has one sign only
            return -size if negative else size


def _gaussian(coins: _Coins, square: Fraction) -> int:
    scale = int(square**0.5) + 1  # any integer is right; near σ few are rejected
    while True:
        x = _laplace(coins, scale)
        excess = (abs(x) - square / scale) ** 2 / (2 * square)
        if coins.exponential(excess.numerator, excess.denominator):
            return x
