"""Finished batches of trainings on disk, so that an audit of thousands can be stopped and continued."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.auditing.procedures import Found
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError

NAME = "scores.jsonl"
_COINS = "drawn coins"  # part of what batches belong to: they once took turns


class KeptBatches:
    """One line per batch, after a first line that says which audit they belong to.

    A batch is found by its number and size together. Asked for more trainings, the last one may have to grow: it is
    trained again from the start of its stream, and the smaller one, which may have the same coins, must not count
    beside it.
    """

    def __init__(self, folder: Path, config: RunConfig, *what: str):
        self._path = folder / NAME
        key = json.dumps([config.model_dump(mode="json"), *what, _COINS], sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()
        lines = self._path.read_text(encoding="utf-8").split("\n")[:-1] if self._path.is_file() else []
        if lines and not self._path.read_bytes().endswith(b"\n"):  # a line the last audit was stopped in
            self._path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        if not lines:
            self._path.write_text(json.dumps({"audit": digest}) + "\n", encoding="utf-8")
        elif json.loads(lines[0]).get("audit") != digest:
            raise UserError(f"{self._path} belongs to an audit of something else; name another folder.")
        self._found: dict[tuple[int, int], dict[str, Any]] = {}
        for line in map(json.loads, lines[1:]):
            self._found[line["batch"], line["runs"]] = line

    def __len__(self) -> int:
        return len(self._found)

    @property
    def runs(self) -> int:
        """Trainings that are done."""
        return sum(runs for _, runs in self._found)

    def get(self, number: int, runs: int) -> Found | None:
        """That batch, if it was done at that size."""
        line = self._found.get((number, runs))
        if line is None:
            return None
        heads = np.array(line["heads"], dtype=bool)
        return Found(np.array(line["scores"]), heads, np.arange(runs), runs, line["seconds"], line["samples"])

    def keep(self, number: int, found: Found) -> None:
        line = {
            "batch": number,
            "runs": found.runs,
            "seconds": found.seconds,
            "samples": found.samples,
            "heads": found.heads.astype(int).tolist(),
            "scores": found.scores.tolist(),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
