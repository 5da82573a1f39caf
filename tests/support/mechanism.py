"""Noise mechanisms of a stated size, a book in memory, and a private mean of records that lie open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting.releases import Event
from gossamer.kernels.noise import Stream
from gossamer.mechanism.clipping import Clip, ClipTo, Constant, Schedule, Weigh
from gossamer.mechanism.noise import Levels, Mechanism, NoiseKind
from gossamer.mechanism.noise.base import Silent
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.mechanism.reader import PrivateGradient, Records
from gossamer.mechanism.sampling import FullSampler, Sampler


class Book:
    """What was written, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[int, Event]] = []

    def write(self, releases: Sequence[tuple[Sequence[int], Event]]) -> None:
        self.events += [(int(node), event) for nodes, event in releases for node in nodes]


def levels(multiplier: float, nodes: int, shape: Schedule | None = None) -> Levels:
    return Levels(torch.full((nodes,), multiplier, dtype=torch.float64), shape or Constant(1.0))


def noise_of(
    multiplier: float,
    nodes: int,
    kind: NoiseKind | None = None,
    *,
    end: float = math.inf,
) -> Mechanism:
    """Noise of that many sensitivities on every node; Gaussian unless said otherwise, none at 0."""
    chosen: NoiseKind = kind or (Gaussian() if multiplier else Silent())
    return chosen.make(levels(multiplier, nodes), np.full(nodes, end))


def thinner(parts: Any, times: float) -> Any:
    """The parts of a run with noise that many times smaller than was planned."""
    own = parts.noise.levels
    return replace(parts, noise=replace(parts.noise, levels=replace(own, factor=own.factor / times)))


def record_is_gradient(
    points: Tensor, x: Tensor, y: Tensor, mask: Tensor, weigh: Weigh, *, unit: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """A vector part whose per-record vector is the record itself: sums and norms are known in closed form."""
    norms = x.norm(dim=2) * mask
    weights = weigh(norms if unit is None else norms / unit[:, None])
    return (x * (weights * mask)[..., None]).sum(1), norms


def private_mean(
    x: Tensor, *, clip: Clip | None = None, z: float = 0.0, sampler: Sampler | None = None, **changes: Any
) -> tuple[PrivateGradient, Book]:
    """Of the records x (nodes, records, d) themselves, all at once unless a sampler is given; `changes` win."""
    m, J = x.shape[:2]
    book = Book()
    parts: dict[str, Any] = {
        "vector": record_is_gradient,
        "records": Records(x.flatten(0, 1), torch.zeros(m * J), [J] * m),
        "sampler": sampler or FullSampler(m),
        "clip": clip or ClipTo(Constant(1.0)),
        "noise": noise_of(z, m),
        "stream": Stream.seeded(3),
        "book": book,
        "nodes": range(m),
        "lots": [float(J)] * m,
        "allowance": [10**6] * m,
        "adjacency": "add-remove",
    }
    return PrivateGradient(**{**parts, **changes}), book
