"""A cell on disk: whether it is finished, what it found, and how a half-done one gets out of the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gossamer.config import stored
from gossamer.errors import UserError
from gossamer.results.files import read_metrics, read_object, read_text
from gossamer.results.headline import judged
from gossamer.results.verify import verify_files
from gossamer.studies.compare.grid import Cell


def folder(out: Path, cell: Cell) -> Path:
    return out / "cells" / cell.name


def finished(out: Path, cell: Cell) -> bool:
    """The certificate is written last; the configuration must be this cell's, key by key."""
    place = folder(out, cell)
    if not (place / "certificate.json").is_file():
        return False
    try:
        read_text(place / "config.toml")  # a pipe in its place is refused, not waited for
        return stored(place / "config.toml").model_dump() == cell.config.model_dump()
    except UserError:
        return False


def verify(out: Path, cell: Cell) -> bool:
    """A finished cell is read, not run: its files must be those that its run had signed, if it signed any."""
    place = folder(out, cell)
    try:
        return verify_files(place).signed
    except UserError as error:
        raise UserError(f"{str(error).rstrip('.')}; or remove {place} to run this cell again.") from None


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
    history = [judged(row) for row in read_metrics(place / "metrics.jsonl")]
    if not history:
        raise UserError(
            f"{place / 'metrics.jsonl'} is missing or empty; remove {place} to run this cell again."
        )
    certificate = read_object(place / "certificate.json")
    return {**history[-1], **certificate, "history": history, "cell": cell.name}


def ledgers(out: Path) -> list[Path]:
    """Of all cells that have released something, also those that failed or were stopped."""
    places = (place for part in ("cells", "set-aside") for place in (out / part).glob("[!.]*/ledger*.jsonl"))
    return sorted({place.parent for place in places})


def rounds_done(out: Path, cell: Cell) -> int:
    """How far a running cell is, by its last evaluation."""
    try:
        rows = read_metrics(folder(out, cell) / "metrics.jsonl")
    except UserError:  # it is another's to say what is wrong with it
        return 0
    return int(rows[-1]["round"]) if rows else 0
