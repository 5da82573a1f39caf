"""The second moment of a node's records: what private principal components are made from.

M = Σ x xᵀ, every record scaled by itself to norm 1. In the Frobenius norm a record moves M by ‖x xᵀ‖ = ‖x‖² ≤ 1 if it
is added or removed. A symmetric matrix is one vector, its diagonal and √2 times what is above, whose Euclidean norm is
that norm: so entries off the diagonal carry σ/√2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting.releases import Gaussian
from gossamer.mechanism.summaries.base import BLOCK


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
    found: Tensor = (basis * signs).float()
    return found


def _places(width: int) -> tuple[Tensor, Tensor]:
    rows, columns = np.triu_indices(width)
    return torch.from_numpy(rows), torch.from_numpy(columns)


def _weights(width: int) -> Tensor:
    rows, columns = _places(width)
    ones = torch.ones(len(rows), dtype=torch.float64)
    return torch.where(rows == columns, ones, math.sqrt(2) * ones)
