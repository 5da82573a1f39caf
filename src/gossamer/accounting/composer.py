"""Fast composition of thousands of different releases: an upper and a lower bound on ε that meet.

Upper bound. Every pair is put on a common grid of losses, step h, by connect-the-dots (never below the true
profile), and the distributions are convolved by FFT of one period of length L·h. What can lie above the
period would come back at its bottom and hide, so its mass, bounded by Chernoff, min_t exp(Σ log E e^{tℓ} −
t·top), is added to δ; what lies below comes back at the top and only makes the bound larger. Rounding of the
transforms is charged to δ too: n·u·4 log₂L·√L·‖pmf‖₂ for n factors and unit roundoff u.

Lower bound. Reporting of each outcome only the nearest multiple of h of its loss is post-processing, so for
the sum S of these, any threshold τ and any ε: δ(ε) ≥ P(S ≥ τ) − e^ε Q(S ≥ τ). The law of S under Q is
convolved with weights e^{ih}, which keeps its far tail exact in relative terms, and taken back.

Gaussian pairs that differ in μ only are grouped: all of a group take its largest μ for the upper bound (less
noise dominates more noise: the difference can be added afterwards) and its smallest for the lower. Groups are
narrow where the cost of one more step reacts to μ and wide elsewhere; that choice only affects how close the
bounds are. h and the groups are refined until they agree within the tolerance.
"""

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import fft

from gossamer.accounting.pairs import Cells, GaussianPair, Pair
from gossamer.accounting.profiles import FloatArray

ORDERS = np.geomspace(0.02, 200.0, 20)  # of the Chernoff bounds
COARSE_POINTS = 2000  # of the grid on which the window and the groups are chosen
COARSE_GROUPS = 12
GROUP_SHARE, STEP_SHARE = 0.4, 0.1  # of the tolerance, for the groups (in ε) and for the step (h/ε)
SMALLEST_EPSILON = 0.01  # below it the tolerance is of this
FREE_WORK = 2e5  # grid points that cost next to nothing: used for a finer step than the tolerance needs
SMALLEST_DELTA = 3e-12  # below it the rounding of the transforms is larger than δ, and nothing can be shown
LARGEST_WORK = 5e7  # beyond it the bounds are returned as far apart as they are
ALIAS_SHARE = 1e-3  # of δ that may be lost above the period
UNIT = 2.0**-53
Weighted = tuple[Pair, int]


@dataclass(frozen=True)
class Bounds:
    """lower ≤ ε of the composed pairs ≤ upper."""

    upper: float
    lower: float
    step: float
    groups: int


@dataclass(frozen=True)
class Window:
    """One period of the loss grid: `length` points from index `start`; the orders bound the mass outside."""

    h: float
    start: int
    length: int
    order_up: float
    order_down: float

    @property
    def losses(self) -> FloatArray:
        return np.asarray(self.h * np.arange(self.start, self.start + self.length))

    @property
    def top(self) -> float:
        return self.h * (self.start + self.length - 1)


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
            if _work(finer.pessimistic(), window) * h / step > LARGEST_WORK:
                return found, groups
            h, groups = step, finer

    def delta(self, epsilon: float, h: float) -> float:
        """Upper bound on δ(ε)."""
        window = self._window(self.pairs, 1e-9, h)
        return max(_Upper(window, self.pairs, reverse).delta(epsilon) for reverse in self._ways)

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
            if h <= epsilon / 50 or _work(coarse, window) > FREE_WORK:
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
        work = _work(groups.pessimistic(), replace(window, h=h, length=int(window.length * window.h / h) + 1))
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
        moments = [_moments(coarse, max(h, self._span / COARSE_POINTS), reverse) for reverse in self._ways]
        up, down = np.max([m[0] for m in moments], axis=0), np.max([m[1] for m in moments], axis=0)
        high = max(0.0, float(np.min((up + reserve) / ORDERS)))
        low = min(0.0, float(np.max(-(down + reserve) / ORDERS)))
        start = math.floor(low / h) - 2
        length = fft.next_fast_len(math.ceil(high / h) + 3 - start, real=True)
        order_up = float(ORDERS[np.argmin(up - ORDERS * h * (start + length))])
        order_down = float(ORDERS[np.argmin(down + ORDERS * h * start)])
        return Window(h, start, length, order_up, order_down)


class Grouping:
    """Gaussian pairs equal but for μ, cut into ranges of μ; other pairs stay as they are."""

    def __init__(self, pairs: Iterable[Weighted], per_family: int):
        families: dict[GaussianPair, dict[float, int]] = {}
        others: dict[Pair, int] = {}
        for pair, count in pairs:
            if isinstance(pair, GaussianPair):
                members = families.setdefault(replace(pair, mu=1.0), {})
                members[pair.mu] = members.get(pair.mu, 0) + count
            else:
                others[pair] = others.get(pair, 0) + count
        self._families = {family: sorted(members.items()) for family, members in families.items()}
        self._others = list(others.items())
        # position of each μ on a scale whose unit is one group
        self._scale = {
            family: _spread(np.log([mu for mu, _ in members]), per_family)
            for family, members in self._families.items()
        }

    def choose(self, cost: Callable[[GaussianPair], float], error: float) -> None:
        """Cut so that all widths together move the bound by about `error`, with as few groups as that allows.

        `cost` is what one more step adds to ε. If a step at log μ = x costs c(x), a group of width w around
        it errs by w c′(x); the number of groups is least for w ∝ 1/sqrt(density of c′), and their error is
        then (Σ sqrt(n c′ Δx))² / groups.
        """
        roots = {}
        for family, members in self._families.items():
            x = np.log([mu for mu, _ in members])
            counts = np.array([count for _, count in members], dtype=float)
            knots = np.linspace(x[0] - 1e-3, x[-1] + 1e-3, COARSE_GROUPS)
            costs = [cost(replace(family, mu=float(np.exp(k)))) for k in knots] if len(x) > 1 else [math.inf]
            # where the coarse run could not price one more step, spread the groups evenly
            slope = np.gradient(costs, knots) if np.all(np.isfinite(costs)) else np.ones_like(knots)
            gaps = np.append(np.diff(x), 0.0)
            # above 0, so that no range stays uncut however often it is refined
            floor = max(1e-3 * float(np.max(slope)), 1e-12)
            roots[family] = np.sqrt(np.maximum(np.interp(x, knots, slope), floor) * counts * gaps)
        total = sum(float(root.sum()) for root in roots.values())
        if total == 0:
            return
        for family, root in roots.items():
            positions = np.concatenate([[0.0], np.cumsum(root)[:-1]])
            self._scale[family] = positions * (total / error)

    def finer(self, times: float) -> "Grouping":
        """So many times as many groups."""
        twin = copy.copy(self)
        twin._scale = {family: times * scale for family, scale in self._scale.items()}
        return twin

    def pessimistic(self) -> list[Weighted]:
        return self._others + [(replace(f, mu=m[-1][0]), sum(c for _, c in m)) for f, m in self._groups()]

    def optimistic(self) -> list[Weighted]:
        return self._others + [(replace(f, mu=m[0][0]), sum(c for _, c in m)) for f, m in self._groups()]

    def anchors(self) -> dict[Pair, Pair]:
        """pair → the pair that stands for it in the upper bound."""
        return {
            replace(family, mu=mu): replace(family, mu=members[-1][0])
            for family, members in self._groups()
            for mu, _ in members
        }

    def _groups(self) -> Iterator[tuple[GaussianPair, list[tuple[float, int]]]]:
        for family, members in self._families.items():
            cell = np.floor(self._scale[family])
            cuts = [0, *(np.flatnonzero(np.diff(cell)) + 1), len(members)]
            for begin, end in itertools.pairwise(cuts):
                yield family, members[begin:end]


def _spread(x: FloatArray, groups: int) -> FloatArray:
    width = (x[-1] - x[0]) / groups
    return np.zeros_like(x) if width == 0 else np.minimum((x - x[0]) / width, groups - 0.5)


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
        first, mass, infinite = _dots(_turned(pair.cells(w.h, centred=False), self.reverse), w.h)
        fall = np.exp(-w.order_up * w.h * np.arange(len(mass)))
        moment = w.order_up * w.h * (first + len(mass) - 1) + math.log(float(mass[::-1] @ fall))
        return _transform(mass, w.length), first, math.log1p(-min(infinite, 1 - 1e-16)), moment

    def multiply(self, factor: _Factor, count: int) -> None:
        spectrum, first, log_finite, moment = factor
        self._spectrum = self._spectrum * _power(spectrum, count)
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
            mass = np.maximum(_back(self._spectrum, w, self._first), 0.0)
            above = math.exp(min(0.0, self._log_moment - w.order_up * (w.top + w.h)))
            extra = -math.expm1(self._log_finite) + above + _rounding(mass, self._factors)
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
        cells = _turned(pair.cells(h, centred=True), reverse)
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
        log_up += count * _log_moments(np.log(p[some]), losses[some], [window.order_up])[0]
        log_down += count * _log_moments(np.log(p[some]), -losses[some], [window.order_down])[0]
        under_p *= _power(_transform(p, length), count)
        under_q *= _power(_transform(tilted / total, length), count)
        log_scale += count * (scale + math.log(total))
        log_finite += count * math.log1p(-min(cells.p_only, 1 - 1e-16))
        start += first * count
        factors += count
    p_all, q_all = _back(under_p, window, start), _back(under_q, window, start)
    outside = math.exp(min(0.0, log_up - window.order_up * window.top)) + math.exp(
        min(0.0, log_down + window.order_down * h * window.start)
    )
    losses = window.losses
    keep = losses >= 0
    losses, p_all, q_all = losses[keep], p_all[keep], np.maximum(q_all[keep], 0.0)
    rounding = _rounding(p_all, factors) + _rounding(q_all, factors) * math.exp(min(log_scale, 50.0))
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


def _turned(cells: Cells, reverse: bool) -> Cells:
    return cells.reversed() if reverse else cells


def _dots(cells: Cells, h: float) -> tuple[int, FloatArray, float]:
    """Connect the dots: (first index, masses on the grid, mass at infinity).

    A cell of loss range [a, b] and masses p, q becomes masses p_a + p_b = p with p_a e^{−a} + p_b e^{−b} = q.
    """
    high = cells.last * h
    with np.errstate(over="ignore", invalid="ignore"):
        at_first = (cells.q * np.exp(np.minimum(high, 700.0)) - cells.p) / np.expm1(
            (cells.last - cells.first) * h
        )
    at_first = np.where(cells.last > cells.first, np.clip(at_first, 0.0, cells.p), cells.p)
    first = int(cells.first.min())
    size = int(cells.last.max()) - first + 1
    mass = np.bincount(cells.first - first, at_first, size)
    mass += np.bincount(cells.last - first, cells.p - at_first, size)
    return first, mass, cells.p_only + cells.p_cut


def _moments(
    pairs: Iterable[Weighted], step: float, reverse: bool, orders: Sequence[float] | FloatArray = ORDERS
) -> tuple[FloatArray, FloatArray]:
    """Σ log E e^{tℓ} and Σ log E e^{−tℓ} of the pessimistic losses, for each order t."""
    up, down = np.zeros(len(orders)), np.zeros(len(orders))
    for pair, count in pairs:
        first, mass, _ = _dots(_turned(pair.cells(step, centred=False), reverse), step)
        some = mass > 0
        log_mass, losses = np.log(mass[some]), step * (first + np.flatnonzero(some))
        up += count * _log_moments(log_mass, losses, orders)
        down += count * _log_moments(log_mass, -losses, orders)
    return up, down


def _log_moments(
    log_mass: FloatArray, losses: FloatArray, orders: Sequence[float] | FloatArray
) -> FloatArray:
    """log Σ m e^{tℓ} for each order t."""
    found = np.empty(len(orders))
    for k, order in enumerate(orders):
        exponent = log_mass + order * losses
        largest = exponent.max()
        found[k] = largest + math.log(np.exp(exponent - largest).sum())
    return found


def _transform(mass: FloatArray, length: int) -> FloatArray:
    """Spectrum of the masses on a circle of `length` points."""
    if len(mass) > length:
        mass = np.pad(mass, (0, -len(mass) % length)).reshape(-1, length).sum(axis=0)
    return np.asarray(fft.rfft(mass, length))


def _back(spectrum: FloatArray, window: Window, first: int) -> FloatArray:
    """Masses on the window from a spectrum whose index 0 stands for the loss first·h."""
    mass = fft.irfft(spectrum, window.length)
    return np.asarray(np.roll(mass, (first - window.start) % window.length))


def _power(spectrum: FloatArray, count: int) -> FloatArray:
    """By repeated squaring: faster than complex ** and no worse in rounding."""
    result = None
    while True:
        if count & 1:
            result = spectrum if result is None else result * spectrum
        count >>= 1
        if not count:
            return np.ones_like(spectrum) if result is None else result
        spectrum = spectrum * spectrum


def _rounding(mass: FloatArray, factors: int) -> float:
    return float(4 * factors * UNIT * math.log2(len(mass) + 2) * math.sqrt(len(mass)) * np.linalg.norm(mass))


def _work(pairs: Sequence[Weighted], window: Window) -> float:
    """Grid points to be filled and transformed."""
    return sum(pair.span / window.h + window.length for pair, _ in pairs)
