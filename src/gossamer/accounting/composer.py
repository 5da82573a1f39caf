"""Fast composition of thousands of different releases: an upper and a lower bound on ε that meet.

Upper bound. Every pair is put on a common grid of losses, step h, by connect-the-dots (never below the true
profile), and the distributions are convolved by FFT of one period of length L·h. What can lie above the
period would come back at its bottom and hide, so its mass, bounded by Chernoff, min_t exp(Σ log E e^{tℓ} −
t·top), is added to δ; what lies below comes back at the top and only makes the bound larger. Rounding of the
transforms is charged to δ too: n·u·4 log₂L·√L·‖pmf‖₂ for n factors and unit roundoff u.

Lower bound. Reporting of each outcome only the nearest multiple of h of its loss is post-processing, so for
the sum S of these, any threshold τ and any ε: δ(ε) ≥ P(S ≥ τ) − e^ε Q(S ≥ τ). The law of S under Q is
convolved with weights e^{ih}, which keeps its far tail exact in relative terms, and taken back.

Gaussian pairs that differ in μ only are grouped (`grouping`); h and the groups are refined until the bounds
agree within the tolerance. The grid and what is done on it are in `grid`.
"""

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import fft

from gossamer.accounting.grid import (
    ORDERS,
    Weighted,
    Window,
    back,
    dots,
    log_moments,
    loss_moments,
    power,
    rounding_error,
    transform,
    turned,
    work_of,
)
from gossamer.accounting.grouping import COARSE_GROUPS, Grouping
from gossamer.accounting.pairs import GaussianPair, Pair
from gossamer.accounting.profiles import FloatArray

COARSE_POINTS = 2000  # of the grid on which the window and the groups are chosen
GROUP_SHARE, STEP_SHARE = 0.4, 0.1  # of the tolerance, for the groups (in ε) and for the step (h/ε)
SMALLEST_EPSILON = 0.01  # below it the tolerance is of this
FREE_WORK = 2e5  # grid points that cost next to nothing: used for a finer step than the tolerance needs
SMALLEST_DELTA = 3e-12  # below it the rounding of the transforms is larger than δ, and nothing can be shown
LARGEST_WORK = 5e7  # beyond it the bounds are returned as far apart as they are
ALIAS_SHARE = 1e-3  # of δ that may be lost above the period


@dataclass(frozen=True)
class Bounds:
    """lower ≤ ε of the composed pairs ≤ upper."""

    upper: float
    lower: float
    step: float
    groups: int


class Composition:
    """Independent releases, each a dominating pair with a count."""

    def __init__(self, pairs: Iterable[Weighted]):
        self.pairs = list(pairs)
        if not self.pairs:
            raise ValueError("nothing to compose")
        self._ways = [False, True] if any(pair.both_ways for pair, _ in self.pairs) else [False]
        self._span = max(pair.span for pair, _ in self.pairs)

    def bounds(self, delta: float, tolerance: float = 0.01) -> Bounds:
        """ε(δ) from above and below, refined until they differ by at most `tolerance` of ε."""
        if delta < SMALLEST_DELTA:
            return Bounds(math.inf, 0.0, 0.0, 0)
        return self._settle(delta, tolerance)[0]

    def _settle(self, delta: float, tolerance: float) -> "tuple[Bounds, Grouping]":
        h, groups = self._resolution(delta, tolerance)
        last_gap = math.inf
        while True:
            up, down = groups.pessimistic(), groups.optimistic()
            window = self._window(up, delta, h)
            reverse, upper = self._upper(up, window, delta)
            if math.isinf(upper):
                return Bounds(upper, 0.0, h, len(up)), groups
            lower = min(_lower_epsilon(window, down, reverse, delta), upper)
            found = Bounds(upper, lower, h, len(up))
            aim = tolerance * max(upper, SMALLEST_EPSILON)
            if upper - lower <= aim:
                return found, groups
            # A δ near the rounding of the transform leaves no lower bound however fine the grid: do not chase it.
            if upper - lower > 0.9 * last_gap:
                return found, groups
            last_gap = upper - lower
            # the upper bound's groups from below tell the grid's share of the gap from the groups'
            grid = upper - min(_lower_epsilon(window, up, reverse, delta), upper)
            grouped = upper - lower - grid
            step = h / 2 if grid > aim / 2 else h
            room = 0.8 * aim - min(grid, aim / 2)
            finer = groups.finer(grouped / room) if grouped > room else groups
            if work_of(finer.pessimistic(), window) * h / step > LARGEST_WORK:
                return found, groups
            h, groups = step, finer

    def delta(self, epsilon: float, h: float) -> float:
        """Upper bound on δ(ε)."""
        window = self._window(self.pairs, 1e-9, h)
        return max(_Upper(window, self.pairs, reverse).delta(epsilon) for reverse in self._ways)

    def deltas(self, epsilons: Sequence[float], delta: float, tolerance: float = 0.01) -> list[float]:
        """Upper bounds on δ(ε) at each ε, on the grid and in the groups that settle ε at this δ."""
        settled, groups = self._settle(max(delta, SMALLEST_DELTA), tolerance)
        pairs = groups.pessimistic()
        window = self._window(pairs, max(delta, SMALLEST_DELTA), settled.step)
        both = [_Upper(window, pairs, reverse) for reverse in self._ways]
        return [max(one.delta(epsilon) for one in both) for epsilon in epsilons]

    def prefixes(
        self,
        order: Sequence[Pair | None],
        at: Sequence[int],
        extra: Sequence[float],
        delta: float,
        tolerance: float,
    ) -> list[float]:
        """Upper bounds after the first `at` entries of `order`, plus a Gaussian of shift extra[k] each.

        All prefixes share one grid and each group's transform; this composition must be that of the longest.
        """
        if delta < SMALLEST_DELTA:
            return [math.inf] * len(at)
        settled, groups = self._settle(delta, tolerance)
        window = self._window(groups.pessimistic(), delta, settled.step)
        anchors = groups.anchors()
        found = [0.0] * len(at)
        for reverse in self._ways:
            running = _Upper(window, reverse=reverse)
            factors: dict[Pair, _Factor] = {}
            done = 0
            for k in sorted(range(len(at)), key=lambda k: at[k]):
                counts: dict[Pair, int] = {}
                for step in order[done : at[k]]:
                    if step is not None:
                        anchor = anchors.get(step, step)
                        counts[anchor] = counts.get(anchor, 0) + 1
                for pair, count in counts.items():
                    if pair not in factors:
                        factors[pair] = running.factor(pair)
                    running.multiply(factors[pair], count)
                done = at[k]
                whole = running.copy()
                if extra[k] > 0:
                    whole.multiply(whole.factor(GaussianPair(extra[k])), 1)
                found[k] = max(found[k], whole.epsilon(delta))
        return found

    def _resolution(self, delta: float, tolerance: float) -> "tuple[float, Grouping]":
        """A first step and grouping, from a coarse run."""
        coarse = Grouping(self.pairs, COARSE_GROUPS).pessimistic()
        h = self._span / COARSE_POINTS
        while True:
            window = self._window(coarse, delta, h)
            reverse, rough = self._upper(coarse, window, delta)
            epsilon = max(rough if math.isfinite(rough) else window.top, SMALLEST_EPSILON)
            # a grid coarser than ε says nothing about ε: look closer, as long as that is cheap
            if h <= epsilon / 50 or work_of(coarse, window) > FREE_WORK:
                break
            h = max(epsilon / 100, h / 8)
        base = _Upper(window, coarse, reverse)

        def cost(pair: GaussianPair) -> float:
            more = base.copy()
            more.multiply(more.factor(pair), 1)
            return more.epsilon(delta)

        groups = Grouping(self.pairs, COARSE_GROUPS)
        if math.isfinite(rough):
            groups.choose(cost, GROUP_SHARE * tolerance * epsilon)
        h = STEP_SHARE * tolerance * epsilon
        work = work_of(
            groups.pessimistic(), replace(window, h=h, length=int(window.length * window.h / h) + 1)
        )
        return h * min(1.0, max(work / FREE_WORK, 0.1)), groups

    def _upper(self, pairs: Sequence[Weighted], window: Window, delta: float) -> tuple[bool, float]:
        """(direction that decides, ε). A coarse bound on the reverse is enough if that does not decide."""
        epsilon = _Upper(window, pairs, False).epsilon(delta)
        if len(self._ways) > 1:
            coarse = Grouping(pairs, COARSE_GROUPS).pessimistic()
            for attempt in [coarse, pairs] if len(coarse) < len(pairs) else [pairs]:
                back = _Upper(window, attempt, True).epsilon(delta)
                if back <= epsilon:
                    return False, epsilon
            return True, back
        return False, epsilon

    def _window(self, pairs: Sequence[Weighted], delta: float, h: float) -> Window:
        """Where the composed loss can be, up to a negligible share of δ, from a coarse grid."""
        coarse = Grouping(pairs, COARSE_GROUPS).pessimistic()
        reserve = -math.log(ALIAS_SHARE * delta)
        moments = [
            loss_moments(coarse, max(h, self._span / COARSE_POINTS), reverse) for reverse in self._ways
        ]
        up, down = np.max([m[0] for m in moments], axis=0), np.max([m[1] for m in moments], axis=0)
        high = max(0.0, float(np.min((up + reserve) / ORDERS)))
        low = min(0.0, float(np.max(-(down + reserve) / ORDERS)))
        start = math.floor(low / h) - 2
        length = fft.next_fast_len(math.ceil(high / h) + 3 - start, real=True)
        order_up = float(ORDERS[np.argmin(up - ORDERS * h * (start + length))])
        order_down = float(ORDERS[np.argmin(down + ORDERS * h * start)])
        return Window(h, start, length, order_up, order_down)


_Factor = tuple[FloatArray, int, float, float]


class _Upper:
    """The pessimistic loss distribution of composed pairs in one direction, built up factor by factor."""

    def __init__(self, window: Window, pairs: Iterable[Weighted] = (), reverse: bool = False):
        self.window = window
        self.reverse = reverse
        self._spectrum = np.ones(window.length // 2 + 1, dtype=complex)
        self._first = 0
        self._log_finite = 0.0
        self._log_moment = 0.0
        self._factors = 0
        self._law: tuple[FloatArray, float] | None = None
        for pair, count in pairs:
            self.multiply(self.factor(pair), count)

    def factor(self, pair: Pair) -> _Factor:
        """(spectrum, first index, log of the finite mass, log moment): what one release multiplies in."""
        w = self.window
        first, mass, infinite = dots(turned(pair.cells(w.h, centred=False), self.reverse), w.h)
        fall = np.exp(-w.order_up * w.h * np.arange(len(mass)))
        moment = w.order_up * w.h * (first + len(mass) - 1) + math.log(float(mass[::-1] @ fall))
        return transform(mass, w.length), first, math.log1p(-min(infinite, 1 - 1e-16)), moment

    def multiply(self, factor: _Factor, count: int) -> None:
        spectrum, first, log_finite, moment = factor
        self._spectrum = self._spectrum * power(spectrum, count)
        self._first += first * count
        self._log_finite += log_finite * count
        self._log_moment += moment * count
        self._factors += count
        self._law = None

    def copy(self) -> "_Upper":
        twin = copy.copy(self)  # `multiply` replaces the arrays, so the twins may share them
        twin._law = None
        return twin

    def law(self) -> tuple[FloatArray, float]:
        """(probabilities on the window, mass to be added to δ: infinite loss, aliasing, rounding)."""
        if self._law is None:
            w = self.window
            mass = np.maximum(back(self._spectrum, w, self._first), 0.0)
            above = math.exp(min(0.0, self._log_moment - w.order_up * (w.top + w.h)))
            extra = -math.expm1(self._log_finite) + above + rounding_error(mass, self._factors)
            self._law = mass, extra
        return self._law

    def delta(self, epsilon: float) -> float:
        mass, extra = self.law()
        return min(
            1.0, extra + float(np.sum(mass * -np.expm1(np.minimum(epsilon - self.window.losses, 0.0))))
        )

    def epsilon(self, delta: float) -> float:
        """Smallest ε ≥ 0 with δ(ε) ≤ δ."""
        mass, extra = self.law()
        if extra >= delta:
            return math.inf
        losses = self.window.losses
        positive = losses > 0
        losses, mass = losses[positive], mass[positive]
        above = np.cumsum(mass[::-1])[::-1]
        decay = np.exp(-self.window.h * np.arange(len(mass)))

        def discounted(j: int) -> float:  # Σ_{i≥j} m_i e^{ℓ_j − ℓ_i}
            return float(mass[j:] @ decay[: len(mass) - j])

        # over (ℓ_{j−1}, ℓ_j]: δ(ε) = extra + Σ_{i≥j} m_i − e^{ε − ℓ_j} Σ_{i≥j} m_i e^{ℓ_j − ℓ_i}
        low, high = -1, len(mass) - 1  # δ(ℓ_low) > δ ≥ δ(ℓ_high), as the last is `extra`
        while high - low > 1:
            middle = (low + high) // 2
            fits = extra + above[middle] - discounted(middle) <= delta
            low, high = (low, middle) if fits else (middle, high)
        weight, needed = discounted(high), float(above[high]) + extra - delta
        before = float(losses[high]) - self.window.h
        if needed <= 0 or weight <= 0:
            return max(0.0, before)
        return max(0.0, before, float(losses[high]) + min(0.0, math.log(needed / weight)))


def _lower_epsilon(window: Window, pairs: Sequence[Weighted], reverse: bool, delta: float) -> float:
    """Largest ε that some threshold test on the rounded losses shows to be exceeded."""
    h, length = window.h, window.length
    under_p = np.ones(length // 2 + 1, dtype=complex)
    under_q = under_p.copy()
    start, factors, log_scale, log_finite, log_up, log_down = 0, 0, 0.0, 0.0, 0.0, 0.0
    for pair, count in pairs:
        cells = turned(pair.cells(h, centred=True), reverse)
        first = int(cells.first.min())
        p = np.bincount(cells.first - first, cells.p)
        q = np.bincount(cells.first - first, cells.q)
        losses = h * (first + np.arange(len(p)))
        with np.errstate(divide="ignore"):
            # a Q-mass below floating point is at most that of P at a loss one step lower
            log_q = np.where(q > 1e-290, np.log(q) + losses, np.log(p) + h)
        scale = float(np.max(log_q))
        tilted = np.exp(log_q - scale)
        total = float(tilted.sum())
        some = p > 0
        log_up += count * log_moments(np.log(p[some]), losses[some], [window.order_up])[0]
        log_down += count * log_moments(np.log(p[some]), -losses[some], [window.order_down])[0]
        under_p *= power(transform(p, length), count)
        under_q *= power(transform(tilted / total, length), count)
        log_scale += count * (scale + math.log(total))
        log_finite += count * math.log1p(-min(cells.p_only, 1 - 1e-16))
        start += first * count
        factors += count
    p_all, q_all = back(under_p, window, start), back(under_q, window, start)
    outside = math.exp(min(0.0, log_up - window.order_up * window.top)) + math.exp(
        min(0.0, log_down + window.order_down * h * window.start)
    )
    losses = window.losses
    keep = losses >= 0
    losses, p_all, q_all = losses[keep], p_all[keep], np.maximum(q_all[keep], 0.0)
    rounding = rounding_error(p_all, factors) + rounding_error(q_all, factors) * math.exp(
        min(log_scale, 50.0)
    )
    identified = -math.expm1(log_finite)
    spare = outside + rounding - identified
    tails = np.cumsum(p_all[::-1])[::-1]

    def shown(epsilon: float) -> float:
        weighted = q_all * np.exp(np.minimum(epsilon - losses + log_scale, 700.0))
        return float(np.max(tails - np.cumsum(weighted[::-1])[::-1])) - spare

    if shown(0.0) <= delta:
        return 0.0
    low, high = 0.0, float(losses[-1])
    while high - low > 1e-5 * max(high, 1e-3):
        middle = (low + high) / 2
        low, high = (middle, high) if shown(middle) > delta else (low, middle)
    return low
