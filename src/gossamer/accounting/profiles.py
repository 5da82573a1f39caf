"""Exact one-dimensional privacy profiles of additive noise, truncated or not, and what truncation gives away.

All noises of the DP-dKM paper are one family: density ∝ exp(−(|z|/s)^b) on [−A, A]. b = 1 is Laplace, b = 2
Gaussian (s = √2 σ), A = ∞ means not truncated. A truncated noise has outcomes that only one of two
neighbouring data sets can produce; their mass identifies a record outright, whatever ε is.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc, gammainc, gammaincc, gammainccinv, gammaln

from gossamer.errors import UserError

FloatArray = NDArray[Any]


@dataclass(frozen=True)
class Noise:
    """Symmetric generalised-Gaussian noise of scale s, shape b, truncated to [−A, A]."""

    scale: float
    shape: float = 2.0
    bound: float = math.inf

    def __post_init__(self) -> None:
        for name in ("scale", "shape", "bound"):
            if not getattr(self, name) > 0:
                raise UserError(f"noise {name} = {getattr(self, name)} must be positive")

    def log_weight(self, z: FloatArray) -> FloatArray:
        """Logarithm of the density up to its constant; −∞ outside the support."""
        with np.errstate(over="ignore"):
            inside = -((np.abs(z) / self.scale) ** self.shape)
        return np.where(np.abs(z) <= self.bound, inside, -np.inf)

    def between(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """Probability of [low, high], without cancellation in the tails."""
        low = np.clip(low, -self.bound, self.bound)
        high = np.clip(high, -self.bound, self.bound)
        beyond_low, beyond_high = self._beyond(low), self._beyond(high)
        one_sided = np.abs(beyond_low - beyond_high)
        inside = 1 - 2 * self._beyond(np.array(self.bound))
        across = 1 - beyond_high - beyond_low
        return np.asarray(np.where((low >= 0) | (high <= 0), one_sided, across) / inside)

    def _beyond(self, z: FloatArray) -> FloatArray:
        """Mass beyond |z| on one side, before truncation."""
        x = np.abs(z) / self.scale
        if self.shape == 1:
            return np.asarray(np.exp(-x) / 2)
        if self.shape == 2:
            return np.asarray(erfc(x) / 2)
        with np.errstate(over="ignore"):
            return np.asarray(gammaincc(1 / self.shape, x**self.shape) / 2)

    def reach(self, tail: float = 1e-20) -> float:
        """The bound, or where the mass left outside is at most `tail`."""
        edge = float(gammainccinv(1 / self.shape, tail))
        return min(self.bound, self.scale * math.pow(edge, 1 / self.shape))

    @property
    def variance(self) -> float:
        b = self.shape
        full = self.scale**2 * math.exp(gammaln(3 / b) - gammaln(1 / b))
        if math.isinf(self.bound):
            return full
        x = (self.bound / self.scale) ** b
        return full * float(gammainc(3 / b, x) / gammainc(1 / b, x))

    def identifying(self, shift: float, releases: int = 1) -> float:
        """Probability that one of `releases` independent releases shows outright where it came from."""
        if math.isinf(self.bound):
            return 0.0
        once = float(self.between(np.array(self.bound - shift), np.array(self.bound)))
        return 1.0 if once >= 1 else -math.expm1(releases * math.log1p(-once))

    def delta(self, shift: float, epsilon: float) -> float:
        """The exact profile δ(ε) = ∫ (f(x − Δ) − e^ε f(x))₊ dx.

        Between 0, Δ and the ends of the two supports the likelihood ratio is monotone in x, so each piece
        holds at most one crossing, found by bisection; the rest is differences of the distribution function.
        """
        reach = self.reach()
        ends = [-reach, reach, shift - reach, shift + reach]
        edges = np.unique(np.clip([*ends, 0.0, shift], shift - reach, shift + reach))

        def gain(x: float) -> float:
            at = np.array([x - shift, x])
            moved, still = self.log_weight(at)
            return math.inf if still == -np.inf else float(moved - still - epsilon)

        total = 0.0
        for begin, end in itertools.pairwise(edges):
            inset = (end - begin) * 1e-12
            gaining = gain(begin + inset) > 0, gain(end - inset) > 0
            low, high = begin, end
            if gaining == (False, True):
                low = _crossing(gain, begin, end)
            elif gaining == (True, False):
                high = _crossing(gain, end, begin)
            elif gaining == (False, False):
                continue
            interval = np.array([low, low - shift]), np.array([high, high - shift])
            still, moved = self.between(*interval)
            # where the unmoved noise cannot be, e^ε may be beyond floating point and must not matter
            total += float(moved - (math.exp(min(epsilon, 700.0)) * still if still > 0 else 0.0))
        return min(max(total, 0.0), 1.0)

    def epsilon(self, shift: float, delta: float) -> float:
        """Smallest ε ≥ 0 with δ(ε) ≤ δ; ∞ if the identifying mass alone is larger."""
        delta *= 1 + 1e-9  # a noise that ends where exactly δ identifies must not fail by rounding
        if self.delta(shift, 0.0) <= delta:
            return 0.0
        if self.identifying(shift) > delta:
            return math.inf
        low, high = 0.0, 1.0
        while self.delta(shift, high) > delta:
            low, high = high, 2 * high
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.delta(shift, middle) > delta else (low, middle)
        return high


def _crossing(gain: Callable[[float], float], losing: float, gaining: float) -> float:
    """Where a monotone function changes sign, by bisection."""
    for _ in range(100):
        middle = (losing + gaining) / 2
        losing, gaining = (middle, gaining) if gain(middle) <= 0 else (losing, middle)
    return gaining


def gaussian(sigma: float, bound: float = math.inf) -> Noise:
    """Gaussian of standard deviation σ before truncation."""
    return Noise(sigma * math.sqrt(2), 2.0, bound)


def laplace(scale: float, bound: float = math.inf) -> Noise:
    """Laplace density exp(−|z|/b)."""
    return Noise(scale, 1.0, bound)


def composed_delta(noise: Noise, shifts: Sequence[float], epsilon: float, step: float = 1e-3) -> float:
    """Upper bound on δ(ε) of independent releases, one per shift: K steps, or the coordinates of a vector."""
    from gossamer.accounting.composer import Composition
    from gossamer.accounting.pairs import NoisePair

    pairs: dict[float, int] = {}
    for shift in shifts:
        if shift != 0:
            pairs[abs(shift)] = pairs.get(abs(shift), 0) + 1
    composition = Composition([(NoisePair(noise, shift), count) for shift, count in pairs.items()])
    return composition.delta(epsilon, step)
