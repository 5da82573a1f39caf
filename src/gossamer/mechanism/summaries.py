"""Sums over all records of a node that are released once, with noise: before the first round, or of held-out records.

A summary maps every record to a vector of norm at most 1, for any content. A node releases the sum over what
is protected: over its records, or over persons, each with the *mean* of its records' vectors. A ball is convex, so a
mean of its vectors lies in it, however many records a person has: nothing is clipped, and the sensitivity is 1. Of the
held-out records of a private evaluation each has a row of numbers, which is brought into the unit ball here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting.releases import Event, Gaussian, OneSided, Release, Unnoised
from gossamer.kernels.noise import RATIO, Stream
from gossamer.mechanism.noise.base import JUDGED, SUMMARY
from gossamer.mechanism.reader import Book, Records

BLOCK = 4096  # records at a time in double precision
# n records are added up in blocks, and rounding may move a sum by n (BLOCK + n/BLOCK) 2⁻⁵³, and its neighbour by as
# much: less than this for five million records.
SHRINK = 1 - 2.0**-17


class Summary(Protocol):
    released_as: ClassVar[type[Gaussian]]  # `OneSided` where no two vectors are at an obtuse angle

    @property
    def size(self) -> int:
        """The number of values that are released."""
        ...

    def total(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """(size,) Σ_j weights_j v(x_j, y_j) in double precision, with ‖v‖ ≤ 1 for every record that there can be."""
        ...


def release_of(kind: type[Gaussian], multiplier: float, adjacency: str) -> Release:
    """Return the release that a node writes: the price rests on sensitivity 1, which every summary sees to."""
    if multiplier == 0:
        return Unnoised(sensitivity=1.0, sampling="full", rate=1.0, adjacency=adjacency)
    return kind(sigma=multiplier, sensitivity=1.0, sampling="full", rate=1.0, adjacency=adjacency)


def private_totals(
    summary: Summary,
    records: Records,
    nodes: Sequence[int],
    *,
    events: Sequence[Event],
    stream: Stream,
    book: Book,
) -> Tensor:
    """(m, size) the hosted nodes' noised totals; `events`: what each puts on file before it is computed."""
    alike: dict[Event, list[int]] = {}
    for node, event in zip(nodes, events, strict=True):
        alike.setdefault(event, []).append(node)
    book.write([(own, event) for event, own in alike.items()])
    released = []
    for i, (node, event) in enumerate(zip(nodes, events, strict=True)):
        x, y = records.of(i)
        total = summary.total(x, y, unit_weights(records, i))
        # The last one before the first round has counter 0, so that every step has a counter of its own.
        total = noised(total, stream, SUMMARY, node, -1 - event.draw, event.release.noise_multiplier)
        released.append(total.float())
    return torch.stack(released)


def noised(total: Tensor, stream: Stream, purpose: int, node: int, step: int, multiplier: float) -> Tensor:
    """A total of sensitivity 1 with its noise, rounded to whole steps as a real number is."""
    if multiplier:
        total = total.clone()
        stream.whole_rows(purpose, [node], step, total[None], multiplier / RATIO)
    return total


def unit_weights(records: Records, i: int) -> Tensor:
    """(J,) of node i's records: 1, or of a person's 1 over their number, a little less for rounding."""
    if records.persons is None:
        return torch.full((records.sizes[i],), SHRINK, dtype=torch.float64)
    own = records.persons[i]
    return torch.from_numpy(np.repeat(SHRINK / np.maximum(own, 1), own))


# The largest c with u² + c² u² (1 − u)² ≤ 1 on [0, 1]: c² is the least of (1 + u) / (u² (1 − u)), at u² + u = 1, which
# is the fifth power of the golden ratio. A little below, for rounding.
WEIGHT = ((1 + math.sqrt(5)) / 2) ** 2.5 * (1 - 2.0**-40)


@dataclass(frozen=True)
class Columns:
    """The columns of a record that count, and the declared ranges of their values."""

    places: tuple[int, ...]
    low: float = 0.0
    high: float = 1.0

    def of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(J, p) u in [0, 1], and which of them are numbers."""
        rows = x.reshape(len(x), math.prod(x.shape[1:]))[:, list(self.places)].double().cpu()
        known = ~rows.isnan()
        u = (rows.clamp(self.low, self.high) - self.low) / (self.high - self.low)
        return torch.where(known, u.clamp(0, 1), 0.0), known


@dataclass(frozen=True)
class Moments:
    """(u, c u (1 − u)) / √p of every column: norm at most 1, met where all are at the upper end.

    The plain (u, u²) would need √2 times the noise on the first and, c being 3.33, 4.7 times on what is left of the
    second; u² is the difference of the two.
    """

    released_as: ClassVar[type[Gaussian]] = OneSided

    columns: Columns

    @property
    def size(self) -> int:
        return 2 * len(self.columns.places)

    def total(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        sums = torch.zeros(2, len(self.columns.places), dtype=torch.float64)
        for start in range(0, len(x), BLOCK):
            u, _ = self.columns.of(x[start : start + BLOCK])
            own = weights[start : start + BLOCK]
            sums[0] += own @ u
            sums[1] += own @ (WEIGHT * u * (1 - u))
        return sums.flatten() / math.sqrt(len(self.columns.places))

    def read(self, mean: Tensor) -> tuple[Tensor, Tensor]:
        """(p,) mean and variance of u, with noise."""
        first, rest = mean.double().reshape(2, -1) * math.sqrt(len(self.columns.places))
        return first, first * (1 - first) - rest / WEIGHT


@dataclass(frozen=True)
class Histogram:
    """A 1/√p in every column's bin: norm at most 1. `edges` of [0, 1], ascending, 0 and 1 among them."""

    released_as: ClassVar[type[Gaussian]] = OneSided

    columns: Columns
    edges: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.columns.places) * self.bins

    @property
    def bins(self) -> int:
        return len(self.edges) - 1

    @cached_property
    def _inner(self) -> Tensor:
        return torch.tensor(self.edges[1:-1], dtype=torch.float64)

    def total(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        width = len(self.columns.places)
        sums = torch.zeros(width * self.bins, dtype=torch.float64)
        for start in range(0, len(x), BLOCK):
            u, known = self.columns.of(x[start : start + BLOCK])
            bins = torch.bucketize(u, self._inner, right=True) + self.bins * torch.arange(width)
            own = weights[start : start + BLOCK, None].expand_as(u)
            sums.index_add_(0, bins[known], own[known])
        return sums / math.sqrt(width)

    def read(self, mean: Tensor) -> Tensor:
        """(p, bins) the share of every bin, with noise."""
        width = len(self.columns.places)
        return mean.double().reshape(width, self.bins) * math.sqrt(width)


def dyadic_edges(levels: int, steps: int) -> tuple[float, ...]:
    """Equal steps, and bins that halve towards both ends and the middle: where values crowd in too wide a range.

    A range that begins at 0, or ends there, or is symmetric around it, has small values in such a place.
    """
    halves = [2.0**-k for k in range(1, levels + 1)]
    edges = {i / steps for i in range(steps + 1)}
    for h in halves:
        edges |= {h, 1 - h, 0.5 - h / 2, 0.5 + h / 2}
    return tuple(sorted(edges))


def quantiles(shares: Tensor, edges: Sequence[float], wanted: Sequence[float]) -> Tensor:
    """(p, len(wanted)) where so much of every column lies below, straight lines within bins: post-processing."""
    at = torch.tensor(edges, dtype=torch.float64)
    below = torch.cat([torch.zeros(len(shares), 1, dtype=torch.float64), shares.cumsum(1)], 1)
    whole = below[:, -1:].clamp_min(1e-12)
    below = (below / whole).clamp(0, 1).cummax(1).values
    values = []
    for share in wanted:
        # The first edge with at least so much below it; the bin before is the one it is in.
        over = (below >= share).double().argmax(1).clamp_min(1)
        left, right = below.gather(1, over[:, None] - 1)[:, 0], below.gather(1, over[:, None])[:, 0]
        part = ((share - left) / (right - left).clamp_min(1e-12)).clamp(0, 1)
        values.append(at[over - 1] + part * (at[over] - at[over - 1]))
    return torch.stack(values, 1)


@dataclass(frozen=True)
class Labels:
    """A record is a 1 in the place of its class; a label that is none of them is nowhere."""

    released_as: ClassVar[type[Gaussian]] = OneSided

    classes: int

    @property
    def size(self) -> int:
        return self.classes

    def total(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        places = y.reshape(len(weights)).cpu().long()
        known = (places >= 0) & (places < self.classes)
        return torch.zeros(self.classes, dtype=torch.float64).index_add_(0, places[known], weights[known])


@dataclass(frozen=True)
class SecondMoment:
    # An exchange moves it by √2 at most; it was priced at 2 from the beginning, and recorded runs say so.
    released_as: ClassVar[type[Gaussian]] = Gaussian

    width: int

    @property
    def size(self) -> int:
        return self.width * (self.width + 1) // 2

    def total(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """One that is not finite counts as zeros."""
        rows = x.reshape(len(x), self.width)
        moment = torch.zeros(self.width, self.width, dtype=torch.float64)
        for start in range(0, len(rows), BLOCK):
            exact = rows[start : start + BLOCK].double().cpu()
            exact = torch.where(torch.isfinite(exact).all(1, keepdim=True), exact, 0.0)
            # By the largest entry first: squares of very large and very small ones leave double precision.
            exact = exact / exact.abs().amax(1, keepdim=True).clamp_min(1e-300)
            exact = exact / exact.norm(dim=1, keepdim=True).clamp_min(1e-300)
            moment += exact.T @ (weights[start : start + BLOCK, None] * exact)
        return moment[_places(self.width)] * _weights(self.width)


def unpacked(moment: Tensor, width: int) -> Tensor:
    """The symmetric matrix again."""
    matrix = torch.zeros(width, width, dtype=torch.float64)
    matrix[_places(width)] = moment.double() / _weights(width)
    return matrix + matrix.triu(1).T


def components(moment: Tensor, count: int) -> Tensor:
    """(count, p) its leading eigenvectors, each with its largest entry positive: post-processing."""
    basis = torch.linalg.eigh(moment)[1].flip(1)[:, :count].T
    signs = basis.gather(1, basis.abs().argmax(1, keepdim=True)).sign()
    vectors: Tensor = (basis * signs).float()
    return vectors


def _places(width: int) -> tuple[Tensor, Tensor]:
    rows, columns = np.triu_indices(width)
    return torch.from_numpy(rows), torch.from_numpy(columns)


def _weights(width: int) -> Tensor:
    rows, columns = _places(width)
    ones = torch.ones(len(rows), dtype=torch.float64)
    return torch.where(rows == columns, ones, math.sqrt(2) * ones)


def private_judgement(
    rows_of: Callable[[int], Tensor],
    records: Records,
    nodes: Sequence[int],
    *,
    event: Event,
    stream: Stream,
    book: Book,
) -> Tensor:
    """(m, k) the hosted nodes' noised sums; `rows_of(i)`: (J, k) of node i's records, asked once all is on file."""
    book.write([(nodes, event)])
    released = []
    for i, node in enumerate(nodes):
        total = judged_sum(rows_of(i), unit_weights(records, i))
        released.append(noised(total, stream, JUDGED, node, 0, event.release.noise_multiplier))
    return torch.stack(released)


def judged_sum(rows: Tensor, weights: Tensor) -> Tensor:
    """(k,) of rows (J, k) in double precision; `weights` (J,): of what is protected they are at most 1 together."""
    exact = rows.detach().double().cpu()
    exact = torch.where(torch.isfinite(exact).all(1, keepdim=True), exact, 0.0)
    # By the largest entry first: squares of very large and very small ones leave double precision.
    largest = exact.abs().amax(1, keepdim=True).clamp_min(1.0)
    norms = (exact / largest).norm(dim=1, keepdim=True) * largest
    total: Tensor = weights @ (exact / norms.clamp_min(1.0))
    return total
