"""What a summary is, and its one release: on file, then computed, then noised.

A summary maps every record to a vector of norm at most 1, whatever the record holds. A node releases the sum over what
is protected: over its records, or over persons, each with the *mean* of its records' vectors. A ball is convex, so a
mean of its vectors lies in it, however many records a person has: nothing is clipped, and the sensitivity is 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting.releases import Event, Gaussian, Release, Unnoised
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise.base import ROUND_UP, SUMMARY
from gossamer.mechanism.reader import Book, Records

BLOCK = 4096  # records at a time in double precision
GRID = 26  # bits of a deviation of the noise that a release has
SHRINK = 1 - 2.0**-30  # rounding of a million additions leaves nobody outside of the ball


class Summary(Protocol):
    released_as: ClassVar[type[Gaussian]]  # `OneSided` where no two vectors are at an obtuse angle

    @property
    def size(self) -> int:
        """How many numbers are released."""
        ...

    def total(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """(size,) Σ_j weights_j v(x_j, y_j) in double precision, with ‖v‖ ≤ 1 for every record that there can be."""
        ...


def release_of(kind: type[Gaussian], multiplier: float, adjacency: str) -> Release:
    """What a node writes: the price rests on sensitivity 1, which every summary sees to."""
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
        total = noised(total, stream, SUMMARY, node, -1 - event.step, event.release.noise_multiplier)
        released.append(total.float())
    return torch.stack(released)


def noised(total: Tensor, stream: Stream, purpose: int, node: int, step: int, multiplier: float) -> Tensor:
    """A total of sensitivity 1 and its noise, both as whole multiples of a public γ, added without rounding.

    A sum of doubles and float32 noise would show the total in the digits below the noise's last. Here the total has
    none: it is first rounded to γ, for which it is made smaller by γ √k, so that two totals still differ by 1 at most.
    And the noise has digits far below γ: a second, 2⁻¹² as large, fills the gaps between the float32 numbers of the
    first. So what leaves is the rounded value of a Gaussian around a whole multiple of γ.
    """
    if not multiplier:
        return total
    gamma = 2.0 ** (math.floor(math.log2(multiplier)) - GRID)
    drawn = torch.empty(1, 2 * total.numel())
    stream.normal_rows(purpose, [node], step, drawn, [multiplier * ROUND_UP])
    coarse, fine = drawn[0].double().view(2, -1)
    noise = torch.round((coarse + fine * 2.0**-12) / gamma)
    room = max(0.0, 1 - gamma * math.sqrt(total.numel()))
    return (torch.round(total * (room / gamma)) + noise) * gamma


def unit_weights(records: Records, i: int) -> Tensor:
    """(J,) of node i's records: 1, or of a person's 1 over their number, a little less for rounding."""
    if records.persons is None:
        return torch.full((records.sizes[i],), SHRINK, dtype=torch.float64)
    own = records.persons[i]
    return torch.from_numpy(np.repeat(SHRINK / np.maximum(own, 1), own))
