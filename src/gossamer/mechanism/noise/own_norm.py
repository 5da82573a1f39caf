"""AdaD2P's noise: scaled by the node's own gradient norm. Studied in paper mode; nothing can be proven about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.releases import Release
from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.noise.base import NOISE, Floats, Levels, Mechanism, NoiseKind, Participation
from gossamer.mechanism.noise.gaussian import add_normals


@dataclass(frozen=True)
class OwnNorm:
    """σ · ‖g_i‖, the norm of what the node itself would release."""

    kind: ClassVar[str] = "own-norm"
    release_kind: ClassVar[str] = "own-norm-gaussian"
    adds: ClassVar[bool] = True
    gaussian: ClassVar[bool] = False
    truncated: ClassVar[bool] = False
    bound: ClassVar[float | None] = None
    exponent: ClassVar[float] = 2.0
    scale: ClassVar[float] = 1.0
    without_proof: ClassVar[str | None] = "the noise scale itself reveals the record"

    def release(
        self, sigma: float, sensitivity: float, dimension: int, part: Participation, end: float
    ) -> Release:
        return releases.OwnNormGaussian(
            sigma=sigma,
            sensitivity=sensitivity,
            **part.common,
        )

    def among(self, nodes: int) -> NoiseKind:
        return self

    def make(self, levels: Levels, ends: Floats, arithmetic: str) -> Mechanism:
        return OwnNormNoise(levels)


@dataclass(frozen=True)
class OwnNormNoise:
    levels: Levels
    adds: ClassVar[bool] = True
    scale_is_public: ClassVar[bool] = False

    def sensitivity(self, bound: Tensor, dimension: int) -> Tensor:
        return bound

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
        """σ in units of the norm: that is all that is known of it."""
        limit = sensitivity if enforced else float("inf")
        return OwnNorm().release(multiplier, limit, dimension, part, float("inf"))

    def apart(self, i: int) -> float | None:
        return None

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        noise = torch.empty(len(self.levels.factor), dimension)
        stream.normal_rows(NOISE, nodes, k, noise, 1.0)
        return noise

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
        scale = torch.where(active, multiplier * sums.norm(dim=1).cpu(), 0.0)
        add_normals(stream, nodes, k, sums, scale, ready)

    def repeated(self, times: int) -> Mechanism:
        return OwnNormNoise(self.levels.repeated(times))
