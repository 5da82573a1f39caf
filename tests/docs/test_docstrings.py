"""Every example in a docstring does what it shows."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
MODULES = [
    ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((SRC / "gossamer").rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


def test_the_parts_to_be_used_by_themselves_have_examples() -> None:
    for part in (
        "accounting",
        "accounting.accountant",
        "accounting.observers",
        "topology",
        "kernels.clipped_sum",
    ):
        assert f"gossamer.{part}" in MODULES
    assert {"gossamer.testing.algorithm", "gossamer.testing.clip", "gossamer.testing.noise"} <= set(MODULES)
