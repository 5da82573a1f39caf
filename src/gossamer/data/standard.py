"""Columns by numbers that were released: post-processing of a noised release, applied to each record by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.errors import UserError

Floats = npt.NDArray[np.float32]
FAR = 5.0  # spreads from the middle, where values are cut off


@dataclass(frozen=True)
class Standard:
    """(x − middle) / spread in the places named, cut off at ±5; the other columns stay.

    What lies outside of the declared range is taken to its end first.
    """

    places: tuple[int, ...]
    low: float
    high: float
    middle: tuple[float, ...]  # one number for each place
    spread: tuple[float, ...]

    def __post_init__(self) -> None:
        numbers = [self.low, self.high, *self.middle, *self.spread]
        if (
            not len(self.places) == len(self.middle) == len(self.spread)
            or not all(math.isfinite(one) for one in numbers)
            or min(self.spread, default=1.0) <= 0
            or min(self.places, default=0) < 0
            or self.low >= self.high
        ):
            raise UserError("a standard for columns needs a middle and a positive spread of each.")

    def applied(self, x: npt.NDArray[Any]) -> Floats:
        rows = np.array(x.reshape(len(x), math.prod(x.shape[1:])), dtype=np.float32)
        if max(self.places, default=-1) >= rows.shape[1]:
            raise UserError(
                f"a standard for column {max(self.places)} does not fit records of {rows.shape[1]} numbers."
            )
        at = list(self.places)
        own = np.clip(rows[:, at].astype(np.float64), self.low, self.high)
        rows[:, at] = np.clip((own - self.middle) / self.spread, -FAR, FAR)
        return rows.reshape(x.shape)
