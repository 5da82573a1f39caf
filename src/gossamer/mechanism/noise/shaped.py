"""Noises other than the Gaussian: density ∝ exp(−(|z|/s)^b), truncated or not, each coordinate by itself.

Laplace is b = 1, the truncated Gaussian b = 2 with s = √2 σ. Drawn by inversion from 63 bits, the smallest of which
reach a tail of 10⁻¹⁹.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaincc, gammainccinv
from torch import Tensor

from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.noise.arithmetic import NOISE, ROUND_UP

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Shaped:
    """An arithmetic (see `arithmetic`) whose noise has this shape. `bounds` (m,) are A/σ of each node, ∞ if none."""

    mechanism: str
    shape: float
    bounds: Floats

    def sensitivity(self, bound: Tensor, dimension: int) -> Tensor:
        return bound

    def parts(self, i: int, sigma: float, dimension: int) -> tuple[tuple[str, float], ...]:
        return family_parts(self.mechanism, self.shape, float(self.bounds[i]), sigma, dimension)

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        return None

    def add(
        self,
        stream: Stream,
        nodes: Indices,
        k: int,
        sums: Tensor,
        scale: Tensor,
        bound: Tensor,
        ready: Tensor | None = None,
    ) -> None:
        bits = stream.uniform_bits_rows(NOISE, nodes, k, sums.shape[1])
        noise = magnitude(self.mechanism, self.shape, self.bounds[:, None], _uniform(bits)) * _sign(bits)
        scaled = noise * ROUND_UP * scale.double().cpu().numpy()[:, None]
        sums += torch.from_numpy(scaled).to(sums)


def magnitude(mechanism: str, shape: float, bounds: Floats, uniform: Floats) -> Floats:
    """|z|/σ whose share `uniform` of the truncated mass lies beyond."""
    unit = density_scale(mechanism)
    with np.errstate(over="ignore"):
        outside = gammaincc(1 / shape, (bounds / unit) ** shape)
    beyond = outside + (1 - outside) * uniform
    return np.asarray(unit * gammainccinv(1 / shape, beyond) ** (1 / shape))


def density_scale(mechanism: str) -> float:
    """s/σ: events state a Gaussian's standard deviation, and the scale of every other density."""
    return float(np.sqrt(2)) if mechanism == "truncated-gaussian" else 1.0


def family_parts(
    mechanism: str, shape: float, bound: float, sigma: float, dimension: int
) -> tuple[tuple[str, float], ...]:
    """The further constants of such a release's event."""
    if mechanism in ("gaussian", "none", "own-norm-gaussian"):
        return ()
    truncated = (("bound", bound * sigma),) if np.isfinite(bound) else ()
    shaped = (("shape", shape),) if mechanism == "generalised-gaussian" else ()
    return (*truncated, *shaped, ("dimensions", float(dimension)))


def _uniform(bits: NDArray[np.uint64]) -> Floats:
    return ((bits >> np.uint64(1)).astype(np.float64) + 0.5) / 2.0**63


def _sign(bits: NDArray[np.uint64]) -> Floats:
    return 1 - 2 * (bits & np.uint64(1)).astype(np.float64)
