"""No noise: what is released is the sum itself, and the ledger says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.releases import Release
from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.noise.base import Floats, Levels, Mechanism, NoiseKind, Participation


@dataclass(frozen=True)
class Silent:
    kind: ClassVar[str] = "none"
    release_kind: ClassVar[str] = "none"
    adds: ClassVar[bool] = False
    gaussian: ClassVar[bool] = False
    truncated: ClassVar[bool] = False
    bound: ClassVar[float | None] = None
    exponent: ClassVar[float] = 2.0
    scale: ClassVar[float] = 1.0
    without_proof: ClassVar[str | None] = None

    def release(
        self, sigma: float, sensitivity: float, dimension: int, part: Participation, end: float
    ) -> Release:
        return releases.Unnoised(
            sensitivity=sensitivity,
            **part.common,
        )

    def among(self, nodes: int) -> NoiseKind:
        return self

    def make(self, levels: Levels, ends: Floats, arithmetic: str) -> Mechanism:
        return SilentNoise(levels)


@dataclass(frozen=True)
class SilentNoise:
    levels: Levels
    adds: ClassVar[bool] = False
    scale_is_public: ClassVar[bool] = True

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
        return Silent().release(0.0, sensitivity if enforced else float("inf"), dimension, part, float("inf"))

    def apart(self, i: int) -> float | None:
        return None

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        return None

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
        """Nothing is added."""

    def repeated(self, times: int) -> Mechanism:
        return SilentNoise(self.levels.repeated(times))
