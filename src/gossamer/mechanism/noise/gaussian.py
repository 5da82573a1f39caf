"""Gaussian noise in float32, independent over nodes or with a covariance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.releases import Release
from gossamer.kernels.noise import Indices, Stream, discrete_normal
from gossamer.mechanism.noise.base import (
    LATTICE,
    NOISE,
    ROUND_UP,
    Floats,
    KindDefaults,
    Levels,
    Mechanism,
    Participation,
    Place,
    ScaledNoise,
    families,
)


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


@families.register("gaussian")
@dataclass(frozen=True, kw_only=True)
class Gaussian(KindDefaults):
    """The Gaussian: composed in closed form or by privacy-loss distributions."""

    kind: ClassVar[str]
    release_kind: ClassVar[str] = "gaussian"
    gaussian: ClassVar[bool] = True
    bound: ClassVar[float | None] = None

    def release(
        self, sigma: float, sensitivity: float, dimension: int, part: Participation, end: float
    ) -> Release:
        return releases.Gaussian(sigma=sigma, sensitivity=sensitivity, **part.common)

    def make(self, levels: Levels, ends: Floats, arithmetic: str) -> Mechanism:
        return LatticeNoise(levels) if arithmetic == "lattice" else GaussianNoise(levels)


@dataclass(frozen=True)
class GaussianNoise(ScaledNoise):
    """N(0, scale_i² · correlation) over the hosted nodes; without a correlation the nodes are independent.

    Who sees all sums, and moves row i by one record, has the noise of the others to help: what is left of node i's own
    is 1/√((correlation⁻¹)_ii) of it, and that is what its release says. Never more than the whole, and the whole where
    the nodes are independent.
    """

    correlation: Tensor | None = None  # (m, m), ones on the diagonal

    def released(self, i: int, sigma: float, limit: float, dimension: int, part: Participation) -> Release:
        left = 1.0 if self._left is None else self._left[i]
        return releases.Gaussian(sigma=sigma * left, sensitivity=limit, **part.common)

    @cached_property
    def _left(self) -> list[float] | None:
        if self.correlation is None:
            return None
        kept: list[float] = torch.linalg.inv(self.correlation.double()).diagonal().rsqrt().tolist()
        return kept

    def apart(self, i: int) -> float | None:
        return None if self._left is None else self._left[i]

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        return normals(stream, nodes, k, dimension)

    def draw(self, at: Place, sums: Tensor, scale: Tensor, bound: Tensor, ready: Tensor | None) -> None:
        if self.correlation is not None:
            drawn = ready if ready is not None else normals(*at, sums.shape[1])
            ready = torch.linalg.cholesky(self.correlation).to(drawn) @ drawn
        add_normals(*at, sums, scale, ready)

    def repeated(self, times: int) -> Self:
        together = None
        if self.correlation is not None:
            together = torch.kron(self.correlation, torch.eye(times).to(self.correlation))
        return replace(self, levels=self.levels.repeated(times), correlation=together)


def normals(stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor:
    """(m, d) standard normals of draw k."""
    noise = torch.empty(np.size(nodes), dimension)
    stream.normal_rows(NOISE, nodes, k, noise, 1.0)
    return noise


def add_normals(
    stream: Stream, nodes: Indices, k: int, sums: Tensor, scale: Tensor, ready: Tensor | None
) -> None:
    """sums += scale · normals, a little more rather than less."""
    if ready is not None:
        sums += (ready * (ROUND_UP * scale).to(ready)[:, None]).to(sums)
    elif bool((scale > 0).all()):
        stream.normal_rows(NOISE, nodes, k, sums, ROUND_UP * scale, accumulate=True)
    else:
        # Noise of no size is not drawn: every node has its own range of the stream, so the others' stays the same.
        rows = scale.nonzero().flatten()
        some = sums[rows.to(sums.device)]
        few = np.atleast_1d(nodes)[rows.numpy()]
        stream.normal_rows(NOISE, few, k, some, ROUND_UP * scale[rows], accumulate=True)
        sums[rows.to(sums.device)] = some
