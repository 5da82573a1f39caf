"""Ledgers of two runs that did the same: equal but for the runs' names and what follows from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Every line as it was written, without the run's own name, nonce and key, and the hashes that depend on them."""
    own = ("run", "nonce", "key", "prev")
    return [
        {key: value for key, value in json.loads(line).items() if key not in own}
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
