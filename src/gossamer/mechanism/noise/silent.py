"""No noise: what is released is the sum itself, and the ledger says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.releases import Release
from gossamer.mechanism.noise.base import Floats, Levels, Mechanism, Participation
from gossamer.mechanism.noise.independent import KindDefaults, Place, ScaledNoise


@dataclass(frozen=True)
class Silent(KindDefaults):
    """Nothing is added."""

    kind: ClassVar[str] = "none"
    release_kind: ClassVar[str] = "none"
    adds: ClassVar[bool] = False
    bound: ClassVar[float | None] = None

    def release(
        self, sigma: float, sensitivity: float, dimension: int, part: Participation, end: float
    ) -> Release:
        return releases.Unnoised(sensitivity=sensitivity, **part.common)

    def make(self, levels: Levels, ends: Floats, arithmetic: str) -> Mechanism:
        return SilentNoise(levels)


@dataclass(frozen=True)
class SilentNoise(ScaledNoise):
    adds: ClassVar[bool] = False

    def draw(self, at: Place, sums: Tensor, scale: Tensor, bound: Tensor, ready: Tensor | None) -> None:
        """Nothing is added."""

    def released(self, i: int, sigma: float, limit: float, dimension: int, part: Participation) -> Release:
        return releases.Unnoised(sensitivity=limit, **part.common)
