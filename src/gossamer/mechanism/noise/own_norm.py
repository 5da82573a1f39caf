"""AdaD2P's noise: scaled by the node's own gradient norm. Studied in paper mode; nothing can be proven about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.releases import Release
from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.noise.base import Floats, Levels, Mechanism, Participation
from gossamer.mechanism.noise.gaussian import add_normals, normals
from gossamer.mechanism.noise.independent import KindDefaults, Place, ScaledNoise


@dataclass(frozen=True)
class OwnNorm(KindDefaults):
    """σ · ‖g_i‖, the norm of what the node itself would release."""

    kind: ClassVar[str] = "own-norm"
    release_kind: ClassVar[str] = "own-norm-gaussian"
    bound: ClassVar[float | None] = None
    without_proof: ClassVar[str | None] = "the noise scale itself reveals the record"

    def release(
        self, sigma: float, sensitivity: float, dimension: int, part: Participation, end: float
    ) -> Release:
        return releases.OwnNormGaussian(sigma=sigma, sensitivity=sensitivity, **part.common)

    def make(self, levels: Levels, ends: Floats, arithmetic: str) -> Mechanism:
        return OwnNormNoise(levels)


@dataclass(frozen=True)
class OwnNormNoise(ScaledNoise):
    scale_is_public: ClassVar[bool] = False

    def unit(self, bound: Tensor, sums: Tensor) -> Tensor:
        norms: Tensor = sums.norm(dim=1)
        return norms

    def released(self, i: int, sigma: float, limit: float, dimension: int, part: Participation) -> Release:
        """σ in units of the norm: that is all that is known of it."""
        return releases.OwnNormGaussian(sigma=sigma, sensitivity=limit, **part.common)

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        return normals(stream, nodes, k, dimension)

    def draw(self, at: Place, sums: Tensor, scale: Tensor, bound: Tensor, ready: Tensor | None) -> None:
        add_normals(*at, sums, scale, ready)
