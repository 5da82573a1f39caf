"""Records of one's own in files, and small private runs on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def write_table(path: Path, rows: int = 90, seed: int = 0) -> Path:
    """Two numbers, a site of three and a label of two."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    lines = [f"{a:.5f},{b:.5f},{i % 3},{int(a + b > 0)}" for i, (a, b) in enumerate(x)]
    path.write_text("\n".join(["a,b,site,y", *lines]) + "\n")
    return path


def on_table(path: Path | str, **data: Any) -> dict[str, Any]:
    """Three nodes, two rounds, ε = 1."""
    return {
        "name": "study",
        "nodes": 3,
        "rounds": 2,
        "data": {
            "kind": "csv", "path": str(path), "label": "y", "features": ["a", "b"], "classes": 2, "records": 30, **data,
        },
        "model": {"kind": "softmax"},
        "topology": {"kind": "complete"},
        "algorithm": {"kind": "dp-dsgd", "lr": 0.5},
        "privacy": {
            "epsilon": 1.0,
            "sampling": {"kind": "full"},
            "clip": {"kind": "constant", "bound": 1.0},
            "noise": {"schedule": {"kind": "constant"}},
        },
    }  # fmt: skip
