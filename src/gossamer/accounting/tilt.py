"""Moments of the composed loss, at any scale: which tilt to compose with, where to look, and a bound without a grid.

Λ(t) = Σ log E e^{tℓ} over all releases. Under the tilted law, density e^{tℓ − Λ(t)}, the loss has mean Λ′(t) and
variance Λ″(t). Two uses of Markov's inequality:

* for t > 0: δ(ε) ≤ E e^{tℓ} · max_x e^{−t(ε + x)} (1 − e^{−x}) = exp(Λ(t) − tε) (t/(1+t))^t / (1+t);
* under the law tilted by t the mass beyond y is at most exp(Λ(t+u) − Λ(t) − uy), u > 0 for above, u < 0 for below.

Best is the u with u Λ′(t+u) − Λ(t+u) + Λ(t) = r for a mass of e^{−r}; any other is valid too, so none is sought for
long. The losses are those of connected dots on a few hundred pieces per pair, whose composition is never below the true
profile: the first bound holds for it, so it holds for the releases. Mass at an infinite loss is added to δ.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import fft

from gossamer.accounting.law import Slack, Window, connect, turned
from gossamer.accounting.pairs import Weighted

LARGEST_EXPONENT = 500.0  # of e^{tℓ} for the largest loss of a release
OUTSIDE_SHARE = 1e-3  # of δ that the mass outside the window may count for
RESERVE = 10.0  # at most e^−10 of the tilted mass may lie outside the window on either side
COARSE_POINTS = 4000  # of the window in which ε is looked for first
FEWEST = 64  # points of a window
SMALLEST_LOSS = 1e-9  # losses below it count as this large when orders are chosen


class Moments:
    """Λ and its derivatives for releases in one direction."""

    def __init__(self, pairs: Iterable[Weighted], tail: float, reverse: bool):
        losses, masses, counts, finite = [], [], [], []
        for pair, count in pairs:
            pieces = turned(pair.pieces(tail), reverse)
            at_first, at_last = connect(pieces)
            at_first[np.argmin(pieces.first)] += pieces.p_low
            both = np.concatenate([at_first, at_last])
            some = both > 0
            masses.append(np.log(both[some]))
            losses.append(np.concatenate([pieces.first, pieces.last])[some])
            counts.append(count)
            finite.append(math.log1p(-min(pieces.p_only + pieces.p_cut, 1 - 1e-16)))
        sizes = [len(one) for one in losses]
        self._losses, self._log_mass = np.concatenate(losses), np.concatenate(masses)
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int)
        self._of = np.repeat(np.arange(len(sizes)), sizes)
        self._finite = np.array(finite)
        self.count(counts)

    def count(self, counts: Sequence[int]) -> None:
        """So many releases of each pair instead."""
        self._counts = np.array(counts, dtype=float)
        used = self._counts > 0
        largest = np.maximum.reduceat(np.abs(self._losses), self._starts)
        self._most = LARGEST_EXPONENT / max(float(largest[used].max(initial=0.0)), SMALLEST_LOSS)
        self.infinite = -math.expm1(float(self._counts @ self._finite))
        self._slack = Slack(float(self._counts.sum()), float(self._counts @ (1 + largest)))

    def at(self, t: float) -> tuple[float, float, float]:
        """Λ(t), Λ′(t), Λ″(t)."""
        exponent = self._log_mass + t * self._losses
        top = np.maximum.reduceat(exponent, self._starts)
        weight = np.exp(exponent - top[self._of])
        total = np.add.reduceat(weight, self._starts)
        mean = np.add.reduceat(weight * self._losses, self._starts) / total
        spread = np.add.reduceat(weight * (self._losses - mean[self._of]) ** 2, self._starts) / total
        c = self._counts
        return float(c @ (top + np.log(total))), float(c @ mean), float(c @ spread)

    def beyond(self, t: float, r: float, sign: int = 1) -> tuple[float, float]:
        """(order t + u, y): under the law tilted by t at most e^{−r} is above y (below it for sign −1)."""
        base, _, spread = self.at(t)
        u = math.sqrt(2 * r / spread) if spread > 0 else self._most
        low, high = 0.0, self._most
        for _ in range(60):
            if not low < u < high:
                u = math.sqrt(low * high) if low > 0 else high / 4
            value, mean, spread = self.at(t + sign * u)
            reached = sign * u * mean - value + base  # grows with u, from 0
            if abs(reached - r) <= 0.02 * r or high - low <= 1e-3 * high:
                break
            low, high = (u, high) if reached < r else (low, u)
            # Newton on its root, as it grows about as u²
            if u * spread > 0 and reached > 0:
                u += 2 * (math.sqrt(r * reached) - reached) / (u * spread)
            else:
                u *= 2
        return t + sign * u, sign * (value - base + r) / u

    def tilt_for(self, epsilon: float) -> float:
        """The t ≥ 0 under which the mean loss is ε: there δ(ε) is known best."""
        low, high = 0.0, self._most
        if self.at(0.0)[1] >= epsilon:
            return 0.0
        t = min(high, epsilon / max(self.at(0.0)[2], 1e-300))
        for _ in range(60):
            _, mean, spread = self.at(t)
            low, high = (t, high) if mean < epsilon else (low, t)
            if abs(mean - epsilon) <= 0.05 * math.sqrt(spread) or high - low <= 1e-3 * high:
                break
            t += (epsilon - mean) / max(spread, 1e-300)
            if not low < t < high:
                t = math.sqrt(max(low, 1e-3 * high) * high)
        return t

    def epsilon(self, delta: float) -> tuple[float, float]:
        """(tilt, ε): an upper bound on the composed ε by one moment, and its order."""
        left = (delta - self.infinite) * (1 - self._slack.share)
        if left <= 0:
            return 0.0, math.inf
        t, _ = self.beyond(0.0, -math.log(left))
        best = math.inf
        for order in (t / 2, t / 1.2, t / 1.05, t, 1.2 * t):
            prefactor = order * math.log(order / (1 + order)) - math.log1p(order)
            best = min(best, (self.at(order)[0] + prefactor - math.log(left)) / order)
        return t, max(0.0, best + self._slack.loss)


class Frame:
    """Where the composed loss lies under the law tilted by t, but for what counts for little at an ε of about `near`.

    Mass m under the tilted law is m e^{Λ − tε} of δ(ε): much, if t is not the saddle point of ε.
    """

    def __init__(self, moments: Moments, tilt: float, near: float, log_delta: float):
        scale = moments.at(tilt)[0]
        self.weight = scale - tilt * near - log_delta
        reserve = max(RESERVE, self.weight - math.log(OUTSIDE_SHARE))
        self._tilt = tilt
        self._order_up, self._high = moments.beyond(tilt, reserve)
        self._order_down, self._low = moments.beyond(tilt, reserve, -1)

    def window(self, h: float | None) -> Window:
        h = h or max((self._high - self._low) / COARSE_POINTS, 1e-300)
        start = math.floor(self._low / h) - 2
        length = fft.next_fast_len(max(math.ceil(self._high / h) + 3 - start, FEWEST), real=True)
        return Window(h, start, length, self._order_up, self._order_down, self._tilt)
