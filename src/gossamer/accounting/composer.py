"""Fast composition of thousands of different releases: an upper and a lower bound on ε that meet.

Moments, at any scale and without a grid, give a first bound, the tilt and the place to look. Then every pair
is put on a common grid of losses, step h, and the tilted laws are convolved by FFT (`law`, where both bounds are
proved). Gaussian pairs that differ in μ only are grouped (`grouping`); h and the groups are refined until the bounds
agree within the tolerance, or would cost too much: then the better of what was found is returned, which is never ∞
unless outcomes that identify a record outright have a probability of δ.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from scipy import fft

from gossamer.accounting.law import (
    OUTSIDE_SHARE,
    RESERVE,
    Factor,
    Frame,
    Moments,
    UpperLaw,
    Window,
    lower_epsilon,
    work_of,
)
from gossamer.accounting.pairs import COARSE_GROUPS, GaussianPair, Grouping, Pair, Weighted

GROUP_SHARE, STEP_SHARE = 0.4, 0.1  # of the tolerance, for the groups (in ε) and for the step (h/ε)
FINEST = 0.25  # of one release's standard deviation: a step no finer is needed for a tolerance of 1%
FREE_WORK = 4e4  # grid points that cost next to nothing: used for a finer step than the tolerance needs
LARGEST_WORK = 1e7  # beyond it the bounds are returned as far apart as they are
LONGEST = 1e6  # grid points of one release or window; of this and of the work less for a tolerance above 2%
STEEPEST = 4.0  # logarithm of the tilt's weight over one step
NEGLIGIBLE_EPSILON = 1e-8  # not resolved further
RARE_SHARE = 1e-2  # of δ that may be paid for releases left out
TAIL_SHARE = 1e-4  # of δ that may be lost beyond the cells
# Of the saddle point. Less of it means shorter windows where a few large losses decide, but more rounding.
TILT_SHARES = (0.75, 0.95)
# Below it the tolerance is of this, or of a tenth of the loss' deviation if that is less.
SMALLEST_EPSILON = 0.01


@dataclass(frozen=True)
class Bounds:
    """lower ≤ ε of the composed pairs ≤ upper."""

    upper: float
    lower: float
    step: float
    groups: int


class _Way:
    """One direction of all pairs: what its moments say of it, and how to compose it."""

    def __init__(self, moments: Moments, reverse: bool, delta: float):
        self.moments, self.reverse = moments, reverse
        self._log_delta = math.log(delta)
        saddle, self.epsilon = moments.epsilon(delta)  # an upper bound
        if 0 < self.epsilon < math.inf:
            self._lean(saddle, 0.8 * self.epsilon)

    def aim_at(self, epsilon: float) -> None:
        """Choose the tilt for an ε of about this."""
        self._lean(self.moments.tilt_for(epsilon), epsilon)

    def _lean(self, saddle: float, epsilon: float) -> None:
        for share in TILT_SHARES:
            self.tilt, self.near = share * saddle, epsilon
            self._frame = Frame(self.moments, self.tilt, epsilon, self._log_delta)
            if self._frame.weight <= RESERVE:
                return

    def window(self, h: float | None = None) -> Window:
        """Without a step, on a coarse grid. A step that is large for the tilt takes a smaller tilt."""
        if h is not None and self.tilt * h > STEEPEST:
            return self.leaning(STEEPEST / h).window(h)
        return self._frame.window(h)

    def leaning(self, tilt: float) -> "Frame":
        """Where to look with a tilt that is given."""
        return Frame(self.moments, tilt, self.near, self._log_delta)


class Composition:
    """Independent releases, each a dominating pair with a count."""

    def __init__(self, pairs: Iterable[Weighted]):
        self.pairs = list(pairs)
        if not self.pairs:
            raise ValueError("nothing to compose")
        self._ways = [False, True] if any(pair.both_ways for pair, _ in self.pairs) else [False]
        self._releases = sum(count for _, count in self.pairs)

    def bounds(self, delta: float, tolerance: float = 0.01) -> Bounds:
        """ε(δ) from above and below, refined until they differ by at most `tolerance` of ε."""
        rest, paid = self._without_rare(delta)
        if rest is self:
            return self._settle(delta, tolerance)[0]
        if rest is None:
            return Bounds(0.0, 0.0, 0.0, 0)
        # fewer releases cost no more, at the same δ
        return replace(rest._settle(delta - paid, tolerance)[0], lower=rest._settle(delta, tolerance)[0].lower)

    def _without_rare(self, delta: float) -> "tuple[Composition | None, float]":
        """(what is left without releases that hardly ever tell anything, the δ that leaving them out costs).

        A release whose P and Q have total variation d can be replaced by one that tells nothing, both outcomes being
        drawn from Q, for d of δ: the hockey-stick divergence H(X ‖ Y) ≤ TV(X, X′) + H(X′ ‖ Y). Left out are those with
        the largest losses, and only where what is left needs half the grid.
        """
        each = [pair.distance * count for pair, count in self.pairs]
        if sum(each) <= delta:
            return None, delta
        if min(each) > RARE_SHARE * delta:
            return self, 0.0
        extents = [pair.extent(self._tail(delta)) for pair, _ in self.pairs]
        widest = sorted(range(len(extents)), key=lambda k: -extents[k])
        costs = itertools.accumulate(each[k] for k in widest)
        affordable = [cost for cost in costs if cost <= RARE_SHARE * delta]
        if not affordable or extents[widest[len(affordable)]] > extents[widest[0]] / 2:
            return self, 0.0
        return Composition([self.pairs[k] for k in widest[len(affordable) :]]), affordable[-1]

    def delta(self, epsilon: float, h: float) -> float:
        """Upper bound on δ(ε)."""
        tail = 1e-30 / self._releases
        found = 0.0
        for reverse in self._ways:
            moments = Moments(Grouping(self.pairs, COARSE_GROUPS).pessimistic(), tail, reverse)
            tilt = moments.tilt_for(epsilon)
            log_delta = min(0.0, moments.at(tilt)[0] - tilt * epsilon) + math.log(OUTSIDE_SHARE)
            window = Frame(moments, tilt, epsilon, log_delta).window(h)
            if (begin := math.floor(epsilon / h) - 1) < window.start:
                length = fft.next_fast_len(window.length + window.start - begin, real=True)
                window = replace(window, start=begin, length=length)
            found = max(found, UpperLaw(window, self.pairs, reverse, tail).delta(epsilon))
        return found

    def deltas(self, epsilons: Sequence[float], delta: float, tolerance: float = 0.01) -> list[float]:
        """Upper bounds on δ(ε) at each ε, on the grid and in the groups that settle ε at this δ."""
        settled, groups = self._settle(delta, tolerance)
        grouped = Composition(groups.pessimistic())
        h = settled.step or SMALLEST_EPSILON * tolerance
        return [grouped.delta(epsilon, h) for epsilon in epsilons]

    def prefixes(
        self,
        order: Sequence[Pair | None],
        at: Sequence[int],
        extra: Sequence[float],
        delta: float,
        tolerance: float,
    ) -> list[float]:
        """Upper bounds after the first `at` entries of `order`, plus a Gaussian of shift extra[k] each.

        All prefixes share one grid, and those of about the same tilt each group's transform; this composition must be
        that of the longest.
        """
        rest, paid = self._without_rare(delta)
        if rest is None:
            return [0.0] * len(at)
        if rest is not self:
            kept = {pair for pair, _ in rest.pairs}
            order = [pair if pair in kept else None for pair in order]
            return rest.prefixes(order, at, extra, delta - paid, tolerance)
        settled, groups = self._settle(delta, tolerance)
        anchors, tail = groups.anchors(), self._tail(delta)
        h = settled.step or SMALLEST_EPSILON * tolerance
        in_order = sorted(range(len(at)), key=lambda k: at[k])
        counts: dict[Pair, int] = {}
        added, done = [], 0  # by each prefix to the one before it
        found = [0.0] * len(at)
        shares: dict[tuple[bool, float], list[tuple[int, _Way]]] = {}
        for k in in_order:
            added.append(Counter(anchors.get(pair, pair) for pair in order[done : at[k]] if pair is not None))
            done = at[k]
            for pair, count in added[-1].items():
                counts[pair] = counts.get(pair, 0) + count
            gaussian = [(GaussianPair(extra[k]), 1)] if extra[k] > 0 else []
            pairs = [*counts.items(), *gaussian]
            for way in _ways(pairs, self._ways, delta, tail) if pairs else []:
                found[k] = max(found[k], way.epsilon)
                if 0 < way.epsilon < math.inf:
                    tilt = 2.0 ** (math.floor(2 * math.log2(way.tilt)) / 2)
                    shares.setdefault((way.reverse, tilt), []).append((k, way))
        sharper = [0.0 if math.isfinite(figure) else figure for figure in found]
        for (reverse, tilt), members in shares.items():
            windows = [way.leaning(tilt).window(h) for _, way in members]
            common = replace(windows[-1], length=max(window.length for window in windows))
            law = UpperLaw(common, (), reverse, tail)
            factors: dict[Pair, Factor] = {}
            done = 0
            for (k, way), window in zip(members, windows, strict=True):
                position = in_order.index(k)
                step = sum(added[done : position + 1], Counter())
                done = position + 1
                for pair, count in step.items():
                    if pair not in factors:
                        factors[pair] = law.factor(pair)
                    law.multiply(factors[pair], count)
                whole = law.placed(replace(common, start=window.start))
                if extra[k] > 0:
                    whole.multiply(whole.factor(GaussianPair(extra[k])), 1)
                sharper[k] = max(sharper[k], min(way.epsilon, whole.epsilon(delta)))
        # a prefix costs no more than a longer one
        least = math.inf
        for k in reversed(in_order):
            least = sharper[k] = min(least, sharper[k])
        return sharper

    def _settle(self, delta: float, tolerance: float) -> "tuple[Bounds, Grouping]":
        return _settled(tuple(self.pairs), delta, tolerance)

    def settle(self, delta: float, tolerance: float) -> "tuple[Bounds, Grouping]":
        """Bounds within the tolerance, or as near as is affordable, and the groups that they were found with."""
        tail = self._tail(delta)
        groups = Grouping(self.pairs, COARSE_GROUPS)
        ways = _ways(groups.pessimistic(), self._ways, delta, tail)
        best = Bounds(ways[0].epsilon, 0.0, 0.0, len(groups.pessimistic()))
        if not 0 < best.upper < math.inf:
            return best, groups
        deviation = math.sqrt(ways[0].moments.at(0.0)[2])
        floor = max(min(SMALLEST_EPSILON, 0.1 * deviation), NEGLIGIBLE_EPSILON)
        way, rough = self._look(groups.pessimistic(), ways, delta, tail, tolerance)
        if rough == 0:
            return Bounds(0.0, 0.0, 0.0, len(groups.pessimistic())), groups
        coarse = UpperLaw(
            way.window(_affordable(way, groups.pessimistic(), None, tail, tolerance)),
            groups.pessimistic(),
            way.reverse,
            tail,
        )
        groups.choose(_cost(coarse, delta), GROUP_SHARE * tolerance * max(rough, floor))
        h = self._first_step(way, groups.pessimistic(), max(rough, floor), tolerance, tail)
        last_gap = math.inf
        while True:
            up, down = groups.pessimistic(), groups.optimistic()
            way, upper = _upper(up, ways, h, delta, tail, tolerance)
            window = way.window(_affordable(way, up, h, tail, tolerance))
            lower = min(lower_epsilon(window, down, way.reverse, delta, tail), upper)
            gap = upper - lower
            best = Bounds(min(upper, best.upper), max(lower, best.lower), h, len(up))
            aim = tolerance * max(upper, floor)
            # What no finer grid mends is not chased.
            if best.upper - best.lower <= aim or gap > 0.9 * last_gap:
                return best, groups
            last_gap = gap
            # the upper bound's groups from below tell the grid's share of the gap from the groups'
            grid = gap
            if up != down:
                grid = upper - min(lower_epsilon(window, up, way.reverse, delta, tail), upper)
            grouped = gap - grid
            step = h / 2 if grid > aim / 2 else h
            if grid > 4 * aim:
                step = h / 4
            room = 0.8 * aim - min(grid, aim / 2)
            finer = groups.finer(grouped / room) if grouped > room else groups
            if _affordable(way, finer.pessimistic(), step, tail, tolerance) > step:
                return best, groups
            h, groups = step, finer
            for one in ways:
                one.aim_at(upper)

    def _look(
        self, pairs: Sequence[Weighted], ways: Sequence[_Way], delta: float, tail: float, tolerance: float
    ) -> tuple[_Way, float]:
        """About what ε is, from a coarse run: moments alone can be far off where a few large losses decide."""
        way, epsilon = ways[0], ways[0].epsilon
        for _ in range(2):
            way, epsilon = _upper(pairs, ways, None, delta, tail, tolerance)
            for one in ways:
                one.aim_at(epsilon)
            if epsilon > 0.5 * way.epsilon:
                break
        return way, epsilon

    def _first_step(self, way: _Way, pairs: Sequence[Weighted], epsilon: float, tolerance: float, tail: float) -> float:
        """What the tolerance needs, finer where that costs next to nothing, coarser where it would cost too much."""
        deviation = math.sqrt(way.moments.at(way.tilt)[2] / self._releases)
        h = min(STEP_SHARE * tolerance * epsilon, FINEST * math.sqrt(tolerance / 0.01) * deviation)
        work = work_of(pairs, way.window(h), tail)
        return _affordable(way, pairs, h * min(1.0, max(work / FREE_WORK, 0.1)), tail, tolerance)

    def _tail(self, delta: float) -> float:
        return TAIL_SHARE * delta / self._releases


@lru_cache(maxsize=16)  # the end of a search, the figure and its curve over rounds ask for the same one
def _settled(pairs: tuple[Weighted, ...], delta: float, tolerance: float) -> tuple[Bounds, Grouping]:
    return Composition(pairs).settle(delta, tolerance)


def _ways(pairs: Sequence[Weighted], ways: Iterable[bool], delta: float, tail: float) -> list[_Way]:
    """The directions that have to be composed, the dearer by its moments first."""
    coarse = Grouping(pairs, COARSE_GROUPS).pessimistic()
    found = [_Way(Moments(coarse, tail, reverse), reverse, delta) for reverse in ways]
    return sorted(found, key=lambda way: -way.epsilon)


def _affordable(way: _Way, pairs: Sequence[Weighted], h: float | None, tail: float, tolerance: float) -> float:
    """The step, or the least above it that does not cost too much."""
    window = way.window(h)
    longest = max(window.length, *(pair.extent(tail) / window.h for pair, _ in pairs))
    much = max(longest / LONGEST, work_of(pairs, window, tail) / LARGEST_WORK)
    return window.h * max(1.0, much * max(1.0, tolerance / 0.02))


def _cost(law: UpperLaw, delta: float) -> Callable[[GaussianPair], float]:
    """ε with one more release."""

    def cost(pair: GaussianPair) -> float:
        more = law.placed(law.window)
        more.multiply(more.factor(pair), 1)
        return more.epsilon(delta)

    return cost


def _upper(
    pairs: Sequence[Weighted],
    ways: Sequence[_Way],
    h: float | None,
    delta: float,
    tail: float,
    tolerance: float,
) -> tuple[_Way, float]:
    """(direction that decides, ε). A coarse bound on another is enough if that does not decide.

    Without a step, each direction takes a coarse one of its own.
    """
    deciding, epsilon = ways[0], -1.0
    coarse = Grouping(pairs, COARSE_GROUPS).pessimistic()
    for way in ways:
        if way.epsilon <= epsilon:
            continue
        window = way.window(_affordable(way, pairs, h, tail, tolerance))
        rough_first = epsilon >= 0 and len(coarse) < len(pairs)
        for attempt in [coarse, pairs] if rough_first else [pairs]:
            found = min(way.epsilon, UpperLaw(window, attempt, way.reverse, tail).epsilon(delta))
            if found <= epsilon:
                break
        else:
            deciding, epsilon = way, found
    return deciding, epsilon
