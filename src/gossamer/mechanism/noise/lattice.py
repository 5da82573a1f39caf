"""Gaussian noise in whole numbers, for those who distrust float32.

A float32 sum of float32 noise leaves traces of its terms in the last digits, which no proof about real numbers sees.
On the lattice the sum is rounded to multiples of γ and the noise is an exact discrete Gaussian of whole multiples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.releases import Release
from gossamer.kernels.discrete import discrete_normal
from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.noise.base import LATTICE, Levels, Mechanism, Participation


@dataclass(frozen=True)
class LatticeNoise:
    """γ = bound / (1000 √d): rounding to it widens the sensitivity by γ √d, a thousandth, which the release includes.

    The discrete Gaussian is priced as the Gaussian; with σ/γ in the thousands the two differ by exp(−2π² σ²/γ²).
    What remains in float32 is the summation over a lot, before the rounding.
    """

    levels: Levels
    adds: ClassVar[bool] = True
    scale_is_public: ClassVar[bool] = True

    def sensitivity(self, bound: Tensor, dimension: int) -> Tensor:
        return bound + self._step(bound, dimension) * math.sqrt(dimension)

    def release(
        self,
        i: int,
        multiplier: float,
        sensitivity: float,
        dimension: int,
        part: Participation,
        *,
        enforced: bool,
    ) -> Release:
        return releases.Gaussian(
            sigma=multiplier * sensitivity,
            sensitivity=sensitivity if enforced else math.inf,
            **part.common,
        )

    def apart(self, i: int) -> float | None:
        return None

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        return None  # how many bits a sample takes depends on its variance

    def add(
        self,
        stream: Stream,
        nodes: Indices,
        k: int,
        sums: Tensor,
        *,
        multiplier: Tensor,
        bound: Tensor,
        active: Tensor,
        ready: Tensor | None = None,
    ) -> None:
        steps = self._step(bound, sums.shape[1])
        scale = torch.where(active, multiplier * self.sensitivity(bound, sums.shape[1]), 0.0)
        for i, node in enumerate(np.atleast_1d(nodes).tolist()):
            if scale[i] == 0:
                continue
            ratio = Fraction(float(scale[i])) / Fraction(float(steps[i]))
            noise = discrete_normal(stream, LATTICE, node, k, count=sums.shape[1], variance=ratio * ratio)
            whole = torch.round(sums[i].double().cpu() / steps[i]).long() + torch.from_numpy(noise)
            sums[i] = (whole.double() * steps[i]).to(sums)

    def repeated(self, times: int) -> Mechanism:
        return LatticeNoise(self.levels.repeated(times))

    @staticmethod
    def _step(bound: Tensor, dimension: int) -> Tensor:
        return bound / (1000 * math.sqrt(dimension))
