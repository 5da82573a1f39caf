"""A part of the book run again: does every figure lie where the book has it?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gossamer.studies.reproduce.findings import mean
from gossamer.studies.reproduce.record import as_today

POINTS = 2.0  # of accuracy that two runs may always differ by; of other figures, a quarter of the book's
DEVIATIONS = 3.0


def differences(made: Mapping[str, Any], book: Mapping[str, Any]) -> tuple[int, dict[str, str]]:
    """How many figures were held against the book, and for each that lies elsewhere a sentence."""
    known = {_key(cell): cell for cell in book["cells"]}
    checked = 0
    wrong: dict[str, str] = {}
    for cell in made["cells"]:
        before = known.get(_key(cell))
        for mode, figures in cell["modes"].items():
            name = f"{', '.join(cell['labels'].values())}, {mode} mode"
            recorded = before["modes"].get(mode) if before else None
            if recorded is None:
                wrong[name] = "it is not in the book."
                continue
            checked += 1
            found = _difference(figures, recorded, made["settings"], book["settings"])
            if found:
                wrong[name] = f"{'; '.join(found)}."
    return checked, wrong


def tolerance(recorded: Mapping[str, Any], runs: int) -> float:
    """Three standard deviations of the difference between the book's mean and one of `runs` runs, or the floor."""
    values = recorded["values"]
    centre = mean(values)
    floor = POINTS if recorded["metric"] == "accuracy" else 0.25 * abs(centre)
    if len(values) < 2:
        return floor
    variance = math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1)
    return max(floor, DEVIATIONS * math.sqrt(variance * (1 / len(values) + 1 / runs)))


def _difference(
    figures: Mapping[str, Any],
    recorded: Mapping[str, Any],
    settings: Mapping[str, Any],
    book_settings: Mapping[str, Any],
) -> list[str]:
    now, then = {**settings, **figures["settings"]}, as_today({**book_settings, **recorded["settings"]})
    if then is None:
        return ["the book's settings are none any more"]
    changed = sorted(key for key in {*now, *then} if now.get(key) != then.get(key))
    if changed:
        return [f"its settings are not the book's: {', '.join(changed)}"]
    if not figures["values"] or None in figures["values"] or None in recorded["values"]:
        return ["there is no figure to compare"]
    wrong = []
    here, there = mean(figures["values"]), mean(recorded["values"])
    most = tolerance(recorded, len(figures["values"]))
    if abs(here - there) > most:
        wrong.append(f"{here:.4g}, but {there:.4g} in the book, and {most:.3g} apart are allowed")
    for key in ("epsilon_claimed", "epsilon_proven"):
        a, b = figures[key], recorded[key]
        if (a is None) != (b is None) or (a is not None and abs(a - b) > 0.02 * abs(b)):
            wrong.append(f"{key} is {a}, but {b} in the book")
    return wrong


def _key(cell: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(cell["labels"].items()))
