"""Scores in, verdict out: bounds at the promised confidence, and whether they break what the run promises.

What is proven is judged by the whole proven curve, one test; a paper's claim is one point (ε, δ), and is judged by the
one-point bound. That bound is printed beside the proven figure too, but the curve decides: two tests of one promise
would each need their own share of what may go wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gossamer.accounting.tradeoff import TradeOff
from gossamer.auditing import curve as curves
from gossamer.auditing.batches import KeptBatches
from gossamer.auditing.bounds import Bound, Coins, all_bounds, one_run, threshold
from gossamer.auditing.curve import CurveTest
from gossamer.auditing.procedures import Attack, Found


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


_EARLY = 0.1  # share of what may go wrong that all looks before the last have together


@dataclass(frozen=True)
class Verdict:
    """`bounds[0]` and `curve_tests[0]` are the ones that count: their assumptions hold by construction."""

    bounds: list[Bound]
    violated: tuple[str, ...]  # which of the promises are broken
    above_one_point: tuple[str, ...]  # which of the promised figures the declared bound exceeds
    curve_tests: list[CurveTest]  # none where nothing is proven
    looks: int
    runs: int

    @property
    def epsilon(self) -> float:
        return self.bounds[0].epsilon


@dataclass(frozen=True)
class Promised:
    """What must hold: at one point each ("claimed" or "proven" → ε), and all that is proven."""

    points: dict[str, float] = field(default_factory=dict)
    curve: TradeOff | None = None

    def exceeded(self, bound: Bound) -> tuple[str, ...]:
        return tuple(key for key, limit in self.points.items() if bound.epsilon > limit)

    def broken(self, bound: Bound, test: CurveTest | None) -> tuple[str, ...]:
        """One test for each promise."""
        above = self.exceeded(bound)
        if test is None:
            return above
        return tuple(k for k in self.points if (test.violated if k == "proven" else k in above))


def promised(figures: dict[str, Any], mode: str, curve: TradeOff | None = None) -> Promised:
    """What must hold: what is proven, and in paper mode also the claim, which is all that such a run has."""
    keys = ("claimed", "proven") if mode == "paper" else ("proven",)
    points = {key: figures[f"epsilon_{key}"] for key in keys if figures[f"epsilon_{key}"] is not None}
    return Promised(points, curve if "proven" in points else None)


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

    Looking early costs confidence: most of what may go wrong is kept for the last look, the others share the rest.
    """
    alpha, collected = 1 - confidence, Collected()
    sizes = look_sizes(runs, attack.at_once) if attack.looks else batch_sizes(runs, attack.at_once)
    early = len(sizes) - 1 if attack.looks else 0
    for number, size in enumerate(sizes):
        found = kept.get(number, size) if kept is not None else None
        if found is None:
            found = attack.batch(number, size)
            if kept is not None:
                kept.keep(number, found)
        collected.add(found)
        on_batch(collected.runs, runs)
        last = number == len(sizes) - 1
        if not (attack.looks or last):
            continue
        share = alpha if early == 0 else alpha * (1 - _EARLY) if last else alpha * _EARLY / early
        coins, kind = collected.coins, attack.independent
        bound = (threshold if kind else one_run)(coins, delta, 1 - share)
        test = None
        if limits.curve is not None:
            test = (curves.rates if kind else curves.guesses)(coins, limits.curve, 1 - share)
        violated = limits.broken(bound, test)
        if last or violated:
            # At every look the declared ones had less to go wrong with; all of the looks together hold at `confidence`.
            declared = replace(bound, confidence=confidence)
            bounds = [declared, *all_bounds(coins, delta, confidence, independent=kind)[1:]]
            tests = []
            if test is not None and limits.curve is not None:
                beside = (curves.guesses if kind else curves.rates)(coins, limits.curve, confidence)
                tests = [replace(test, confidence=confidence), beside]
            looks = number + 1 if attack.looks else 1
            above = limits.exceeded(declared)
            return collected, Verdict(bounds, violated, above, tests, looks, collected.runs)
    raise AssertionError("there is always a last look")
