"""What mechanisms share whose noise follows from a scale for every node: most of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.accounting.observers import EVERYONE, Observer
from gossamer.accounting.releases import Release
from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.noise.base import Floats, Levels, NoiseKind, Participation


class Place(NamedTuple):
    """Where in the secret stream a draw's noise stands."""

    stream: Stream
    nodes: Indices
    draw: int


class KindDefaults:
    """A kind that adds noise of a public size, not truncated, about which something can be proven."""

    adds: ClassVar[bool] = True
    gaussian: ClassVar[bool] = False
    truncated: ClassVar[bool] = False
    scale: ClassVar[float] = 1.0
    without_proof: ClassVar[str | None] = None
    cancels: ClassVar[bool] = False

    @property
    def observer(self) -> Observer:
        return EVERYONE

    @property
    def all_alike(self) -> bool:
        return True

    @property
    def kept(self) -> float:
        return 1.0

    def covariance(self, honest: NDArray[np.int64]) -> Floats | None:
        return None

    @property
    def header(self) -> dict[str, Any]:
        return {}

    @property
    def exponent(self) -> float:
        return 2.0

    def among(self: NoiseKind, nodes: int) -> NoiseKind:
        return self


@dataclass(frozen=True)
class ScaledNoise(ABC):
    """`add` and `release` from three pieces: what a multiplier is of, how a scale of noise is drawn, its release."""

    levels: Levels
    adds: ClassVar[bool] = True
    scale_is_public: ClassVar[bool] = True

    def sensitivity(self, bound: Tensor, dimension: int) -> Tensor:
        return bound

    def unit(self, bound: Tensor, sums: Tensor) -> Tensor:
        """(m,) what a noise multiplier of 1 is."""
        return self.sensitivity(bound, sums.shape[1])

    @abstractmethod
    def draw(self, at: Place, sums: Tensor, scale: Tensor, bound: Tensor, ready: Tensor | None) -> None:
        """Add noise of this scale (m,) to the sums, in place."""

    @abstractmethod
    def released(self, i: int, sigma: float, limit: float, dimension: int, part: Participation) -> Release:
        """The release of node i at this scale; `limit` bounds one record's contribution, ∞ if nothing does."""

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
        scale = torch.where(active, multiplier * self.unit(bound, sums).cpu(), 0.0)
        self.draw(Place(stream, nodes, k), sums, scale, bound, ready)

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
        sigma = multiplier * sensitivity if self.scale_is_public else multiplier
        return self.released(i, sigma, sensitivity if enforced else math.inf, dimension, part)

    def apart(self, i: int) -> float | None:
        return None

    def agree(
        self, nodes: Sequence[int], join: Callable[[list[str]], list[str]], context: str, *, seeded: bool
    ) -> Self:
        return self

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        return None

    def repeated(self, times: int) -> Self:
        return replace(self, levels=self.levels.repeated(times))
