"""What the steps cost: a share of ε alone, of all runs and copies, divided among them by what each needs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gossamer.accounting.gaussian import gdp_mu
from gossamer.accounting.releases import Event
from gossamer.mechanism.summaries.base import release_of
from gossamer.preprocess.base import Step


def planned_events(
    steps: Sequence[Step], adjacency: str, *, epsilon: float | None, delta: float, times: int
) -> tuple[Event, ...]:
    """One event a step, at −k, …, −1, ahead of draw 0: together, so many times, they cost `epsilon`; None: no noise.

    All are Gaussians on all records: their μ² add up, and each gets its part of the whole.
    """
    whole = sum(step.part for step in steps)
    found = []
    for at, step in enumerate(steps, start=-len(steps)):
        multiplier = 0.0
        if epsilon is not None:
            unit = step.released_as(
                sigma=1.0, sensitivity=1.0, sampling="full", rate=1.0, adjacency=adjacency
            )
            mu = gdp_mu(epsilon, delta) * math.sqrt(step.part / whole)
            multiplier = unit.shift(adjacency) * math.sqrt(times) / mu * (1 + 1e-9)
        found.append(Event(at, release_of(step.released_as, multiplier, adjacency)))
    return tuple(found)
