"""What came of an item's cells, as one small file for the repository: the book is written from these alone."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gossamer
from gossamer.errors import UserError
from gossamer.results.headline import no_epsilon_covers
from gossamer.results.rundir import read_object, write_atomically
from gossamer.studies.compare import metric_of
from gossamer.studies.reproduce import AuditSpec, PaperCell, Place
from reproductions.definition import Definition
from reproductions.known import Known, Recorded, known_cells, parts_of, settings_of

Result = dict[str, Any]
_MOST_POINTS = 40  # of a curve: what a drawing can show

Figures = dict[str, Any]


def record(
    name: str,
    definition: Definition,
    cells: Sequence[PaperCell],
    results: Mapping[Place, Sequence[Result]],
    cuts: Sequence[str],
    known: Mapping[Place, Figures] | None = None,
) -> dict[str, Any]:
    """`results`: the runs of a cell and mode, in the order of its seeds; `known`: what a result file had before.

    A cell that some of its seeds are missing of is left out: a later record has it.
    """
    commit = commit_here()
    figures: dict[Place, Figures] = dict(known or {})
    for cell in cells:
        for mode, runs in cell.runs.items():
            done = results.get((cell.label, mode), ())
            if len(done) == len(runs):
                figures[cell.label, mode] = {
                    **_figures(definition, done),
                    "seeds": [run.config.seed for run in runs],
                    "commit": commit,
                    "settings": settings_of(runs[0]),
                }
    settings = [found["settings"] for found in figures.values()]
    common = {k: v for k, v in settings[0].items() if all(s.get(k) == v for s in settings)} if settings else {}
    runs_seconds = {
        json.dumps([found["settings"], seed], sort_keys=True): seconds or 0.0
        for found in figures.values()
        for seed, seconds in zip(found["seeds"], found["seconds"], strict=True)
    }  # a run that several cells show counts once
    return {
        "item": name,
        "title": definition.title,
        "paper": definition.paper,
        "made": {**_made(), "seconds": round(math.fsum(runs_seconds.values()), 1)},
        "cut": list(cuts),
        **({"audit": _attack(definition.audit)} if definition.audit else {}),
        "settings": common,
        "cells": [
            {
                "labels": cell.labels,
                "source": cell.source,
                "printed": cell.printed,
                "paper_mean": cell.mean,
                "paper_std": cell.std,
                "modes": {
                    mode: {
                        **found,
                        "settings": {
                            **{k: v for k, v in found["settings"].items() if k not in common},
                            **dict.fromkeys(sorted(_unset(definition, cell.labels, mode) - {*found["settings"]})),
                        },
                    }
                    for mode in cell.runs
                    if (found := figures.get((cell.label, mode)))
                },
            }
            for cell in cells
        ],
    }


def _attack(audit: AuditSpec) -> dict[str, Any]:
    return {**audit.model_dump(exclude={"runs"}), "runs": audit.at("book")}


def _unset(definition: Definition, labels: Mapping[str, str], mode: str) -> set[str]:
    """Keys of the recipe that the cell takes away: null in its settings, so that no default comes in their place."""
    rules = definition.rules("book", labels)
    return {key for rule in rules if rule.mode in (None, mode) for key in rule.unset}


def known_figures(folder: Path, name: str, cells: Sequence[PaperCell]) -> Known[Place]:
    """Of the item's result file, what need not be run again, and what becomes of the rest."""
    file = place_of(folder, name)
    wanted = {(cell.label, mode): runs for cell in cells for mode, runs in cell.runs.items()}
    if not file.is_file():
        return Known(file, None, {})
    made = read_record(folder, name)
    labels = {labels_key(cell.labels): cell.label for cell in cells}
    recorded: dict[Place, Recorded] = {}
    with parts_of(file):
        for cell in made["cells"]:
            label = labels.get(labels_key(cell["labels"]), ", ".join(cell["labels"].values()))
            for mode, figures in cell["modes"].items():
                settings = {**made["settings"], **figures["settings"]}
                recorded[label, mode] = Recorded(f"{label}, {mode} mode", settings, figures["seeds"], figures)
    return known_cells(file, recorded, wanted)


def labels_key(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The same cell has the same, in whatever order its labels were written."""
    return tuple(sorted(labels.items()))


def _figures(definition: Definition, results: Sequence[Result]) -> dict[str, Any]:
    """Accuracies in per cent, everything else as it is."""
    own = definition.book.metric if definition.book else None
    if definition.audit:
        own = own or "epsilon_audited"
    metric = own or metric_of(results) or "accuracy"
    scale = 100.0 if metric == "accuracy" else 1.0
    key = own or f"{metric}_mean"
    worst = "accuracy_min" if metric == "accuracy" else f"{metric}_max"
    first = results[0] if results else {}
    figures: dict[str, Any] = {
        "metric": metric,
        "values": [_rounded(_value(result, key), scale) for result in results],
        "worst_node": [_rounded(result.get(worst), scale) for result in results] if own is None else [],
        "seconds": [_rounded(result.get("seconds")) for result in results],
        "epsilon_claimed": worst_epsilon(result.get("epsilon_claimed") for result in results),
        "epsilon_proven": worst_epsilon(result.get("epsilon_proven") for result in results),
        "not_proven_because": next((r["not_proven_because"] for r in results if r.get("not_proven_because")), None),
        "not_private": next(filter(None, map(no_epsilon_covers, results)), None),
        **{key: first.get(key) for key in ("delta", "adjacency", "unit", "observer", "stamp")},
    }
    if definition.audit:
        figures["histograms"] = [result["audit"]["histogram"] for result in results]
    if definition.book and definition.book.history:
        figures["history"] = [_curve(result, key, scale) for result in results]
    return figures


def figure(result: Result, metric: str) -> float | None:
    """The figure of a run that a result file's metric names, as the file has it."""
    key = metric if _value(result, metric) is not None else f"{metric}_mean"
    return _rounded(_value(result, key), 100.0 if metric == "accuracy" else 1.0)


def _curve(result: Result, key: str, scale: float) -> list[list[float | None]]:
    rows = result["history"]
    step = max(1, -(-len(rows) // _MOST_POINTS))
    kept = rows[::-1][::step][::-1]  # the last one always
    return [[row["round"], _rounded(_value(row, key), scale)] for row in kept]


def _value(row: Mapping[str, Any], key: str) -> float | None:
    """By a dotted key; a figure of every node counts with its mean."""
    found: Any = row
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, list):
        return math.fsum(found) / len(found) if found else None
    return None if found is None else float(found)


def _rounded(value: float | None, scale: float = 1.0) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{scale * value:.6g}")


def worst_epsilon(values: Any) -> float | None:
    """The largest of several runs; none where one of them has none."""
    known = list(values)
    return None if not known or None in known else _rounded(max(known))


def _made() -> dict[str, Any]:
    import torch

    return {
        "gossamer": gossamer.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def commit_here() -> str:
    """Of the checkout that the package is in; with a plus sign if its files differ from the commit."""
    here = Path(gossamer.__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=here, capture_output=True, text=True, check=True, timeout=20
        ).stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return "not a checkout"


def place_of(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def write_record(folder: Path, name: str, made: Mapping[str, Any]) -> Path:
    """One cell a line: small, and a change of one cell is a change of one line."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    place = place_of(folder, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    head = [f" {line(key)}: {line(value)}" for key, value in made.items() if key != "cells"]
    cells = ",\n".join(f"  {line(cell)}" for cell in made["cells"])
    write_atomically(place, ("{\n" + ",\n".join([*head, f' "cells": [\n{cells}\n ]']) + "\n}\n").encode())
    return place


def read_record(folder: Path, name: str) -> dict[str, Any]:
    place = place_of(folder, name)
    if not place.is_file():
        raise UserError(f"{place} does not exist; `python -m reproductions run {name}` writes it.")
    return read_object(place, "cells")
