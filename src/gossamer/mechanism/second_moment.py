"""The second moment of every node's records, with noise: what private principal components are made from.

One release per node before the first draw, over all its records: M = Σ x xᵀ, every record scaled by itself to norm 1.
In the Frobenius norm a record moves M by ‖x xᵀ‖ = ‖x‖² ≤ 1 if it is added or removed. A symmetric matrix is one vector,
its diagonal and √2 times what is above, whose Euclidean norm is that norm: so entries off the diagonal carry σ/√2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting.releases import Event, Gaussian, Release, Unnoised
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise.base import MOMENT, ROUND_UP
from gossamer.mechanism.reader import Book, Records

BEFORE = -1  # the step of the ledger: ahead of the first draw
BLOCK = 4096  # records at a time in double precision
SHRINK = 1 - 2.0**-40  # rounding leaves no record outside of the ball


def moment_release(multiplier: float, adjacency: str) -> Release:
    """What a node writes: the price rests on sensitivity 1, which `packed_moment` sees to."""
    if multiplier == 0:
        return Unnoised(sensitivity=1.0, sampling="full", rate=1.0, adjacency=adjacency)
    return Gaussian(sigma=multiplier, sensitivity=1.0, sampling="full", rate=1.0, adjacency=adjacency)


def private_moments(
    records: Records,
    nodes: Sequence[int],
    *,
    multiplier: float,
    adjacency: str,
    stream: Stream,
    book: Book,
) -> Tensor:
    """(m, p(p + 1)/2) the hosted nodes' noised moments, packed. Each is on file before it is computed."""
    event = Event(BEFORE, moment_release(multiplier, adjacency))
    book.write([(nodes, event)])
    released = []
    for i, node in enumerate(nodes):
        moment = packed_moment(records.of(i))
        if multiplier:
            noise = torch.empty(1, moment.numel())
            stream.normal_rows(MOMENT, [node], 0, noise, [multiplier * ROUND_UP])
            moment += noise[0]
        released.append(moment.float())
    return torch.stack(released)


def packed_moment(x: Tensor) -> Tensor:
    """(p(p + 1)/2,) of records (J, ...), each scaled to norm 1; one that is not finite counts as zeros."""
    rows = x.reshape(len(x), math.prod(x.shape[1:]))
    width = rows.shape[1]
    moment = torch.zeros(width, width, dtype=torch.float64)
    for start in range(0, len(rows), BLOCK):
        exact = rows[start : start + BLOCK].double().cpu()
        exact = torch.where(torch.isfinite(exact).all(1, keepdim=True), exact, 0.0)
        # By the largest entry first: squares of very large and very small ones leave double precision.
        exact = exact / exact.abs().amax(1, keepdim=True).clamp_min(1e-300)
        exact = exact * (SHRINK / exact.norm(dim=1, keepdim=True).clamp_min(1e-300))
        moment += exact.T @ exact
    return moment[_places(width)] * _weights(width)


def unpacked(moment: Tensor, width: int) -> Tensor:
    """The symmetric matrix again."""
    matrix = torch.zeros(width, width, dtype=torch.float64)
    matrix[_places(width)] = moment.double() / _weights(width)
    return matrix + matrix.triu(1).T


def components(moment: Tensor, count: int) -> Tensor:
    """(count, p) its leading eigenvectors, each with its largest entry positive: post-processing."""
    basis = torch.linalg.eigh(moment)[1].flip(1)[:, :count].T
    signs = basis.gather(1, basis.abs().argmax(1, keepdim=True)).sign()
    found: Tensor = (basis * signs).float()
    return found


def _places(width: int) -> tuple[Tensor, Tensor]:
    rows, columns = np.triu_indices(width)
    return torch.from_numpy(rows), torch.from_numpy(columns)


def _weights(width: int) -> Tensor:
    rows, columns = _places(width)
    ones = torch.ones(len(rows), dtype=torch.float64)
    return torch.where(rows == columns, ones, math.sqrt(2) * ones)
