"""Passes of disjoint lots, and what each may be counted as.

* One-pass lots: a record is in one lot of each pass, so a pass costs its worst release, each priced as a full batch.
* Balls and bins: the same at least. If all its lots have Gaussian noise, being in a secret one of them hides a record,
  and a pass is one pair, under add/remove.

That a record is in one lot only is believed of a ledger whose lots have numbers, each once a pass and below the number
of lots. Where they do not, every release counts as a full batch of its own.

Balls and bins
--------------
A record chooses one of T lots, uniformly, independently of all others, in secret, again in every pass.
Lot t releases a sum in which the record has a part of norm at most C if it is in there, with Gaussian noise σ_t. With
μ_t = C/σ_t and add/remove of one record the pair

    P = 1/T Σ_t N(μ_t e_t, I)    against    Q = N(0, I)    in as many dimensions as lots were released

dominates in both directions, also if each lot's sums depend on everything released before. Proof: fix the other
records and their lots; they have the same law on both sides, so whoever simulates may draw them. Let z_t be coordinate
t of an outcome of P or Q. Once the first t − 1 releases are made, the part v_t that the record would have in lot t is
known, with c = |v_t|/C ≤ 1. Release

    others' sum + σ_t (c z_t + √(1 − c²) g) v_t/|v_t| + σ_t G,      g ~ N(0, 1), G ~ N(0, I) orthogonal to v_t.

Under Q that is the others' sum with noise N(0, σ_t² I); under P, given that the record fell into lot s, it is moved by
v_t if t = s: exactly the two mechanisms, step by step. So what everyone sees is post-processing of z. ∎ It needs that
nothing else depends on the record's lot, and σ_t that were fixed before the pass. A lot that was not released has no
coordinate: the record may have fallen there, and its term in P is Q itself.

What it costs: dP/dQ = 1/T Σ_t X_t with independent X_t = exp(μ_t z_t − μ_t²/2), and 1 for a lot that was not released.
`Law` bounds the law of such a sum from above and below in the convex order, for both directions at once.

Convex order
------------
A likelihood ratio X = dP/dQ is here its law under Q: values x ≥ 0 with masses q, E X = 1. All that privacy asks of it
is convex in it: H_α(P‖Q) = E (X − α)₊ and H_α(Q‖P) = E (1 − α X)₊. If X ≤_cx Y, which says E f(X) ≤ E f(Y) for every
convex f, then Y costs at least as much, in both directions at once; and X₁ + X₂ ≤_cx Y₁ + Y₂ for independent ones. So
a sum may be put on a few points after every addition, however many terms it has:

* upper: the mass of a cell [a, b) goes to a and b so that its mass and its mean stay (a mean-preserving spread). Below
  the first point the other end is 0. Above the last point the mass stays there, and the rest of the mean goes to
  infinity (the limit of spreads to b → ∞): `excess`, an outcome that only P has.
* lower: the mass of a cell goes to its mean (Jensen).

Rounding. Relative errors θ of the masses, which sum to 1, and errors u·x in where a mass lies move E f(S), for a sum S
of n such terms and f convex of slope at most 1, by at most n times 2θ + u. θ is below 300 u for the masses of a
log-normal (the argument of Φ is rounded by u|z|, |z| ≤ 15, and its tail reacts |z| times as much) and below 10 u for
one addition (a product, a compensated sum, a split), of which a term passes through 2 log₂ n. Of the mean n that is
less than ROUNDING in all, for any n.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numba as nb
import numpy as np

from gossamer.accounting.pairs import TAIL, Cells, normal_masses
from gossamer.accounting.profiles import FloatArray
from gossamer.accounting.releases import Counted, Release

POINTS = 900  # of a law; what is lost by them falls with their square
ROUNDING = 2e-13  # of E X = 1, see above
_ROUGH = 250  # points of the laws that only say where to put points
_TAILS = (1e-17, 1e-9, 1e-3)  # a third of the points between the quantiles of each


@dataclass(frozen=True)
class Law:
    x: FloatArray
    q: FloatArray
    excess: float = 0.0  # Σ q x + excess = E X


def log_normal(mu: float, *, upper: bool, points: int = POINTS) -> Law:
    """N(μ, 1) against N(0, 1): X = exp(μ z − μ²/2)."""
    reach = np.array([6.0, 3.1, 8.5])
    z = np.concatenate([np.linspace(-r, mu + r, points // len(reach)) for r in reach])
    edges = _spaced(np.exp(mu * z - mu * mu / 2))
    at = np.log(edges) / mu + mu / 2
    return _closed(edges, normal_masses(at), normal_masses(at - mu), upper)


def add(a: Law, b: Law, *, upper: bool, points: int = POINTS) -> Law:
    edges = _edges(a, b, points)
    q, p = _gather(a.x, a.q, b.x, b.q, edges)
    total = _closed(edges, q, p, upper)
    return Law(total.x, total.q, total.excess + a.excess + b.excess)


def log_normals(mu: float, count: int, *, upper: bool, points: int = POINTS) -> Law:
    """The sum of so many independent ones, by doubling; passes that share noise share the doubled laws."""
    powers = [k for k in range(count.bit_length()) if count >> k & 1]
    total = _doubled(mu, powers[0], upper, points)
    for k in powers[1:]:
        total = add(total, _doubled(mu, k, upper, points), upper=upper, points=points)
    return total


@lru_cache(maxsize=2048)
def _doubled(mu: float, times: int, upper: bool, points: int) -> Law:
    if times == 0:
        return log_normal(mu, upper=upper, points=points)
    half = _doubled(mu, times - 1, upper, points)
    return add(half, half, upper=upper, points=points)


def _closed(edges: FloatArray, q: FloatArray, p: FloatArray, upper: bool) -> Law:
    """The law from the masses q and the means p (times q) of the cells [0, e₀), [e₀, e₁), …, [e_n, ∞)."""
    if not upper:
        some = q > 0
        low, high = np.concatenate([[0.0], edges])[some], np.concatenate([edges, [np.inf]])[some]
        return Law(np.clip(p[some] / q[some], low, high), q[some] / q.sum())
    ends = np.concatenate([[0.0], edges])
    low, width = ends[:-1], np.diff(ends)
    up = np.clip((p[:-1] - low * q[:-1]) / width, 0.0, q[:-1])
    mass = np.zeros(len(ends))
    mass[:-1] += q[:-1] - up
    mass[1:] += up
    mass[-1] += q[-1]
    return Law(ends, mass / mass.sum(), max(0.0, float(p[-1] - edges[-1] * q[-1])))


def _edges(a: Law, b: Law, points: int) -> FloatArray:
    """The range of the sum, from a rough sum. This choice affects only how close the bounds are."""
    a, b = _merged(a), _merged(b)
    low, high = a.x[0] + b.x[0], a.x[-1] + b.x[-1]
    wide = np.geomspace(low, high, 2 * _ROUGH)
    q, p = _gather(a.x, a.q, b.x, b.q, wide)
    below, above = np.cumsum(q)[1:-1], np.cumsum(p[::-1])[::-1][1:-1] / p.sum()
    parts = []
    for tail in _TAILS:
        start = wide[max(0, int(np.searchsorted(below, tail)) - 1)]
        stop = wide[min(len(wide) - 1, len(above) - int(np.searchsorted(above[::-1], tail)) + 1)]
        parts.append(np.geomspace(start, max(stop, start), points // len(_TAILS)))
    return _spaced(np.concatenate(parts))


def _spaced(edges: FloatArray) -> FloatArray:
    """Sorted, without points so close to the one before that rounding would be most of what is between them."""
    logs = np.log(np.sort(edges))
    least = 1e-3 * (logs[-1] - logs[0]) / len(edges)
    return np.asarray(np.exp(logs[np.concatenate([[True], np.diff(logs) > least])]))


def _merged(law: Law) -> Law:
    positive = law.x > 0
    x, q = law.x[positive], law.q[positive]
    starts = np.arange(0, len(x), max(1, len(x) // _ROUGH))
    mass, mean = np.add.reduceat(q, starts), np.add.reduceat(q * x, starts)
    some = mass > 0
    return Law(mean[some] / mass[some], mass[some])


@nb.njit(nogil=True, cache=True)
def _gather(xa: Any, qa: Any, xb: Any, qb: Any, edges: Any) -> Any:
    """Masses and means (times masses) of X_a + X_b in the cells [0, e₀), [e₀, e₁), …, [e_n, ∞); compensated sums."""
    n = len(edges)
    q, p = np.zeros(n + 1), np.zeros(n + 1)
    q_lost, p_lost = np.zeros(n + 1), np.zeros(n + 1)
    for i in range(len(xa)):
        j = 0
        for k in range(len(xb)):
            x = xa[i] + xb[k]
            while j < n and x >= edges[j]:
                j += 1
            mass = qa[i] * qb[k]
            term = mass - q_lost[j]
            total = q[j] + term
            q_lost[j] = (total - q[j]) - term
            q[j] = total
            term = mass * x - p_lost[j]
            total = p[j] + term
            p_lost[j] = (total - p[j]) - term
            p[j] = total
    return q, p


PIECES = 64  # for moments; points between two of them are taken together
LARGEST_SHIFT = 6.0  # of a lot: beyond it, one record outweighs all that the others could hide


@dataclass(frozen=True)
class BallsAndBinsPair:
    """`shifts`: (μ, how many lots were released with it); `lots`: T; `points`: of the laws that bound it."""

    shifts: tuple[tuple[float, int], ...]
    lots: int
    points: int = POINTS

    def __post_init__(self) -> None:
        if not 0 < sum(count for _, count in self.shifts) <= self.lots:
            raise ValueError(f"{self.shifts} are not some of {self.lots} lots")

    @property
    def both_ways(self) -> bool:
        return True

    @property
    def distance(self) -> float:
        """The law from above is larger in the convex order, and so is its total variation."""
        law = self._ratio(upper=True)
        return float(law.q @ np.maximum(law.x - 1, 0)) + law.excess + ROUNDING

    def extent(self, tail: float = TAIL) -> float:
        law = self._ratio(upper=True)
        return float(np.ptp(np.log(law.x[law.x > 0])))

    def pieces(self, tail: float = TAIL) -> Cells:
        """Neighbouring points together, between the least and the largest loss of each."""
        law = self._ratio(upper=True)
        order = np.argsort(law.x)
        x, q = law.x[order], law.q[order]
        some = x > 0
        loss, p, q_some = np.log(x[some]), (q * x)[some], q[some]
        starts = np.unique(np.linspace(0, max(len(loss) - 1, 0), PIECES + 1)[:-1].astype(int))
        return Cells(
            loss[starts],
            np.maximum.reduceat(loss, starts),
            np.add.reduceat(p, starts),
            np.add.reduceat(q_some, starts),
            p_only=law.excess,
            q_only=float(q[~some].sum()),
            p_cut=ROUNDING,
            q_cut=ROUNDING,
        )

    def cells(self, h: float, *, centred: bool, tail: float = TAIL) -> Cells:
        law = self._ratio(upper=not centred)
        some = law.x > 0
        x, q = law.x[some], law.q[some]
        loss = np.log(x) / h
        first = np.rint(loss) if centred else np.floor(loss)
        return Cells(
            first.astype(np.int64),
            first.astype(np.int64) + (not centred),
            q * x,
            q,
            p_only=law.excess,
            q_only=float(law.q[~some].sum()),
            p_cut=0.0 if centred else ROUNDING,
            q_cut=0.0 if centred else ROUNDING,
        )

    def _ratio(self, *, upper: bool) -> Law:
        return ratio(self.shifts, self.lots, upper, self.points)


def ratio(shifts: tuple[tuple[float, int], ...], lots: int, upper: bool, points: int = POINTS) -> Law:
    """The law of dP/dQ under Q, from above or from below in the convex order."""
    total = _sum(shifts, upper, points)
    hidden = lots - sum(count for _, count in shifts)
    return Law((total.x + hidden) / lots, total.q, total.excess / lots)


@lru_cache(maxsize=2048)
def _sum(shifts: tuple[tuple[float, int], ...], upper: bool, points: int) -> Law:
    """Σ X_t over the released lots; a pass and its beginning share what they have in common."""
    last = log_normals(*shifts[-1], upper=upper, points=points)
    if len(shifts) == 1:
        return last
    return add(_sum(shifts[:-1], upper, points), last, upper=upper, points=points)


DISTINCT = 20  # different μ that are priced as they are; where there are more, they are rounded up
STEP, MOST_STEPS = 1.02, 200  # to powers of this, but to no more of them
ROUGH_STEP, ROUGH_POINTS = 1.1, 300  # where a rough figure will do
ROUGH = 0.05  # a tolerance from which on it will


@dataclass(frozen=True)
class Sorted:
    alone: list[Counted]  # all of them count
    disjoint: list[list[Release]]  # passes: one of each counts
    hidden: list[BallsAndBinsPair]  # passes whose secret lots count
    rounded: bool  # were μ rounded up?


def sort(counted: Sequence[Counted], *, amplified: bool, tolerance: float = 0.01) -> Sorted:
    """`amplified`: with the secrecy of balls-and-bins lots, for Gaussian noise under add/remove.

    `tolerance`: how far above the true figure one may come; the figure holds for any value.
    """
    alone: list[Counted] = []
    passes: dict[tuple[bool, int | None], list[Counted]] = {}
    for release, count in counted:
        if release.in_passes:
            drawn = release.sampling == "balls-and-bins"
            number = release.pass_number if drawn else release.pass_number or 0
            passes.setdefault((drawn, number), []).append((release, count))
        else:
            alone.append((release, count))
    disjoint: list[list[Release]] = []
    secret: list[list[Release]] = []
    for (drawn, number), lots in passes.items():
        if drawn and (number is None or not _is_a_pass(lots)):
            alone.extend(lots)
            continue
        hides = drawn and amplified and all(_hides(lot) for lot, _ in lots)
        (secret if hides else disjoint).append([lot for lot, _ in lots])
    hidden, rounded = _as_pairs(secret, rough=tolerance >= ROUGH)
    return Sorted(alone, disjoint, hidden, rounded)


def hidden_lots(releases: Iterable[Release]) -> bool:
    """May the secrecy of lots lower the price of some of them?"""
    return any(release.sampling == "balls-and-bins" and _hides(release) for release in releases)


def lots_of(release: Release) -> int | None:
    """T of a balls-and-bins lot; None where its rate is not one in so many."""
    lots = round(1 / release.rate)
    return lots if math.isclose(lots * release.rate, 1, rel_tol=1e-9) else None


def _is_a_pass(counted: Sequence[Counted]) -> bool:
    lots = {lots_of(release) for release, _ in counted}
    numbers = [release.lot_number for release, count in counted for _ in range(count)]
    if len(lots) > 1 or (most := lots.pop()) is None or len(set(numbers)) < len(numbers):
        return False
    return all(number is not None and 0 <= number < most for number in numbers)


def _hides(release: Release) -> bool:
    mu = release.pair("add-remove")
    return isinstance(mu, float) and mu <= LARGEST_SHIFT and release.rate < 1


def _as_pairs(passes: Sequence[Sequence[Release]], *, rough: bool) -> tuple[list[BallsAndBinsPair], bool]:
    """(each pass as a pair, whether μ were rounded up)."""
    mus = [[_mu(lot) for lot in lots] for lots in passes]
    known = {mu for own in mus for mu in own}
    rounded = len(known) > DISTINCT
    level = _levels(known, ROUGH_STEP if rough else STEP) if rounded else {mu: mu for mu in known}
    points = ROUGH_POINTS if rough else POINTS
    pairs = []
    for own, lots in zip(mus, passes, strict=True):
        counts, total = Counter(level[mu] for mu in own), lots_of(lots[0])
        assert total is not None
        pairs.append(BallsAndBinsPair(tuple(sorted(counts.items())), total, points))
    return pairs, rounded


def _levels(known: set[float], step: float) -> dict[float, float]:
    """μ → a power of `step` no smaller, but never above the largest: less noise dominates more.

    The same powers in all compositions, so that the laws of one prefix or one scale serve the others.
    """
    largest = max(known)
    step = max(step, (largest / min(known)) ** (1 / MOST_STEPS))
    up = {mu: step ** math.ceil(math.log(mu) / math.log(step)) for mu in known}
    return {mu: max(mu, min(power, largest)) for mu, power in up.items()}


def _mu(lot: Release) -> float:
    """A little more than μ, by 2⁻³⁴ of it at most: the same noise on other sensitivities differs in the last digits."""
    mu = lot.pair("add-remove")
    assert isinstance(mu, float)
    mantissa, exponent = math.frexp(mu)
    return math.ldexp(round(mantissa * 2**36) + 1, exponent - 36)
