"""A run directory that the program wrote when ledgers had version 1."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

OLD_RUN = Path(__file__).parent / "old_run"


def copy_of_old_run(folder: Path) -> Path:
    return shutil.copytree(OLD_RUN, folder / "old")


def certificate_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "certificate.json").read_text(encoding="utf-8"))
