"""A packed study of two sites with their files on disk, and commands about it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.consortia import RECIPE, Clock, on_disk, rows
from typer.testing import CliRunner

from gossamer.cli import app
from gossamer.consortium.files import now
from gossamer.consortium.study import pack


def said(*words: str) -> str:
    """What a command prints; a mistake is raised."""
    found = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def study_of_two(folder: Path) -> Path:
    north = on_disk(folder, "clinic", "mercy", clock=Clock(now()))
    rows(folder / "mercy" / "records.csv", 90)
    rows(folder / "mercy" / "test.csv", 30, start=5000)
    shutil.copy(folder / "mercy" / "test.csv", folder / "test.csv")
    return pack(north, RECIPE, {"data.test": str(folder / "test.csv")})[1]
