"""Sums of independent likelihood ratios, bounded in the convex order from above and from below.

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
less than ROUNDING in all, whatever n.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numba as nb
import numpy as np
from scipy.special import ndtr

from gossamer.accounting.profiles import FloatArray

POINTS = 900  # of a law; what is lost by them falls with their square
ROUNDING = 2e-13  # of E X = 1, see above
_ROUGH = 250  # points of the laws that only say where to put points
_TAILS = (1e-17, 1e-9, 1e-3)  # a third of the points between the quantiles of each


@dataclass(frozen=True)
class Law:
    x: FloatArray
    q: FloatArray
    excess: float = 0.0  # Σ q x + excess = E X

    @property
    def mean(self) -> float:
        return float(self.q @ self.x) + self.excess


def log_normal(mu: float, *, upper: bool, points: int = POINTS) -> Law:
    """N(μ, 1) against N(0, 1): X = exp(μ z − μ²/2)."""
    reach = np.array([6.0, 3.1, 8.5])
    z = np.concatenate([np.linspace(-r, mu + r, points // len(reach)) for r in reach])
    edges = _apart(np.exp(mu * z - mu * mu / 2))
    at = np.log(edges) / mu + mu / 2
    return _closed(edges, _masses(at), _masses(at - mu), upper)


def add(a: Law, b: Law, *, upper: bool, points: int = POINTS) -> Law:
    edges = _edges(a, b, points)
    q, p = _gather(a.x, a.q, b.x, b.q, edges)
    found = _closed(edges, q, p, upper)
    return Law(found.x, found.q, found.excess + a.excess + b.excess)


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
    """Where the sum will be: a rough sum tells. This choice affects only how close the bounds are."""
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
    return _apart(np.concatenate(parts))


def _apart(edges: FloatArray) -> FloatArray:
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


def _masses(z: FloatArray) -> FloatArray:
    """Standard-normal masses below the first z, between them, above the last; accurate in both tails."""
    beyond = np.concatenate([[0.0], ndtr(-np.abs(z)), [0.0]])
    right = np.concatenate([[False], z > 0, [True]])
    step = np.diff(beyond)
    across = ~right[:-1] & right[1:]
    return np.asarray(np.where(across, 1 - beyond[:-1] - beyond[1:], np.where(right[:-1], -step, step)))


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
