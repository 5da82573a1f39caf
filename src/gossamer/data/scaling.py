"""Scaling by rules that look at one record at a time and at public constants, never at the other records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gossamer.errors import UserError

Floats = npt.NDArray[np.float32]


def to_ranges(x: Floats, columns: Sequence[str], ranges: Mapping[str, Sequence[float]]) -> Floats:
    """Map each declared public range [lo, hi] to [0, 1]; a value outside it lands outside [0, 1]."""
    unknown = [name for name in ranges if name not in columns]
    if unknown:
        raise UserError(f"data.ranges.{unknown[0]} is no feature column: choose from {', '.join(columns)}")
    result = x.copy()
    for name, bounds in ranges.items():
        if len(bounds) != 2 or not (math.isfinite(bounds[0]) and bounds[0] < bounds[1] < math.inf):
            raise UserError(f"data.ranges.{name} = {list(bounds)} must be [lo, hi] with lo < hi")
        lo, hi = bounds
        column = columns.index(name)
        result[:, column] = (result[:, column] - lo) / (hi - lo)
    return result


def to_unit_ball(x: Floats) -> Floats:
    """x / max(1, ‖x‖₂) for every record by itself, so that ‖x‖₂ ≤ 1."""
    norms = np.sqrt(np.square(x, dtype=np.float64).sum(axis=tuple(range(1, x.ndim))))
    # Rounding to float32 must not push a record out of the ball, where sensitivity bounds would not cover it.
    shrink = np.where(norms > 1, (1 - 2.0**-22) / np.maximum(norms, 1), 1).astype(np.float32)
    return x * shrink.reshape(-1, *(1,) * (x.ndim - 1))


def to_unit_sphere(x: Floats) -> Floats:
    """x / ‖x‖₂ for every record by itself; a record of zeros stays where it is."""
    norms = np.sqrt(np.square(x, dtype=np.float64).sum(axis=tuple(range(1, x.ndim))))
    shrink = np.where(norms > 0, (1 - 2.0**-22) / np.where(norms > 0, norms, 1), 1)
    return (x * shrink.reshape(-1, *(1,) * (x.ndim - 1))).astype(np.float32)


def with_bias(x: Floats, *, outside: bool = False) -> Floats:
    """(x, 1)/√2: a constant feature that keeps a record of the unit ball inside it; `outside`: (x, 1)."""
    ones = np.ones((len(x), 1), np.float32)
    factor = np.float32(1 if outside else (1 - 2.0**-22) / math.sqrt(2))
    return np.hstack([x, ones]) * factor
