"""Small trained runs on a table of one's own, with a hold-out that is public."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.own_records import on_table, write_table

import gossamer
from gossamer.results.trained import Description, Parameter
from gossamer.training.run import Outcome


def trained(folder: Path, changes: dict[str, Any] | None = None, **how: Any) -> Outcome:
    """Files t.csv and new.csv, and the run beside them."""
    folder.mkdir(exist_ok=True)
    train, test = write_table(folder / "t.csv"), write_table(folder / "new.csv", rows=40, seed=1)
    return gossamer.run(on_table(train, test=str(test)), changes, out=folder / "run", **how)


def description(**changes: Any) -> Description:
    from gossamer.data.inputs import Inputs

    made: dict[str, Any] = {
        "run": "0" * 16, "nodes": 3, "task": "classification", "classes": 2, "labels": ("no", "yes"),
        "inputs": Inputs(shape=(2,), columns=("a", "b"), label="y"), "input_shape": (2,), "outputs": 2,
        "probabilities": "softmax", "model": {"kind": "softmax"}, "own_module": False, "centre": False,
        "parameters": (Parameter(name="1.weight", shape=(2, 2)), Parameter(name="1.bias", shape=(2,))),
    }  # fmt: skip
    return Description(**{**made, **changes})
