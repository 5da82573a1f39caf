"""Tests import shared pieces from tests/support alone, never another test file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FILES = sorted(path.relative_to(TESTS) for path in TESTS.rglob("*.py"))


def imported(path: Path) -> list[str]:
    """The modules that a file imports, and the names it takes from packages."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            names += [f"{start}.{alias.name}" for alias in node.names]
    return names


def test_support_holds_no_tests() -> None:
    assert not [file for file in FILES if file.parts[0] == "support" and file.name.startswith("test_")]


@pytest.mark.parametrize("folder", sorted({file.parts[0] for file in FILES if len(file.parts) > 1} | {"."}))
def test_no_test_imports_a_test(folder: str) -> None:
    for file in (f for f in FILES if (f.parts[0] if len(f.parts) > 1 else ".") == folder):
        for name in imported(TESTS / file):
            shared = f"{name}.".startswith("tests.support.")
            ours = name.startswith(("tests.", "test_", ".")) or name.endswith("conftest")
            assert shared or not ours, f"{file} imports {name}"
