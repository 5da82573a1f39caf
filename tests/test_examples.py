"""The examples run, and do what they say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_own_module_on_own_table(tmp_path: Path) -> None:
    outcome = load("own_module").main(tmp_path, rounds=60)
    assert outcome.result["accuracy_mean"] > 0.85
    assert outcome.result["epsilon_proven"] <= 4.0
    assert outcome.certificate["public_constants"][0]["records"] == 110
