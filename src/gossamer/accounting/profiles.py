"""Privacy in closed form: additive noise, profiles δ(ε), and the trade-off curve that guarantees leave an attacker.

All noises of the DP-dKM paper are one family: density ∝ exp(−(|z|/s)^b) on [−A, A]. b = 1 is Laplace, b = 2
Gaussian (s = √2 σ), A = ∞ means not truncated. A truncated noise has outcomes that only one of two
neighbouring data sets can produce; their mass identifies a record outright, whatever ε is. The profile of one Gaussian
release and its inverses are those of Gaussian differential privacy (Dong, Roth, Su 2022).

`TradeOff` takes many proven guarantees (ε, δ(ε)) of the same releases together: the curve they leave an attacker.
An attacker says "in" where an event happens. Let h be how often it does on one side (hits) and a on the other (false
alarms). Each (ε, δ), with ε ≥ 0, of a guarantee that holds both ways round asks, of the event and of its complement,

    h ≤ e^ε a + δ        1 − a ≤ e^ε (1 − h) + δ,  that is  h ≤ 1 − e^{−ε} (1 − δ − a)

so all of them together allow at most T(a), the least of these straight lines, and ask for at least T⁻¹(h), the
largest of the same lines solved for a. With f the trade-off function of f-DP, T(a) = 1 − f(a) and T⁻¹(h) = f(1 − h).

A finite list of ε is on the safe side: every line is a proven guarantee by itself, and one that is left out, or a δ
that is larger than it need be, only allows more. T is concave and T⁻¹ convex, as a least and a largest of lines.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfc, gammaincc, gammainccinv, gammaln, log_ndtr

from gossamer.errors import UserError

FloatArray = NDArray[Any]


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise UserError(f"delta = {delta} must lie strictly between 0 and 1")


def check_epsilon(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise UserError(f"epsilon = {epsilon} must be a positive number")


MOST_STEPS = 100
SMALLEST_SHARE = 2.0**-50  # of the root: no closer than a double can say


def root(f: Callable[[float], float], low: float, high: float, *, xtol: float, rtol: float = SMALLEST_SHARE) -> float:
    """An x within xtol + rtol·|x| of a root of f. f(low) and f(high) must differ in sign.

    scipy has one too, but importing `scipy.optimize` takes a tenth of the time of importing torch, and every command
    that plans needs a root.
    """
    last, x = low, high
    f_last, f_x = f(last), f(x)
    if f_last == 0:
        return last
    if f_x != 0 and (f_last < 0) == (f_x < 0):
        raise ValueError(f"f has the same sign at {low} and at {high}")
    other, f_other, step, step_before = last, f_last, 0.0, 0.0  # the root lies between x and `other`
    for _ in range(MOST_STEPS):
        if f_last != 0 and f_x != 0 and (f_last < 0) != (f_x < 0):
            other, f_other = last, f_last
            step = step_before = x - last
        if abs(f_other) < abs(f_x):  # x is the better of the two ends
            last, x, other = x, other, x
            f_last, f_x, f_other = f_x, f_other, f_x
        near, half = (xtol + rtol * abs(x)) / 2, (other - x) / 2
        if f_x == 0 or abs(half) < near:
            return x
        tried = _interpolated(x, f_x, last, f_last, other, f_other) if abs(f_x) < abs(f_last) else None
        if (
            tried is not None
            and abs(step_before) > near
            and 2 * abs(tried) < min(abs(step_before), 3 * abs(half) - near)
        ):
            step_before, step = step, tried
        else:
            step_before = step = half
        last, f_last = x, f_x
        x += step if abs(step) > near else near if half > 0 else -near
        f_x = f(x)
    return x


def _interpolated(x: float, f_x: float, last: float, f_last: float, other: float, f_other: float) -> float | None:
    """The step to where a line through two points, or an inverse parabola through three, is zero."""
    if last == other:
        return -f_x * (x - last) / (f_x - f_last)
    slope, slope_other = (f_last - f_x) / (last - x), (f_other - f_x) / (other - x)
    down = slope_other * slope * (f_other - f_last)
    return -f_x * (f_other * slope_other - f_last * slope) / down if down else None


LARGEST_MU = 1e6  # beyond it an upper bound within a hundred-thousandth is as good


def gdp_delta(mu: float, epsilon: float) -> float:
    """δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2): the exact profile of one Gaussian release."""
    if mu == 0:
        return max(0.0, -math.expm1(epsilon))
    if math.isinf(mu):
        return 1.0
    upper = float(log_ndtr(-epsilon / mu + mu / 2))
    lower = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return -math.exp(upper) * math.expm1(min(lower - upper, 0.0))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Smallest ε ≥ 0 with δ(ε) ≤ δ."""
    check_delta(delta)
    if math.isinf(mu):
        return math.inf
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    top = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9
    if mu > LARGEST_MU:  # the square alone decides, and the profile would be a difference of huge numbers
        return top
    return root(lambda e: gdp_delta(mu, e) - delta, 0.0, top, xtol=1e-12, rtol=1e-13)


def gdp_mu(epsilon: float, delta: float) -> float:
    """The μ whose profile passes through (ε, δ)."""
    check_delta(delta)
    check_epsilon(epsilon)
    top = 1.0
    while gdp_delta(top, epsilon) < delta:
        top *= 2
    return root(lambda mu: gdp_delta(mu, epsilon) - delta, 1e-12, top, xtol=1e-14, rtol=1e-13)


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
        inside = 1 - self.cut_off
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
    def cut_off(self) -> float:
        """The mass that truncation took, from both sides."""
        return 2 * float(self._beyond(np.array(self.bound)))

    def untruncated(self, z: float) -> float:
        """The density before truncation."""
        b = self.shape
        return b * math.exp(-((abs(z) / self.scale) ** b) - float(gammaln(1 / b))) / (2 * self.scale)

    def identifying(self, shift: float, releases: int = 1) -> float:
        """Probability that one of `releases` independent releases shows outright where it came from."""
        if math.isinf(self.bound):
            return 0.0
        once = float(self.between(np.array(self.bound - shift), np.array(self.bound)))
        return 1.0 if once >= 1 else -math.expm1(releases * math.log1p(-once))


def gaussian(sigma: float, bound: float = math.inf) -> Noise:
    """Gaussian of standard deviation σ before truncation."""
    return Noise(sigma * math.sqrt(2), 2.0, bound)


def laplace(scale: float, bound: float = math.inf) -> Noise:
    """Laplace density exp(−|z|/b)."""
    return Noise(scale, 1.0, bound)


def concentrated_epsilon(rho: float, delta: float) -> float:
    """ε(δ) of ρ-zCDP: the least over orders α of ρα + (log(1/δ) − log α) / (α − 1) + log(1 − 1/α).

    Canonne, Kamath, Steinke 2020, Proposition 12; any order gives a bound, so a coarse search is safe.
    """
    orders = 1 + np.geomspace(1e-3, 1e5, 4000)
    return max(0.0, float(np.min(rho * orders - np.log(delta * orders) / (orders - 1) + np.log1p(-1 / orders))))


def concentrated_delta(rho: float, epsilon: float) -> float:
    """δ(ε) of ρ-zCDP, by the same proposition: the least over orders α of e^{(α−1)(αρ−ε)} (1 − 1/α)^α / (α − 1)."""
    orders = 1 + np.geomspace(1e-3, 1e5, 4000)
    logs = (orders - 1) * (orders * rho - epsilon) + orders * np.log1p(-1 / orders) - np.log(orders - 1)
    return float(np.exp(min(0.0, float(np.min(logs)))))


_ROUNDING = 1e-9  # δ is taken larger by this share of itself, against rounding where it was computed
_LARGEST_EPSILON = 500.0  # beyond it e^ε says nothing that an attacker could see
_FLOAT = 700.0  # beyond it e^ε is no number


@dataclass(frozen=True)
class TradeOff:
    """`points` are (ε, δ), each a guarantee that holds both ways round."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a trade-off curve needs a guarantee")
        if any(not (epsilon >= 0 and delta >= 0) for epsilon, delta in self.points):
            raise ValueError("a guarantee has ε ≥ 0 and δ ≥ 0")

    @classmethod
    def of(cls, epsilons: Iterable[float], deltas: Iterable[float]) -> "TradeOff | None":
        """Of the guarantees that say anything; None if there is none."""
        pairs = [(float(e), float(d) * (1 + _ROUNDING)) for e, d in zip(epsilons, deltas, strict=True)]
        meaningful = tuple((e, d) for e, d in pairs if e <= _LARGEST_EPSILON and d < 1)
        return cls(meaningful) if meaningful else None

    def most_hits(self, false_alarms: "float | FloatArray") -> FloatArray:
        """T: the largest true positive rate at this false positive rate."""
        a = np.asarray(false_alarms, dtype=float)[..., None]
        grow, delta = self._table
        lines = np.minimum(grow * a + delta, 1 - (1 - delta - a) / grow)
        return np.asarray(np.clip(lines.min(axis=-1), 0.0, 1.0))

    def least_false_alarms(self, hits: float) -> float:
        """T⁻¹: the smallest false positive rate at this true positive rate."""
        grow, delta = self._table
        # Lines through their values at hits = 1: near 1 the steep ones count, and nothing cancels.
        missed = 1 - hits
        lines = np.maximum((1 - delta) / grow - missed / grow, 1 - delta - grow * missed)
        return max(0.0, float(lines.max()))

    def tightest(self, false_alarms: float) -> tuple[float, float, float]:
        """(ε, δ) of the guarantee that allows fewest hits at this false positive rate, and its slope e^{±ε} there."""
        least = (math.inf, 0.0, 0.0, 0.0)
        for epsilon, delta in self.points:
            grow = math.exp(min(epsilon, _FLOAT))
            least = min(least, (grow * false_alarms + delta, epsilon, delta, grow))
            least = min(least, (1 - (1 - delta - false_alarms) / grow, epsilon, delta, 1 / grow))
        return least[1:]

    @cached_property
    def _table(self) -> tuple[FloatArray, FloatArray]:
        """e^ε and δ."""
        epsilon, delta = np.array(self.points).T
        return np.exp(np.minimum(epsilon, _FLOAT)), delta
