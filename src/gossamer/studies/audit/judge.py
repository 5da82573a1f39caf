"""Scores in, verdict out: bounds at the promised confidence, and whether they break what the run promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gossamer.studies.audit.batches import KeptBatches
from gossamer.studies.audit.bounds import Bound, Coins, all_bounds, one_run, threshold
from gossamer.studies.audit.procedures import Attack, Found


@dataclass
class Collected:
    """All batches so far."""

    parts: list[Found] = field(default_factory=list)
    runs: int = 0

    def add(self, found: Found) -> None:
        self.parts.append(found)
        self.runs += found.runs

    @property
    def coins(self) -> Coins:
        before, runs = 0, []
        for part in self.parts:
            runs.append(part.run + before)
            before += part.runs
        return Coins(
            np.concatenate([part.scores for part in self.parts]),
            np.concatenate([part.heads for part in self.parts]),
            np.concatenate(runs),
        )

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)

    @property
    def samples(self) -> float:
        return sum(part.samples for part in self.parts)

    @property
    def details(self) -> dict[str, Any]:
        return {key: value for part in self.parts for key, value in part.details.items()}


@dataclass(frozen=True)
class Verdict:
    """`bounds[0]` is the one that counts: its assumptions hold by construction."""

    bounds: list[Bound]
    violated: tuple[str, ...]  # which of the promised figures the declared bound exceeds
    looks: int
    runs: int

    @property
    def epsilon(self) -> float:
        return self.bounds[0].epsilon


Promised = dict[str, float]  # "claimed" or "proven" → ε


def promised(figures: dict[str, Any], mode: str) -> Promised:
    """What must hold: the proven figure, and in paper mode also the claim, which is all that such a run has."""
    keys = ("claimed", "proven") if mode == "paper" else ("proven",)
    return {key: figures[f"epsilon_{key}"] for key in keys if figures[f"epsilon_{key}"] is not None}


def look_sizes(runs: int, at_once: int) -> list[int]:
    """How many trainings before each look: doubling, so that a clear case ends early."""
    sizes, done = [], 0
    while done < runs:
        step = min(max(1, done), at_once, runs - done)
        sizes.append(step)
        done += step
    return sizes


def batch_sizes(runs: int, at_once: int) -> list[int]:
    return [min(at_once, runs - start) for start in range(0, runs, at_once)]


def try_until_decided(
    attack: Attack,
    delta: float,
    confidence: float,
    limits: Promised,
    runs: int,
    on_batch: Callable[[int, int], None] = lambda done, of: None,
    kept: KeptBatches | None = None,
) -> tuple[Collected, Verdict]:
    """Train, look, and stop once a promise is broken or the runs are used up.

    Looking early costs confidence: half of what may go wrong is kept for the last look, the others share the rest.
    """
    alpha, collected = 1 - confidence, Collected()
    sizes = look_sizes(runs, attack.at_once) if attack.looks else batch_sizes(runs, attack.at_once)
    early = len(sizes) - 1 if attack.looks else 0
    violated: tuple[str, ...] = ()
    for number, size in enumerate(sizes):
        found = kept.get(number, size) if kept is not None else None
        if found is None:
            found = attack.batch(number, size)
            if kept is not None:
                kept.keep(found)
        collected.add(found)
        on_batch(collected.runs, runs)
        last = number == len(sizes) - 1
        if not (attack.looks or last):
            continue
        share = alpha if early == 0 else alpha / 2 if last else alpha / 2 / early
        bound = (threshold if attack.independent else one_run)(collected.coins, delta, 1 - share)
        violated = tuple(key for key, limit in limits.items() if bound.epsilon > limit)
        if last or violated:
            bounds = all_bounds(collected.coins, delta, confidence, independent=attack.independent)
            declared = Bound(bound.name, bound.epsilon, confidence, bound.rests_on, bound.shown)
            looks = number + 1 if attack.looks else 1
            return collected, Verdict([declared, *bounds[1:]], violated, looks, collected.runs)
    raise AssertionError("there is always a last look")
