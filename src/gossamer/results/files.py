"""Files of a run directory, read back: whatever was done to one, it is a sentence that names it, never a hang.

A pipe or a device in a file's place is refused before anything is read from it; a link to a regular file is followed:
what it leads to is checked as the file itself would be.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from gossamer.accounting.chain import LedgerError, content, no_name_twice
from gossamer.errors import UserError
from gossamer.results.packing import unpack


def read_bytes(path: Path, at_most: int = -1) -> bytes:
    try:
        return content(path, at_most)
    except LedgerError as error:
        raise UserError(f"{error}.") from None


def read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is damaged: byte {error.start} is not UTF-8 text.") from None


def read_object(path: Path, *keys: str) -> dict[str, Any]:
    """A JSON object that has these keys; lists with an entry per node are lists again, however they were written."""
    try:
        found = unpack(_parsed(path, read_text(path), ""))
    except (TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is damaged: a list of its nodes is not one ({error}).") from None
    missing = next((key for key in keys if key not in found), None)
    if missing is not None:
        raise UserError(f"{path} is damaged: it has no {missing!r}.")
    return found


def read_metrics(path: Path, *, to_the_end: bool = False) -> list[dict[str, Any]]:
    """The complete lines of metrics.jsonl; a run may be in the middle of one, unless it is over (`to_the_end`)."""
    if not path.exists():
        return []
    *whole, rest = read_text(path).split("\n")
    if to_the_end and rest:
        raise UserError(f"{path} line {len(whole) + 1} is damaged: it is cut off.")
    rows = [_parsed(path, line, f" line {number}") for number, line in enumerate(whole, start=1) if line]
    for number, row in enumerate(rows, start=1):
        if type(row.get("round")) is not int:
            raise UserError(f"{path} line {number} is damaged: its 'round' is not a number of rounds.")
        if not isinstance(row.get("not_private", {}), dict):
            raise UserError(f"{path} line {number} is damaged: its 'not_private' is not an object.")
    return rows


def digest_of(path: Path) -> str:
    return hashlib.sha256(read_bytes(path)).hexdigest()


def digest_of_object(value: dict[str, Any], *, without: tuple[str, ...] = ()) -> str:
    """Of what it says, however it is laid out."""
    kept = {key: part for key, part in value.items() if key not in without}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def _parsed(path: Path, text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=no_name_twice)
    except RecursionError:
        raise UserError(f"{path}{where} is damaged: its brackets are too deep.") from None
    except ValueError as error:
        raise UserError(f"{path}{where} is damaged: it is not JSON ({error}).") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}{where} is damaged: it is not a JSON object but a {type(found).__name__}.")
    return found
