"""Gaussian noise in whole steps, independent over nodes or with a covariance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.releases import Release
from gossamer.kernels.noise import RATIO, Indices, Stream
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


@families.register("gaussian")
class Gaussian(NoiseKind):
    """The Gaussian: composed in closed form or by privacy-loss distributions."""

    kind: ClassVar[str]
    released_as: ClassVar[type[Release]] = releases.Gaussian
    gaussian: ClassVar[bool] = True
    header: ClassVar[dict[str, Any]] = {"steps_per_sigma": RATIO}

    def make(self, levels: Levels, ends: Floats) -> Mechanism:
        return GaussianNoise(levels)


@dataclass(frozen=True)
class GaussianNoise(Mechanism):
    """N(0, scale_i² · correlation) over the hosted nodes; without a correlation the nodes are independent.

    What leaves is a whole number of steps scale_i/128, rounded as the real number is: post-processing of the continuous
    release, which costs nothing.

    Who sees all sums, and moves row i by one record, has the noise of the others to help: what is left of node i's own
    is 1/√((correlation⁻¹)_ii) of it, and that is what its release says. Never more than the whole, and the whole where
    the nodes are independent.
    """

    correlation: Tensor | None = None  # (m, m), ones on the diagonal

    def released(self, i: int, sigma: float, limit: float, dimension: int, part: Participation) -> Release:
        left = 1.0 if self._left is None else self._left[i]
        return releases.Gaussian(sigma=sigma * left, sensitivity=limit, **vars(part))

    @cached_property
    def _left(self) -> list[float] | None:
        if self.correlation is None:
            return None
        shares: list[float] = torch.linalg.inv(self.correlation.double()).diagonal().rsqrt().tolist()
        return shares

    def ledger_key(self, i: int) -> float | None:
        return None if self._left is None else self._left[i]

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        if self.correlation is not None:
            return None
        return torch.from_numpy(stream.standard(NOISE, nodes, k, dimension))

    def draw(self, at: Place, sums: Tensor, scale: Tensor, ready: Tensor | None) -> None:
        # Noise of no size is not drawn: every node has its own range of the stream, so the others' stays the same.
        rows = scale.nonzero().flatten()
        if not len(rows):
            return
        everyone = len(rows) == len(scale)
        some = sums if everyone else sums[rows.to(sums.device)]
        nodes, units = np.atleast_1d(at.nodes)[rows.numpy()], scale[rows] / RATIO
        if self.correlation is None:
            drawn = ready if ready is None or everyone else ready[rows]
            at.stream.whole_rows(NOISE, nodes, at.draw, some, units, ready=drawn)
        else:
            root = torch.linalg.cholesky(self.correlation.double()[rows][:, rows]).numpy()
            at.stream.mixed_rows(NOISE, nodes, at.draw, some, units, root)
        if not everyone:
            sums[rows.to(sums.device)] = some

    def repeated(self, times: int) -> Self:
        together = None
        if self.correlation is not None:
            together = torch.kron(self.correlation, torch.eye(times).to(self.correlation))
        return replace(self, levels=self.levels.repeated(times), correlation=together)
