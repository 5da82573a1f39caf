"""Noises other than the Gaussian: density ∝ exp(−(|z|/s)^b), truncated or not, each coordinate by itself.

Laplace is b = 1, the truncated Gaussian b = 2 with s = √2 σ. Drawn by inversion from 63 bits, the smallest of which
reach a tail of 10⁻¹⁹, in double precision, and rounded to whole steps; unlike the Gaussian's, the rounding is not
checked against the error of that arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from scipy.special import gammaincc, gammainccinv
from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.releases import Release
from gossamer.kernels.noise import RATIO
from gossamer.mechanism.noise.base import (
    NOISE,
    Floats,
    Levels,
    Mechanism,
    NoiseKind,
    Participation,
    Place,
    families,
)

End = Annotated[
    Annotated[float, Field(ge=0.01, lt=1e12)] | None,
    Field(description="where it ends, in units of its scale; if not set, where the paper or the budget say"),
]


class _Shaped(NoiseKind):
    """Independent in each coordinate."""

    truncated: ClassVar[bool] = True
    kind: ClassVar[str]
    exponent: ClassVar[float] = 1.0

    def figures(self, sigma: float, dimension: int, end: float) -> dict[str, Any]:
        bound = {"bound": end * sigma} if self.truncated else {}
        return {"sigma": sigma, "dimensions": dimension, **bound}

    def make(self, levels: Levels, ends: Floats) -> Mechanism:
        return ShapedNoise(levels, self, ends)


@families.register("laplace")
class Laplace(_Shaped):
    """Density exp(−|z|/s) in each coordinate."""

    truncated: ClassVar[bool] = False
    released_as: ClassVar[type[Release]] = releases.Laplace


@families.register("truncated-laplace")
class TruncatedLaplace(_Shaped):
    """Laplace that ends at a bound."""

    bound: End = None
    released_as: ClassVar[type[Release]] = releases.TruncatedLaplace


@families.register("truncated-gaussian")
class TruncatedGaussian(_Shaped):
    """Gaussian that ends at a bound."""

    bound: End = None
    scale: ClassVar[float] = float(np.sqrt(2))
    exponent: ClassVar[float] = 2.0
    released_as: ClassVar[type[Release]] = releases.TruncatedGaussian


@families.register("truncated-generalised")
class TruncatedGeneralised(_Shaped):
    """Density ∝ exp(−(|z|/s)^shape) up to a bound."""

    shape: Annotated[float, Field(ge=1, le=16), "b of exp(−(|z|/s)^b)"]
    bound: End = None
    released_as: ClassVar[type[Release]] = releases.GeneralisedGaussian

    @property
    def exponent(self) -> float:  # type: ignore[override]
        return self.shape

    def figures(self, sigma: float, dimension: int, end: float) -> dict[str, Any]:
        return {**super().figures(sigma, dimension, end), "shape": self.shape}


@dataclass(frozen=True)
class ShapedNoise(Mechanism):
    """Such noise, independent over nodes and coordinates; `ends` (m,) are A/σ of each node, ∞ if it does not end."""

    noise: NoiseKind
    ends: Floats

    def released(self, i: int, sigma: float, limit: float, dimension: int, part: Participation) -> Release:
        return self.noise.release(sigma, limit, dimension, part, float(self.ends[i]))

    def ledger_key(self, i: int) -> float | None:
        return float(self.ends[i])

    def draw(self, at: Place, sums: Tensor, scale: Tensor, ready: Tensor | None) -> None:
        bits = at.stream.uniform_bits_rows(NOISE, at.nodes, at.draw, sums.shape[1])
        uniform = ((bits >> np.uint64(1)).astype(np.float64) + 0.5) / 2.0**63
        sign = 1 - 2 * (bits & np.uint64(1)).astype(np.float64)
        noise = magnitude(self.noise, self.ends[:, None], uniform) * sign
        step = torch.where(scale > 0, scale.double(), 1.0).cpu()[:, None] / RATIO
        drawn = torch.from_numpy(noise) * torch.where(scale > 0, RATIO, 0.0)[:, None]
        whole = torch.round(sums.double().cpu() / step + drawn) + 0  # no −0, whose sign would show
        sums.copy_(torch.where(scale[:, None] > 0, whole * step, sums.double().cpu()))

    def repeated(self, times: int) -> Self:
        return replace(self, levels=self.levels.repeated(times), ends=np.repeat(self.ends, times))


def magnitude(noise: NoiseKind, ends: Floats, uniform: Floats) -> Floats:
    """|z|/σ whose share `uniform` of the truncated mass lies beyond."""
    unit, shape = noise.scale, noise.exponent
    with np.errstate(over="ignore"):
        outside = gammaincc(1 / shape, (ends / unit) ** shape)
    beyond = outside + (1 - outside) * uniform
    return np.asarray(unit * gammainccinv(1 / shape, beyond) ** (1 / shape))
