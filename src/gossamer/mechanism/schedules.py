"""Sequences over the draws of a run: clip bounds C_k and the shape of the noise multipliers.

All are functions of the draw index k = 0 … K−1 and public constants, so the whole privacy cost of a run is known
before it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Schedule = Callable[[int], float]  # draw → value


class Extremes(NamedTuple):
    least: float
    largest: float


def extremes(schedule: Schedule, draws: int) -> Extremes:
    """Over all draws of a run, k = 0 … draws − 1: whatever is bounded is bounded here, however the schedule goes.

    Every draw is looked at. A schedule need not be monotone, so its first and last values say nothing of the others.
    """
    values = [schedule(k) for k in range(max(draws, 1))]
    return Extremes(min(values), max(values))


@dataclass(frozen=True)
class Constant:
    value: float

    def __call__(self, k: int) -> float:
        return self.value


@dataclass(frozen=True)
class Geometric:
    """start · ratio^(k / K): Dyn-D2P's C_k with ratio 1/ρ_c, its 1/μ_k with ratio 1/ρ_μ."""

    start: float
    ratio: float
    draws: int

    def __call__(self, k: int) -> float:
        return float(self.start * self.ratio ** (k / self.draws))


@dataclass(frozen=True)
class Stretches:
    """The given values over equal stretches of the run: one value is a constant, K values are one per draw."""

    values: Sequence[float]
    draws: int

    def __call__(self, k: int) -> float:
        return self.values[min(k * len(self.values) // self.draws, len(self.values) - 1)]


@dataclass(frozen=True)
class Ratio:
    """over(k) / under(k)."""

    over: Schedule
    under: Schedule

    def __call__(self, k: int) -> float:
        return self.over(k) / self.under(k)


@dataclass(frozen=True)
class After:
    """`first` at the first draw, then `rest` from its beginning."""

    first: float
    rest: Callable[[int], float]

    def __call__(self, k: int) -> float:
        return self.rest(k - 1) if k else self.first
