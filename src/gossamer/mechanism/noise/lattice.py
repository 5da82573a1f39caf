"""Gaussian noise in whole numbers, for those who distrust float32.

A float32 sum of float32 noise leaves traces of its terms in the last digits, which no proof about real numbers sees.
On the lattice the sum is rounded to multiples of γ and the noise is an exact discrete Gaussian of whole multiples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.releases import Release
from gossamer.kernels.discrete import discrete_normal
from gossamer.mechanism.noise.base import LATTICE, Participation
from gossamer.mechanism.noise.independent import Place, ScaledNoise


@dataclass(frozen=True)
class LatticeNoise(ScaledNoise):
    """γ = bound / (1000 √d): rounding to it widens the sensitivity by γ √d, a thousandth, which the release includes.

    The discrete Gaussian is priced as the Gaussian; with σ/γ in the thousands the two differ by exp(−2π² σ²/γ²).
    What remains in float32 is the summation over a lot, before the rounding. Nothing is drawn ahead: how many bits a
    sample takes depends on its variance.
    """

    def sensitivity(self, bound: Tensor, dimension: int) -> Tensor:
        return bound + self._step(bound, dimension) * math.sqrt(dimension)

    def released(self, i: int, sigma: float, limit: float, dimension: int, part: Participation) -> Release:
        return releases.Gaussian(sigma=sigma, sensitivity=limit, **part.common)

    def draw(self, at: Place, sums: Tensor, scale: Tensor, bound: Tensor, ready: Tensor | None) -> None:
        steps = self._step(bound, sums.shape[1])
        for i, node in enumerate(np.atleast_1d(at.nodes).tolist()):
            if scale[i] == 0:
                continue
            ratio = Fraction(float(scale[i])) / Fraction(float(steps[i]))
            noise = discrete_normal(
                at.stream, LATTICE, node, at.draw, count=sums.shape[1], variance=ratio * ratio
            )
            whole = torch.round(sums[i].double().cpu() / steps[i]).long() + torch.from_numpy(noise)
            sums[i] = (whole.double() * steps[i]).to(sums)

    @staticmethod
    def _step(bound: Tensor, dimension: int) -> Tensor:
        return bound / (1000 * math.sqrt(dimension))
