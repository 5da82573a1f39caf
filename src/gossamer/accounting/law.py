"""The composed loss: its moments, and its law on one window of a grid, from above and from below.

All is composed tilted. For a fixed t, every mass m at loss ℓ is replaced by m e^{tℓ} / E e^{tℓ}; the product of
spectra then gives S̃, the law S of the summed loss times e^{tℓ − Λ}, Λ = Σ log E e^{tℓ}. A mass of S is S̃ e^{Λ − tℓ}, so
an error η in S̃ is one of η e^{Λ − tℓ} in S: with t the saddle point of the ε sought, far below δ however small δ is.
t = 0 is the plain composition, and every t is valid.

Upper bound, δ(ε) ≤ Σ_{ℓ > ε} S(ℓ) (1 − e^{ε−ℓ}) for the connected dots:

* Rounding: S̃ as computed is off by a vector of norm at most η (`rounding_error`), so the sum is off by at most η
  times the norm of its weights e^{Λ − tℓ} (1 − e^{ε−ℓ}) over ℓ > ε (Cauchy, Schwarz), e^{Λ − tε} times a number.
* Aliasing: what lies below the window comes back at its top and only adds. What lies above the window would come back
  at the bottom and hide: its mass, at most exp(Λ(s) − s·top) for any s > 0, is added to δ.
* Infinite losses are added to δ; what rounding the cells may hide (`Slack`) lengthens every loss and enlarges δ, and
  the weights themselves, e to a power x, are within 4 u (1 + |x|) of what they should be, which enlarges δ too.

Lower bound. Reporting of each outcome only the nearest multiple of h of its loss is post-processing, so for the sum
S of these and any set of outcomes A: δ(ε) ≥ P(A) − e^ε Q(A), with A = {τ ≤ S within the window, or a loss that is
infinite}. P is composed tilted by t and Q by 1 + t, which puts both at the same place. From P(A) what rounding may have
added is taken off as above, and what came into A from outside the window, which is L long; to Q(A) rounding is added,
and what came in only adds. ε = log (P(A) − δ) / Q(A) for the best τ. What comes in, in units of exp(Λ − tτ), where a
tilted mass at ℓ ≥ τ counts e^{−t(ℓ − τ)} ≤ 1:

* from above: only what lies at τ + L or beyond, of which there is at most exp(Λ(s) − Λ − (s − t)(τ + L)), s > t;
* from below, r < start: it comes to r + L or higher, and counts at most e^{−u(r + L − τ)} for any 0 ≤ u ≤ t. With s < t
  and u = min(t, t − s) that sums to at most exp(Λ(s) − Λ + (t − s − u) start − u(L − τ)).

Moments
-------
`Moments` hold at any scale: they say which tilt to compose with and where to look, and give a bound without a grid.
Λ(t) = Σ log E e^{tℓ} over all releases. Under the tilted law, density e^{tℓ − Λ(t)}, the loss has mean Λ′(t) and
variance Λ″(t). Two uses of Markov's inequality:

* for t > 0: δ(ε) ≤ E e^{tℓ} · max_x e^{−t(ε + x)} (1 − e^{−x}) = exp(Λ(t) − tε) (t/(1+t))^t / (1+t);
* under the law tilted by t the mass beyond y is at most exp(Λ(t+u) − Λ(t) − uy), u > 0 for above, u < 0 for below.

Best is the u with u Λ′(t+u) − Λ(t+u) + Λ(t) = r for a mass of e^{−r}; any other is valid too, so none is sought for
long. The losses are those of connected dots on a few hundred pieces per pair, whose composition is never below the true
profile: the first bound holds for it, so it holds for the releases. Mass at an infinite loss is added to δ.
"""

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import fft

from gossamer.accounting.pairs import Cells, Pair, Weighted
from gossamer.accounting.profiles import FloatArray

ROUNDOFF = 2.0**-53


@dataclass(frozen=True)
class Window:
    """One period of the loss grid: `length` points from index `start`, composed with the weight e^{tilt·loss}.

    The mass outside is bounded by moments: of order `order_up` above and `order_down` below.
    """

    h: float
    start: int
    length: int
    order_up: float
    order_down: float
    tilt: float = 0.0

    @property
    def losses(self) -> FloatArray:
        return np.asarray(self.h * np.arange(self.start, self.start + self.length))

    @property
    def top(self) -> float:
        return self.h * (self.start + self.length - 1)


@dataclass(frozen=True)
class Slack:
    """A bound on what rounding took off in the evaluation of the cells, for all releases together.

    The special functions give masses within 512 u of themselves (the exponent of the Gaussian tail, up to 80, times
    u, and a few operations): δ is known up to n times that share. Outcomes and losses are within 64 u of the largest
    loss of a release: every composed loss may be larger by the sum of these.
    """

    releases: float = 0.0
    sizes: float = 0.0  # Σ (1 + largest |loss|) over all releases

    @property
    def share(self) -> float:
        return min(1.0, 512 * ROUNDOFF * self.releases)

    @property
    def loss(self) -> float:
        return 64 * ROUNDOFF * self.sizes

    def plus(self, largest: float, count: int) -> "Slack":
        return Slack(self.releases + count, self.sizes + count * (1 + largest))


def connect(cells: Cells, h: float = 1.0) -> tuple[FloatArray, FloatArray]:
    """Connect the dots: the masses that each cell puts at its first and at its last loss.

    A cell of loss range [a, b] and masses p, q becomes masses p_a + p_b = p with p_a e^{−a} + p_b e^{−b} = q.
    """
    high = cells.last * h
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        gap = (cells.last - cells.first) * h
        at_first = (cells.q * np.exp(np.minimum(high, 700.0)) - cells.p) / np.expm1(gap)
    at_first = np.where(cells.last > cells.first, np.clip(at_first, 0.0, cells.p), cells.p)
    return at_first, cells.p - at_first


def dots(cells: Cells, h: float) -> tuple[int, FloatArray, float]:
    """(first index, masses on the grid, mass at infinity) of the connected dots."""
    at_first, at_last = connect(cells, h)
    first = int(cells.first.min())
    size = int(cells.last.max()) - first + 1
    mass = np.bincount(cells.first - first, at_first, size)
    mass += np.bincount(cells.last - first, at_last, size)
    mass[0] += cells.p_low
    return first, mass, cells.p_only + cells.p_cut


def tilted(log_mass: FloatArray, losses: FloatArray, tilt: float) -> tuple[FloatArray, float]:
    """(m e^{tℓ} / Σ m e^{tℓ}, logarithm of that sum)."""
    exponent = log_mass + tilt * losses
    largest = float(exponent.max())
    weights = np.exp(exponent - largest)
    total = float(weights.sum())
    return weights / total, largest + math.log(total)


def norm(values: FloatArray) -> float:
    """ℓ₂. Not by BLAS: for so few numbers its threads take longer to wake than to multiply."""
    return math.sqrt(float(np.square(values).sum()))


def transform(mass: FloatArray, length: int) -> FloatArray:
    """Spectrum of the masses on a circle of `length` points."""
    if len(mass) > length:
        mass = np.pad(mass, (0, -len(mass) % length)).reshape(-1, length).sum(axis=0)
    return np.asarray(fft.rfft(mass, length))


def back(spectrum: FloatArray, window: Window, first: int) -> FloatArray:
    """Masses on the window from a spectrum whose index 0 stands for the loss first·h."""
    mass = fft.irfft(spectrum, window.length)
    return np.asarray(np.roll(mass, (first - window.start) % window.length))


def power(spectrum: FloatArray, count: int) -> FloatArray:
    """By repeated squaring: faster than complex ** and no worse in rounding."""
    result = None
    while True:
        if count & 1:
            result = spectrum if result is None else result * spectrum
        count >>= 1
        if not count:
            return np.ones_like(spectrum) if result is None else result
        spectrum = spectrum * spectrum


def rounding_error(length: int, factors: int, norms: float) -> float:
    """Bound on the ℓ₂ norm of the error that the transforms leave in the composed masses.

    A transform of L points errs by at most e = u (8 log₂ L + 16) of its ℓ₂ norm (Higham 2002, Theorem 24.2: about
    7 u log₂ L with good roots of unity), so a spectrum X by e √L ‖m‖ for masses of norm ‖m‖. All spectra are at most 1
    in size, the masses being normalised, so the product of n of them errs by at most the sum of their errors and n
    roundings, times (1 + e)ⁿ; back by the inverse transform, which divides the norm by √L and errs once more.
    `norms`: Σ ‖m‖ over all factors.
    """
    each = ROUNDOFF * (8 * math.log2(length) + 16)
    return each * (norms + 1) * math.exp(min(factors * each, 700.0)) + 4 * ROUNDOFF * factors


def work_of(pairs: Sequence[Weighted], window: Window, tail: float) -> float:
    """Grid points to be filled and transformed."""
    return sum(pair.extent(tail) / window.h + window.length for pair, _ in pairs)


MOST_BLOCKS = 2000  # of suffix sums in numpy
LARGEST_EXPONENT = 700.0  # e to more than that is no number any more

Factor = tuple[FloatArray, int, float, float, float, float, float]


class UpperLaw:
    """The pessimistic loss distribution of composed pairs in one direction, built up factor by factor."""

    def __init__(self, window: Window, pairs: Iterable[Weighted], reverse: bool, tail: float):
        self.window = window
        self._reverse, self._tail = reverse, tail
        self._spectrum = np.ones(window.length // 2 + 1, dtype=complex)
        self._first = 0
        self._log_finite = 0.0
        self._log_scale = 0.0  # Λ
        self._log_moment = 0.0  # Λ(order_up)
        self._norms = 0.0
        self._exponents = 0.0
        self._slack = Slack()
        self._factors = 0
        for pair, count in pairs:
            self.multiply(self.factor(pair), count)

    def factor(self, pair: Pair) -> Factor:
        """The factor of one release.

        Spectrum, first index, log of the finite mass, Λ, Λ(order_up), norm, largest loss.
        """
        w = self.window
        cells = pair.cells(w.h, centred=False, tail=self._tail).turned(self._reverse)
        first, mass, infinite = dots(cells, w.h)
        losses = w.h * (first + np.arange(len(mass)))
        with np.errstate(divide="ignore"):
            log_mass = np.log(mass)
        weights, scale = tilted(log_mass, losses, w.tilt)
        _, moment = tilted(log_mass, losses, w.order_up)
        largest = float(max(-losses[0], losses[-1]))
        finite = math.log1p(-min(infinite, 1 - 1e-16))
        return transform(weights, w.length), first, finite, scale, moment, norm(weights), largest

    def multiply(self, factor: Factor, count: int) -> None:
        spectrum, first, log_finite, scale, moment, size, largest = factor
        self._spectrum = self._spectrum * power(spectrum, count)
        self._first += first * count
        self._log_finite += log_finite * count
        self._log_scale += scale * count
        self._log_moment += moment * count
        self._norms += size * count
        self._exponents += count * (self.window.tilt * largest + abs(scale))
        self._slack = self._slack.plus(largest, count)
        self._factors += count

    def placed(self, window: Window) -> "UpperLaw":
        """The same releases, to be read off a window of the same grid that begins elsewhere."""
        twin = copy.copy(self)  # `multiply` replaces the arrays, so the twins may share them
        twin.window = window
        return twin

    def delta(self, epsilon: float) -> float:
        """Upper bound on δ(ε), for an ε inside the window."""
        w = self.window
        losses, (mass, rounding, above, infinite, share) = w.losses, self._read()
        epsilon -= self._slack.loss  # all losses may be larger by it
        if epsilon < losses[0]:
            return 1.0
        inside = losses > epsilon
        gain = -np.expm1(epsilon - losses[inside])
        with np.errstate(over="ignore", invalid="ignore"):
            weight = gain * np.exp(self._log_scale - w.tilt * losses[inside])
            inner = float((mass[inside] * weight).sum()) + rounding * norm(weight)
        if math.isnan(inner):  # no mass at an infinite weight: noise so small that doubles say nothing
            return 1.0
        return min(1.0, (inner + above) * (1 + 2 * share) + infinite)

    def epsilon(self, delta: float) -> float:
        """Smallest ε ≥ 0 in the window with δ(ε) ≤ δ."""
        losses, (mass, rounding, above, infinite, share) = self.window.losses, self._read()
        h, t = self.window.h, self.window.tilt
        left = (delta - infinite) * (1 - share) - above
        if left <= 0 or t * h > LARGEST_EXPONENT:  # then rounding over one step may be more than any mass
            return math.inf
        # Suffix sums in units of exp(Λ − tℓ_j), by recursion and without cancellation, however far the weights fall:
        # D_j = Σ_{i≥j} m_i e^{−(1+t)(ℓ_i − ℓ_j)} and G_j = Σ_{i≥j} m_i e^{−t(ℓ_i − ℓ_j)} (1 − e^{−(ℓ_i − ℓ_j)}).
        discounted = suffix_sums(mass, (1 + t) * h)
        gain = suffix_sums(-math.expm1(-h) * math.exp(-t * h) * np.append(discounted[1:], 0.0), t * h)
        # The error falls with ε, so over a step it is at most that at its beginning.
        steps = h * np.arange(len(losses))
        gain += rounding * math.exp(t * h) * norm(np.exp(-t * steps) * np.expm1(-steps))
        aim = math.log(left) - self._log_scale + t * losses
        with np.errstate(divide="ignore"):
            enough = np.log(gain) <= aim  # δ(ℓ_j) falls with j
        if not enough[-1]:
            return math.inf
        j = len(enough) - int(np.argmin(enough[::-1])) if not enough.all() else 0
        # over [ℓ_{j−1}, ℓ_j]: δ(ε) = δ(ℓ_j) + (1 − e^{ε − ℓ_j}) D_j
        room = (math.exp(min(float(aim[j]), 700.0)) - float(gain[j])) / max(float(discounted[j]), 1e-300)
        back_by = min(-math.log1p(-room), h) if room < 1 else h
        # all losses may be larger by the slack
        return max(0.0, float(losses[j]) - (back_by if j else 0.0) + self._slack.loss)

    def _read(self) -> tuple[FloatArray, float, float, float, float]:
        """(masses, norm of their error, mass above the window, mass at ∞, share by which rounding may lessen δ)."""
        w = self.window
        masses = np.maximum(back(self._spectrum, w, self._first), 0.0)
        above = math.exp(min(0.0, self._log_moment - w.order_up * (w.top + w.h)))
        share = min(1.0, self._slack.share + 4 * ROUNDOFF * (self._factors + self._exponents + w.length))
        rounding = rounding_error(w.length, self._factors, self._norms)
        return masses, rounding, above, -math.expm1(self._log_finite), share


def suffix_sums(values: FloatArray, fall: float) -> FloatArray:
    """Σ_{i≥j} v_i e^{−(i−j)·fall} for every j."""
    # In blocks over which the factor changes by e³² at most. scipy's filter does it too, for half a second of imports,
    # which many short blocks would take as well.
    size = len(values) if fall == 0 else max(1, int(min(len(values), 32 / abs(fall))))
    if len(values) > MOST_BLOCKS * size:
        from scipy.signal import lfilter

        return np.asarray(lfilter([1.0], [1.0, -math.exp(-fall)], values[::-1])[::-1])
    factors = np.exp(-fall * np.arange(size + 1))
    sums, after = np.empty(len(values)), 0.0
    for first in reversed(range(0, len(values), size)):
        block = values[first : first + size]
        own = factors[: len(block)]
        inside = np.cumsum((block * own)[::-1])[::-1] / own
        sums[first : first + size] = inside + after * factors[1 : len(block) + 1][::-1]
        after = float(sums[first])
    return sums


def lower_epsilon(window: Window, pairs: Sequence[Weighted], reverse: bool, delta: float, tail: float) -> float:
    """Largest ε that some threshold test on the rounded losses shows to be exceeded."""
    h, t = window.h, window.tilt
    under_p = np.ones(window.length // 2 + 1, dtype=complex)
    under_q = under_p.copy()
    first_all, factors, scale_p, scale_q, log_finite, log_up, log_down = 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0
    slack, exponents, norms_p, norms_q = Slack(), 0.0, 0.0, 0.0
    for pair, count in pairs:
        cells = pair.cells(h, centred=True, tail=tail).turned(reverse)
        first = int(cells.first.min())
        p, q = np.bincount(cells.first - first, cells.p), np.bincount(cells.first - first, cells.q)
        losses = h * (first + np.arange(len(p)))
        with np.errstate(divide="ignore"):
            log_p = np.log(p)
            # a Q-mass below floating point is at most that of P at a loss one step lower
            log_q = np.where(q > 1e-290, np.log(q), log_p - losses + h)
        tilted_p, one_p = tilted(log_p, losses, t)
        tilted_q, one_q = tilted(log_q, losses, 1 + t)
        under_p *= power(transform(tilted_p, window.length), count)
        under_q *= power(transform(tilted_q, window.length), count)
        norms_p += count * norm(tilted_p)
        norms_q += count * norm(tilted_q)
        log_up += count * tilted(log_p, losses, window.order_up)[1]
        log_down += count * tilted(log_p, losses, window.order_down)[1]
        scale_p, scale_q = scale_p + count * one_p, scale_q + count * one_q
        log_finite += count * math.log1p(-min(cells.p_only, 1 - 1e-16))
        first_all, factors = first_all + first * count, factors + count
        largest = float(max(-losses[0], losses[-1]))
        slack = slack.plus(largest, count)
        exponents += count * ((1 + t) * largest + abs(one_p) + abs(one_q))
    above, below, period = window.order_up - t, t - window.order_down, h * window.length
    # Rounding moves the sum, by much if there are many releases: placed again, as little above the window as below it.
    start_at = (log_up - log_down - above * period) / (above + below)
    window = replace(window, start=round(start_at / h))
    p_all, q_all = back(under_p, window, first_all), np.maximum(back(under_q, window, first_all), 0.0)
    # Rounding, times the norm of the weights e^{−t·kh}: an endless series, or as many ones as there are points.
    weights = [min(float(window.length), 1 / -math.expm1(-2 * r * h)) if r > 0 else window.length for r in (t, 1 + t)]
    error_p = rounding_error(window.length, factors, norms_p) * math.sqrt(weights[0])
    error_q = rounding_error(window.length, factors, norms_q) * math.sqrt(weights[1])
    # P in units of exp(Λ_P − tτ), Q of exp(Λ_Q − (1 + t)τ)
    thresholds = window.losses
    fall = min(t, below)
    from_above = log_up - scale_p - above * (thresholds + period)
    from_below = log_down - scale_p + (below - fall) * h * window.start - fall * (period - thresholds)
    came_in = np.exp(np.minimum(0.0, from_above)) + np.exp(np.minimum(0.0, from_below))
    share = min(1.0, slack.share + 4 * ROUNDOFF * (factors + window.length + exponents))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        missing = (delta + math.expm1(log_finite)) * np.exp(t * thresholds - scale_p)
        shown = (suffix_sums(p_all, t * h) - came_in - error_p) * (1 - share) - missing
        epsilons = thresholds + np.log(shown) - np.log(suffix_sums(q_all, (1 + t) * h) + error_q)
    best = float(np.max(epsilons, where=shown > 0, initial=-math.inf))
    return max(0.0, best + scale_p - scale_q - 2 * share - slack.loss)


LARGEST_MOMENT = 500.0  # exponent of e^{tℓ} for the largest loss of a release
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
            pieces = pair.pieces(tail).turned(reverse)
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
        self._counts = np.array(counts, dtype=float)
        largest = np.maximum.reduceat(np.abs(self._losses), self._starts)
        self._most = LARGEST_MOMENT / max(float(largest[self._counts > 0].max(initial=0.0)), SMALLEST_LOSS)
        self.infinite = -math.expm1(float(self._counts @ np.array(finite)))
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
