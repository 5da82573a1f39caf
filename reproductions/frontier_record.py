"""The frontier's cells as one small file for the repository: its table is written from there and from new runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.studies.cells import Cell
from reproductions.known import Known, Recorded, known_cells, parts_of, settings_of
from reproductions.record import commit_here, place_of, read_record, write_record

Place = tuple[str, float, str]  # experiment, ε, column


@dataclass(frozen=True)
class Shown:
    """What a cell of the table shows, and what its caption says of it."""

    row: dict[str, Any]  # the figures over the seeds
    observers: list[str]
    without_noise: bool
    replace_one: float | None
    commit: str | None = None  # of the code that made it; None for this one


def known_shown(folder: Path, name: str, wanted: Mapping[Place, Sequence[Cell]]) -> Known[Place]:
    """Of the table's result file, what need not be run again, and what becomes of the rest."""
    file = place_of(folder, name)
    if not file.is_file():
        return Known(file, None, {})
    recorded: dict[Place, Recorded] = {}
    with parts_of(file):
        for cell in read_record(folder, name)["cells"]:
            place = (cell["experiment"], cell["epsilon"], cell["column"])
            called = f"{cell['experiment']}, {cell['column']}, ε = {cell['epsilon']:g}"
            recorded[place] = Recorded(called, cell["settings"], cell["seeds"], cell)
    return known_cells(file, recorded, wanted)


def shown_of(known: Known[Place]) -> dict[Place, Shown]:
    return {place: Shown(**cell["shown"], commit=cell["commit"]) for place, cell in known.same.items()}


def write_cells(
    folder: Path,
    name: str,
    title: str,
    wanted: Mapping[Place, Sequence[Cell]],
    shown: Mapping[Place, Shown],
) -> Path:
    """A cell that some of its seeds are missing of is left out: a later record has it."""
    here = commit_here()
    cells = [
        {
            "experiment": place[0],
            "epsilon": place[1],
            "column": place[2],
            "shown": {
                "row": one.row,
                "observers": one.observers,
                "without_noise": one.without_noise,
                "replace_one": one.replace_one,
            },
            "seeds": [run.config.seed for run in runs],
            "commit": one.commit or here,
            "settings": settings_of(runs[0]),
        }
        for place, runs in wanted.items()
        if (one := shown.get(place)) and one.row["seeds"] == len(runs)
    ]
    return write_record(folder, name, {"item": name, "title": title, "cells": cells})
