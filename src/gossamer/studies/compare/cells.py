"""A cell on disk: whether it is finished, what it found, and how a half-done one gets out of the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gossamer.config import stored
from gossamer.errors import UserError
from gossamer.results.headline import judged
from gossamer.studies.compare.grid import Cell


def folder(out: Path, cell: Cell) -> Path:
    return out / "cells" / cell.name


def finished(out: Path, cell: Cell) -> bool:
    """The certificate is written last; the configuration must be this cell's, key by key."""
    place = folder(out, cell)
    if not (place / "certificate.json").is_file():
        return False
    try:
        return stored(place / "config.toml") == cell.config
    except UserError:
        return False


def set_aside(out: Path, cell: Cell) -> Path | None:
    """Move what a stopped run left; nothing is ever deleted or overwritten."""
    place = folder(out, cell)
    if not place.exists():
        return None
    (out / "set-aside").mkdir(exist_ok=True)
    count = 1
    while (target := out / "set-aside" / f"{cell.name}-{count}").exists():
        count += 1
    return place.rename(target)


def result(out: Path, cell: Cell) -> dict[str, Any]:
    """The last evaluation, all evaluations as `history`, and the certificate's figures, which win."""
    place = folder(out, cell)
    history = [
        judged(json.loads(line))
        for line in (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    certificate = json.loads((place / "certificate.json").read_text(encoding="utf-8"))
    return {**history[-1], **certificate, "history": history, "cell": cell.name}


def rounds_done(out: Path, cell: Cell) -> int:
    """How far a running cell is, by its last evaluation."""
    try:
        lines = (folder(out, cell) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return int(json.loads(lines[-1])["round"]) if lines else 0
    except (OSError, ValueError):  # not there yet, or a line half-written
        return 0
