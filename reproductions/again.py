"""A part of the book run again: does every figure lie where the book has it?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gossamer.errors import UserError
from reproductions.findings import mean, quantile, variance
from reproductions.known import as_today
from reproductions.record import labels_key

POINTS = 2.0  # of accuracy that two runs may always differ by; of other figures, a quarter of the book's
SURE = 0.999  # that a run like the book's lies within; some sixty figures are held against it at a time
MOST_DEVIATIONS = 5.0  # however few the seeds are


def differences(made: Mapping[str, Any], book: Mapping[str, Any]) -> tuple[int, dict[str, str]]:
    """How many figures were held against the book, and for each that lies elsewhere a sentence."""
    known = {labels_key(cell["labels"]): cell for cell in book["cells"]}
    spread = spread_of(book)
    checked = 0
    wrong: dict[str, str] = {}
    for cell in made["cells"]:
        before = known.get(labels_key(cell["labels"]))
        for mode, figures in cell["modes"].items():
            name = f"{', '.join(cell['labels'].values())}, {mode} mode"
            recorded = before["modes"].get(mode) if before else None
            if recorded is None:
                wrong[name] = "it is not in the book."
                continue
            checked += 1
            found = _difference(figures, recorded, made["settings"], book["settings"], spread)
            if found:
                wrong[name] = f"{'; '.join(found)}."
    return checked, wrong


Spread = Mapping[str, tuple[float, int]]  # metric → variance of one run, and its degrees of freedom


def tolerance(recorded: Mapping[str, Any], runs: int, spread: Spread) -> float:
    """How far the mean of `runs` runs may lie from the book's: Student's t, or the floor.

    Three seeds hardly tell how far runs are apart, so the variance is that of all cells of the item together, or
    the cell's own where that is larger.
    """
    values, metric = recorded["values"], recorded["metric"]
    floor = POINTS if metric == "accuracy" else 0.25 * abs(mean(values))
    if len(values) < 2 or metric not in spread:
        return floor
    pooled, freedom = spread[metric]
    largest = max(pooled, variance(values))
    deviations = min(quantile(freedom, SURE), MOST_DEVIATIONS)
    return max(floor, deviations * math.sqrt(largest * (1 / len(values) + 1 / runs)))


def spread_of(book: Mapping[str, Any]) -> Spread:
    """A run that several cells show counts once."""
    found: dict[str, set[tuple[float, ...]]] = {}
    for cell in book["cells"]:
        for figures in cell["modes"].values():
            values = figures["values"]
            if len(values) > 1 and None not in values:
                found.setdefault(figures["metric"], set()).add(tuple(values))
    freedoms = {metric: sum(len(values) - 1 for values in all_) for metric, all_ in found.items()}
    return {
        metric: (
            math.fsum(variance(v) * (len(v) - 1) for v in all_) / freedoms[metric],
            freedoms[metric],
        )
        for metric, all_ in found.items()
    }


def _difference(
    figures: Mapping[str, Any],
    recorded: Mapping[str, Any],
    settings: Mapping[str, Any],
    book_settings: Mapping[str, Any],
    spread: Spread,
) -> list[str]:
    now = {**settings, **figures["settings"]}
    try:
        then = as_today({**book_settings, **recorded["settings"]})
    except UserError as error:
        return [f"the book's settings are none any more: {str(error).rstrip('.')}"]
    changed = sorted(key for key in {*now, *then} if now.get(key) != then.get(key))
    if changed:
        return [f"its settings are not the book's: {', '.join(changed)}"]
    return disagreements(figures, recorded, spread)


def disagreements(figures: Mapping[str, Any], recorded: Mapping[str, Any], spread: Spread) -> list[str]:
    """Of a cell's runs with the book's: their mean and both ε, each that lies elsewhere in a few words."""
    if not figures["values"] or None in figures["values"] or None in recorded["values"]:
        return ["there is no figure to compare"]
    wrong = []
    here, there = mean(figures["values"]), mean(recorded["values"])
    most = tolerance(recorded, len(figures["values"]), spread)
    if abs(here - there) > most:
        wrong.append(f"{here:.4g}, but {there:.4g} in the book, and {most:.3g} apart are allowed")
    for key in ("epsilon_claimed", "epsilon_proven"):
        a, b = figures[key], recorded[key]
        if (a is None) != (b is None) or (a is not None and abs(a - b) > 0.02 * abs(b)):
            wrong.append(f"{key} is {a}, but {b} in the book")
    return wrong
