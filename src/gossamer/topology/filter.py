"""Exact means on a fixed undirected graph: x ← (W − λ I) x / (1 − λ) for every eigenvalue λ ≠ 1 of W, each once.

Each step takes away what lies along the eigenvectors of one λ and leaves the mean as it is, so after all of them
nothing but the mean is left. In which order matters: Leja's keeps the products between small and large.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import UserError
from gossamer.topology.schedule import Topology

Floats = NDArray[np.float64]
TOLERANCE = (
    1e-8  # of the largest value: the error of a mean must stay below, and masks are far larger than noise
)
SAME = 1e-10  # eigenvalues nearer to each other than this are one
LARGEST = 2000  # nodes: dense eigenvalues take seconds
_ROUNDING = np.finfo(np.float64).eps / 2


@dataclass(frozen=True)
class Filter:
    """The eigenvalues in the order of their steps, and how far off a mean may be, as a share of the largest value."""

    eigenvalues: tuple[float, ...]
    error: float

    @property
    def exchanges(self) -> int:
        return len(self.eigenvalues)

    def mean(self, values: Any, exchange: Any) -> Any:
        """`values` and what is exchanged in double precision; `exchange` is one product with W."""
        for value in self.eigenvalues:
            mixed = exchange(values)
            # λ = 0, which a complete graph has alone, needs no step of its own after the exchange.
            values = mixed if value == 0 else (mixed - value * values) / (1 - value)
        return values


@lru_cache(maxsize=8)
def filter_of(topology: Topology) -> Filter:
    """The filter of a topology that has one, or a sentence about why not."""
    key = f"algorithm.mixes = 'exact' with topology.kind = {topology.kind!r}"
    if topology.period != 1:
        raise UserError(
            f"{key} needs links that stay, and these change from round to round; use 'one-peer-exponential', or a "
            "fixed undirected graph such as 'ring', without dropout and slow links."
        )
    weights = topology.weights(0)
    if abs(weights - weights.T).max() > 1e-12:
        raise UserError(
            f"{key} needs the same weights both ways; use 'one-peer-exponential', or an undirected graph such as "
            "'ring'."
        )
    if topology.nodes > LARGEST:
        raise UserError(
            f"{key} needs all eigenvalues of nodes = {topology.nodes}; use at most {LARGEST} nodes, or "
            "'one-peer-exponential'."
        )
    return filter_of_spectrum(np.linalg.eigvalsh(weights.toarray()), key)


def filter_of_spectrum(spectrum: Floats, key: str) -> Filter:
    """From all eigenvalues of W: those that differ, in order, if the mean comes out."""
    others = distinct(spectrum[:-1])
    if 1 - spectrum[-2] < 1e-9:
        raise UserError(f"{key} has nodes that never hear of each other; add the missing links.")
    found = leja(others)
    error = error_of(found, spectrum)
    if not error <= TOLERANCE:
        raise UserError(
            f"{key} would lose too many digits over its {len(found)} exchanges (error {error:.1g}, at most "
            f"{TOLERANCE:g}); use 'one-peer-exponential', or a graph with more symmetry, fewer nodes or more links."
        )
    return Filter(tuple(map(float, found)), error)


def distinct(values: Floats) -> Floats:
    """Each value once; those that rounding alone tells apart become their mean, and what is nearly 0 is 0."""
    ordered = np.sort(values)
    groups = np.split(ordered, np.flatnonzero(np.diff(ordered) > SAME) + 1)
    means = np.array([group.mean() for group in groups])
    return np.where(np.abs(means) < SAME, 0.0, means)


def leja(values: Floats) -> Floats:
    """The one farthest from 1 first, then always that with the largest product of distances to those before it."""
    left = np.array(values, dtype=np.float64)
    chosen = []
    # Seen from 1, the eigenvalue that every step keeps: products are in logarithms, which neither over- nor underflow.
    product = np.log(np.maximum(np.abs(1 - left), 1e-300))
    while len(left):
        k = int(np.argmax(product))
        chosen.append(left[k])
        with np.errstate(divide="ignore"):
            product = np.delete(product + np.log(np.abs(left - left[k])), k)
        left = np.delete(left, k)
    return np.array(chosen)


def error_of(order: Floats, spectrum: Floats) -> float:
    """How far the outcome may be off, as a share of the largest value: what rounding in every step becomes, and rest.

    In the eigenvectors' basis a step multiplies by (μ − λ) / (1 − λ). A step rounds relative to what it subtracts, and
    the steps after it carry that on.
    """
    if not len(order):
        return 0.0
    n = len(spectrum)
    factors = (spectrum[None, :] - order[:, None]) / (1 - order[:, None])
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(factors))
    before = np.concatenate([np.zeros((1, n)), np.cumsum(logs, axis=0)])
    after = np.concatenate([np.cumsum(logs[::-1], axis=0)[::-1], np.zeros((1, n))])
    size, carried = np.exp(before.max(axis=1)), np.exp(after.max(axis=1))
    steps = np.sum(size[:-1] * (1 + np.abs(order)) / (1 - order) * carried[1:])
    # √n: from the size of a vector's components to its largest; 4: a product's and three operations' roundings.
    left = np.exp(before[-1, :-1].max(initial=-np.inf))
    return float(4 * _ROUNDING * np.sqrt(n) * steps + np.sqrt(n) * left)
