"""Dominating pairs: for each kind of release two distributions P, Q whose loss bounds that of all neighbours.

A pair hands out its *cells* on a loss grid of step h: the outcomes sorted by loss log(P/Q) into ranges
[first·h, last·h], with the exact masses under P and under Q. From these the composer builds an upper bound
(each cell's mass moved to the two ends of its range so that both masses are kept: connect the dots,
Doroshenko et al. 2022) and a lower bound (report only the cell: post-processing). Its *pieces* are the same for a
few ranges of any width, from which moments are bounded at any scale of the losses.

Which pair bounds which release (C: largest contribution of a record, noise σ, rate q; (P, Q) and (Q, P)
both):

* Poisson, add/remove: ((1−q) N(0) + q N(C), N(0)); tight (Zhu, Dong, Wang 2022).
* Poisson, replace-one: ((1−q) N(0) + q N(C), (1−q) N(0) + q N(−C)), the pair dp-accounting uses. Why it
  dominates: let the record contribute v, its replacement v′, both at most C long. For α ≥ 1 advanced joint
  convexity (Balle, Barthe, Gaboardi 2018) gives H_α = q H_α′(N(v) ‖ (1−β) N(0) + β N(v′)) with α′, β free
  of v, v′. Under N(v) this is E (1 − a e^X − b e^Y)₊, a put on a basket of two exponential martingales
  whose log-covariance has the entries |v|², |v − v′|², ⟨v, v − v′⟩. The payoff is convex in the basket,
  hence E grows with every entry of the covariance (differentiate along a straight line of covariances: all
  terms are nonnegative), and v = −v′, |v| = C makes all three largest at once. α < 1 follows by exchanging
  the two.
* fixed-size lots without replacement: whether a record enters decides who leaves, so a lot changes by a
  *swap*, 2C. Add/remove: ((1−q) N(0) + q N(2C), N(0)), by coupling: draw the lot without the record, then
  let it take a random place with probability q, and use joint convexity. Replace-one: by advanced joint
  convexity H_α ≤ q δ_{2C}(α′) for α ≥ 1, which is H_α of the same pair, and α < 1 is its mirror image; the
  profile is the larger of both directions at every point (Dong, Roth, Su 2022: C_p(f)), attained by no
  single direction, so the pair is *symmetrised*.
* lots clipped as a whole to a ball of radius C: the value of a lot with the record and without it lie anywhere in the
  ball, at most 2C apart, and so do those with one record and with another. Both pairs of fixed-size lots follow by the
  same steps, whether the lot is drawn by coins or of fixed size: with the others drawn, the record joins at rate q.
* full batch, one-pass lots: q = 1 with shift C, or 2C for replace-one.
* other noises: the same with their density in place of the Gaussian. Poisson sampling under replace-one is
  bounded by the symmetrised pair of shift 2C (the first step above, and H_α′ convex in its second
  argument).

`Grouping` has a few Gaussian pairs stand for thousands of different μ, from above or from below. All of a group take
its largest μ for the upper bound (less noise dominates more noise: the difference can be added afterwards) and its
smallest for the lower. Groups are narrow where the cost of one more step reacts to μ and wide elsewhere; that choice
only affects how close the bounds are.
"""

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from gossamer.accounting.profiles import FloatArray, Noise

TAIL = 1e-19  # mass beyond the cells on either side, unless given
PIECES = 200  # around each place where a pair has its mass


@dataclass(frozen=True)
class Cells:
    """Outcomes by loss: cell j has its loss within [first_j, last_j]·h and the masses p_j, q_j.

    p_only, q_only: mass where the other distribution has none. Far tails left out of the cells: p_cut and q_high lie
    at losses above them, p_low and q_cut below. A tail above counts as an infinite loss and one below as the
    smallest loss of the cells, both never too little.
    """

    first: FloatArray  # whole numbers on a grid; of pieces the losses themselves, h = 1
    last: FloatArray
    p: FloatArray
    q: FloatArray
    p_only: float = 0.0
    q_only: float = 0.0
    p_cut: float = 0.0
    q_cut: float = 0.0
    p_low: float = 0.0
    q_high: float = 0.0

    def turned(self, reverse: bool) -> "Cells":
        """The pair (Q, P), if reversed."""
        if not reverse:
            return self
        tails = self.q_only, self.p_only, self.q_cut, self.p_cut, self.q_high, self.p_low
        return Cells(-self.last, -self.first, self.q, self.p, *tails)

    def symmetrised(self) -> "Cells":
        """The larger of the profiles of (P, Q) and (Q, P) at each ε.

        These are the positive losses of the pair, their mirror images, and the rest of the mass at loss 0,
        which must be an end of cells or the middle of one.
        """
        keep = self.first >= 0
        keep &= self.last > 0
        first, last, p, q = self.first[keep], self.last[keep], self.p[keep], self.q[keep]
        rest = max(0.0, 1 - float(p.sum() + q.sum()) - self.p_only - self.p_cut)
        zero = np.zeros(1, dtype=np.int64)
        ranges = np.concatenate([-last, zero, first]), np.concatenate([-first, zero, last])
        masses = np.concatenate([q, [rest], p]), np.concatenate([p, [rest], q])
        tails = self.p_only, self.p_only, self.p_cut, self.p_cut, self.q_high, self.q_high
        return Cells(*ranges, *masses, *tails)


class Pair(Protocol):
    """Anything that can sort its outcomes by loss."""

    def cells(self, h: float, *, centred: bool, tail: float = TAIL) -> Cells:
        """`centred`: cells [i − ½, i + ½]·h reported as first = last = i, for the lower bound.

        At most `tail` of the mass that would count as an infinite loss is left out of them.
        """
        ...

    def pieces(self, tail: float = TAIL) -> Cells:
        """A few cells off the grid, with losses in place of indices."""
        ...

    def extent(self, tail: float = TAIL) -> float:
        """Width of the range of losses that the cells cover."""
        ...

    @property
    def both_ways(self) -> bool:
        """True if (Q, P) has to be composed as well."""
        ...

    @property
    def distance(self) -> float:
        """A bound on the total variation of P and Q."""
        ...


@dataclass(frozen=True)
class GaussianPair:
    """The Gaussian pairs above in units of σ: `mu` is the shift, C/σ or 2C/σ."""

    mu: float
    rate: float = 1.0
    kind: str = "one-sided"  # or "two-sided" (Poisson replace-one), "symmetrised" (fixed-size replace-one)

    @property
    def both_ways(self) -> bool:
        return self.kind == "one-sided" and self.rate < 1

    @property
    def distance(self) -> float:
        between = 2 * self.mu if self.kind == "two-sided" else self.mu
        return self.rate * math.erf(between / math.sqrt(8)) * (1 + 1e-12)

    def extent(self, tail: float = TAIL) -> float:
        low, high = self._loss(self._ends(tail))
        return float(high - low)

    def cells(self, h: float, *, centred: bool, tail: float = TAIL) -> Cells:
        low, high = self._loss(self._ends(tail))
        # index i ↔ loss i·h; centred cells begin half a step earlier
        start, stop = math.floor(low / h), max(math.ceil(high / h), math.floor(low / h) + 1) + centred
        index = np.arange(start, stop + 1)
        # where cells are narrower than rounding, outcomes must not change places
        z = np.maximum.accumulate(self._outcome((index - 0.5 * centred) * h))
        return self._between(z, index[:-1], index[:-1] if centred else index[1:])

    def pieces(self, tail: float = TAIL) -> Cells:
        low, high = self._ends(tail)
        reach = _reach(tail)
        around = np.linspace(-reach, reach, PIECES + 1)
        # the loss 0 must be an end of pieces
        edges = [low, high, *around, *(around + self.mu), 0.0 if self.kind == "two-sided" else self.mu / 2]
        if self.kind == "two-sided":
            edges.extend(around - self.mu)
        z = np.unique(np.clip(edges, low, high))
        loss = self._loss(z)
        if self.kind == "symmetrised":
            loss[z == self.mu / 2] = 0.0
        return self._between(z, loss[:-1], loss[1:])

    def _ends(self, tail: float) -> FloatArray:
        """Outcomes beyond which at most `tail` is left of what would count as an infinite loss, either way."""
        high = max(self.mu + _reach(tail / self.rate), _reach(tail))
        return np.array([-high if self.kind == "two-sided" else -_reach(tail), high])

    def _between(self, z: FloatArray, first: FloatArray, last: FloatArray) -> Cells:
        """Masses between outcomes."""
        still, moved = normal_masses(z), normal_masses(z - self.mu)
        q = self.rate
        p_mass = (1 - q) * still + q * moved
        q_mass = (1 - q) * still + q * normal_masses(z + self.mu) if self.kind == "two-sided" else still
        cells = Cells(
            first,
            last,
            p_mass[1:-1],
            q_mass[1:-1],
            p_cut=float(p_mass[-1]),
            q_cut=float(q_mass[0]),
            p_low=float(p_mass[0]),
            q_high=float(q_mass[-1]),
        )
        return cells.symmetrised() if self.kind == "symmetrised" else cells

    def _loss(self, z: FloatArray) -> FloatArray:
        up = self.mu * z - self.mu**2 / 2
        if self.rate == 1:
            return 2 * self.mu * z if self.kind == "two-sided" else up
        stay, go = math.log1p(-self.rate), math.log(self.rate)
        loss = np.logaddexp(stay, go + up)
        if self.kind == "two-sided":
            loss = loss - np.logaddexp(stay, go - self.mu * z - self.mu**2 / 2)
        return np.asarray(loss)

    def _outcome(self, loss: FloatArray) -> FloatArray:
        """The z whose loss it is; −∞ below the smallest possible loss log(1 − q)."""
        if self.kind == "two-sided":
            if self.rate == 1:
                return loss / (2 * self.mu)
            # sinh(μz − l/2) = c sinh(l/2), c = e^{μ²/2} (1 − q)/q; by logarithms, as c can be huge
            half = np.abs(loss) / 2
            log_c = self.mu**2 / 2 + math.log1p(-self.rate) - math.log(self.rate)
            with np.errstate(divide="ignore"):
                log_x = log_c + half + np.log(-np.expm1(-2 * half) / 2)
            turn = np.where(log_x < 300, np.arcsinh(np.exp(np.minimum(log_x, 300))), log_x + math.log(2))
            return np.asarray(np.sign(loss) * (half + turn) / self.mu)
        with np.errstate(divide="ignore", over="ignore"):
            # beyond 300 the 1 − q does not count, and e^loss / q must not overflow
            ratio = np.maximum((np.expm1(np.minimum(loss, 300.0)) + self.rate) / self.rate, 0.0)
            log_ratio = np.where(loss < 300, np.log(ratio), loss - math.log(self.rate))
        if self.rate == 1:
            log_ratio = loss
        return np.asarray(log_ratio / self.mu + self.mu / 2)


@dataclass(frozen=True)
class NoisePair:
    """Noise moved by `shift` (mixed with unmoved noise at a rate below 1) against unmoved noise."""

    noise: Noise
    shift: float
    rate: float = 1.0
    kind: str = "one-sided"  # or "symmetrised"

    @property
    def both_ways(self) -> bool:
        return self.kind == "one-sided" and self.rate < 1

    @property
    def distance(self) -> float:
        return self.rate

    def extent(self, tail: float = TAIL) -> float:
        reach = self._reach(tail)
        x = np.array([reach, reach - self.shift, -reach, self.shift - reach])
        losses = self.noise.log_weight(x - self.shift) - self.noise.log_weight(x)
        return 2 * float(np.max(np.abs(losses[np.isfinite(losses)]), initial=1e-6))

    def cells(self, h: float, *, centred: bool, tail: float = TAIL) -> Cells:
        fine = self._outcomes(int(np.clip(2 * self.extent(tail) / h, 256, 200_000)), tail)
        least, most = fine.first, fine.last
        tiny = 1e-12  # a loss on a grid point up to rounding belongs to that point
        if centred:
            first = last = np.rint((least + most) / (2 * h)).astype(np.int64)
        else:
            first = np.floor(least / h + tiny).astype(np.int64)
            last = np.maximum(np.ceil(most / h - tiny), first + 1).astype(np.int64)
        cells = replace(fine, first=first, last=last)
        return cells.symmetrised() if self.kind == "symmetrised" else cells

    def pieces(self, tail: float = TAIL) -> Cells:
        pieces = self._outcomes(2 * PIECES, tail)
        return pieces.symmetrised() if self.kind == "symmetrised" else pieces

    def _reach(self, tail: float) -> float:
        """The distance at which the noise ends, or is taken to end.

        The support of a truncated noise is taken for smaller where that gives away no more than `tail` of the moved
        one.
        """
        far = self.noise.reach(tail)
        return min(self.noise.bound, far + self.shift) if math.isfinite(self.noise.bound) else far

    def _outcomes(self, count: int, tail: float) -> Cells:
        """The outcomes in about `count` ranges with their least and largest losses."""
        reach, shift, q = self._reach(tail), self.shift, self.rate
        # the loss is monotone between these points, so its range over a cell is its values at the ends
        marks = [-reach, shift - reach, 0.0, shift / 2, shift, reach, shift + reach]
        # a Laplace loss changes only on the way from 0 to the shift
        outer = 64 if self.noise.shape == 1 else count
        spread = [np.linspace(-reach, shift + reach, outer), np.linspace(0, shift, count)]
        edges = np.unique(np.concatenate([*spread, marks]))
        low, high = edges[:-1], edges[1:]
        still, moved = self.noise.between(low, high), self.noise.between(low - shift, high - shift)
        bounded = math.isfinite(self.noise.bound)
        middle = (low + high) / 2
        in_still = np.abs(middle) <= reach if bounded else np.ones_like(middle, dtype=bool)
        in_moved = np.abs(middle - shift) <= reach if bounded else in_still
        both = in_still & in_moved
        only_moved, only_still = in_moved & ~in_still, in_still & ~in_moved

        def loss(x: FloatArray) -> FloatArray:
            # inside the common support; clip so that rounding at its ends cannot step outside
            inner = np.clip(x, shift - reach, reach) if bounded else x
            base = self.noise.log_weight(inner - shift) - self.noise.log_weight(inner)
            return base if q == 1 else np.logaddexp(math.log1p(-q), math.log(q) + base)

        at_low, at_high = loss(low[both]), loss(high[both])
        least, most = np.minimum(at_low, at_high), np.maximum(at_low, at_high)
        p_mass, q_mass = (1 - q) * still[both] + q * moved[both], still[both]
        if q < 1 and only_still.any():
            # Outcomes that the moved noise cannot give: P has its unmoved share, loss log(1−q).
            edge = np.array([math.log1p(-q)])
            least, most = np.concatenate([least, edge]), np.concatenate([most, edge])
            mass = float(still[only_still].sum())
            p_mass, q_mass = np.append(p_mass, (1 - q) * mass), np.append(q_mass, mass)
        beyond = 0.0 if reach == self.noise.bound else tail
        return Cells(
            least,
            most,
            p_mass,
            q_mass,
            p_only=q * float(moved[only_moved].sum()),
            q_only=float(still[only_still].sum()) if q == 1 else 0.0,
            p_cut=beyond,
            q_cut=beyond,
            p_low=beyond,
            q_high=beyond,
        )


def _reach(tail: float) -> float:
    """Standard deviations beyond which a Gaussian has this much mass."""
    return -math.inf if tail >= 1 else -float(ndtri(tail))


def normal_masses(edges: FloatArray) -> FloatArray:
    """Standard-normal masses: below the first edge, between edges, above the last; accurate in both tails."""
    beyond = np.concatenate([[0.0], ndtr(-np.abs(edges)), [0.0]])  # mass outside |edge| on its own side
    right = np.concatenate([[False], edges > 0, [True]])
    step = np.diff(beyond)
    across = ~right[:-1] & right[1:]
    return np.asarray(np.where(across, 1 - beyond[:-1] - beyond[1:], np.where(right[:-1], -step, step)))


COARSE_GROUPS = 12


Weighted = tuple[Pair, int]  # a pair, and how often it is composed


class Grouping:
    """Gaussian pairs equal but for μ, cut into ranges of μ; other pairs stay as they are."""

    def __init__(self, pairs: Iterable[Weighted], per_family: int):
        families: dict[tuple[float, str], dict[float, int]] = {}
        others: dict[Pair, int] = {}
        for pair, count in pairs:
            if isinstance(pair, GaussianPair):
                members = families.setdefault((pair.rate, pair.kind), {})
                members[pair.mu] = members.get(pair.mu, 0) + count
            else:
                others[pair] = others.get(pair, 0) + count
        self._families = {GaussianPair(1.0, *family): sorted(members.items()) for family, members in families.items()}
        self._others = list(others.items())
        # position of each μ on a scale whose unit is one group
        self._scale = {
            family: spread(np.log([mu for mu, _ in members]), per_family) for family, members in self._families.items()
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
            members = self._families[family]
            if len(members) <= COARSE_GROUPS:  # few enough to be told apart
                self._scale[family] = np.arange(len(members), dtype=float)
                continue
            positions = np.concatenate([[0.0], np.cumsum(root)[:-1]])
            # No group is wider than a factor of e: slopes at a few knots say nothing of what lies so far apart.
            widths = np.log([mu for mu, _ in members]) - math.log(members[0][0])
            self._scale[family] = positions * (total / error) + widths

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
            GaussianPair(mu, family.rate, family.kind): replace(family, mu=members[-1][0])
            for family, members in self._groups()
            for mu, _ in members
        }

    def _groups(self) -> Iterator[tuple[GaussianPair, list[tuple[float, int]]]]:
        for family, members in self._families.items():
            cell = np.floor(self._scale[family])
            cuts = [0, *(np.flatnonzero(np.diff(cell)) + 1), len(members)]
            for begin, end in itertools.pairwise(cuts):
                yield family, members[begin:end]


def spread(x: FloatArray, groups: int) -> FloatArray:
    width = (x[-1] - x[0]) / groups
    return np.zeros_like(x) if width == 0 else np.minimum((x - x[0]) / width, groups - 0.5)
