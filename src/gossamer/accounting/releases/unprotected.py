"""Releases about which nothing can be proven."""

from dataclasses import dataclass
from typing import ClassVar

from gossamer.accounting.releases.base import WITHOUT_NOISE, Noised, Release, registered


@registered
@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNormGaussian(Noised):
    """Gaussian noise of σ times the norm of the very sum that it should hide."""

    kind: ClassVar[str] = "own-norm-gaussian"

    def unpriceable(self, adjacency: str) -> str | None:
        return "the noise is scaled by the record's own gradient norm, so its size reveals the record"


@registered
@dataclass(frozen=True, slots=True, kw_only=True)
class RawDecision(Release):
    """Who writes, decided on losses without noise."""

    kind: ClassVar[str] = "raw-decision"

    def unpriceable(self, adjacency: str) -> str | None:
        return "who writes the shared model when is decided on raw losses, and everyone sees it"


@registered
@dataclass(frozen=True, slots=True, kw_only=True)
class Unnoised(Release):
    """A value as it is."""

    kind: ClassVar[str] = "none"

    def unpriceable(self, adjacency: str) -> str | None:
        return WITHOUT_NOISE
