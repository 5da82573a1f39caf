"""The seams of docs/design.md: who may compare which name."""

from __future__ import annotations

import ast
import io
import re
from functools import cache
from pathlib import Path

import pytest
from tests.support.registries import rules

from gossamer.accounting.releases import KINDS
from gossamer.config.methods import PRESETS

SRC = Path(__file__).parents[2] / "src" / "gossamer"
MODULES = sorted(SRC.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    """Read once: there are hundreds, and many questions."""
    return ast.parse(path.read_text(encoding="utf-8"))


def compared(path: Path) -> list[tuple[int, str]]:
    """Every string that a module compares something with, by == or in."""
    found = []
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.Compare):
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                found.append((node.lineno, part.value))
    return found


def outside(*folders: str) -> list[Path]:
    return [path for path in MODULES if path.relative_to(SRC).parts[0] not in folders]


def test_no_mechanism_is_compared_by_name_outside_of_mechanism_and_accounting() -> None:
    """But for the papers' formulas, each of which is for a noise that it names."""
    names = set(KINDS) - {"none"}  # which is also a baseline's, a scale's, an axis'
    wrong = [
        f"{path.relative_to(SRC)}:{line} {name}"
        for path in outside("mechanism", "accounting")
        if path != SRC / "methods" / "claims.py"
        for line, name in compared(path)
        if name in names
    ]
    assert wrong == []


def test_no_method_is_told_by_name_or_type_outside_of_methods() -> None:
    """But for the checks of a configuration, which name the keys a user wrote."""
    names = {name for name, preset in PRESETS.items() if preset["rule"] in ("km", "without-replacement")}
    types = {rule.__name__ for rule in rules().values()} | {"SharedModel", "OperatorMethod", "Gossip"}
    wrong = []
    for path in outside("methods", "algorithms"):
        place, text = str(path.relative_to(SRC)), path.read_text(encoding="utf-8")
        wrong += [
            f"{place}:{line} {name}" for line, name in compared(path) if name in names and place != "config/checks.py"
        ]
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                asked = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
                in_assert = re.search(rf"assert {re.escape(ast.unparse(node))}", text)
                if asked & types and not in_assert:
                    wrong.append(f"{place}:{node.lineno} {ast.unparse(node)}")
    assert wrong == []


@pytest.mark.parametrize("text", ["pip install 'gossamer[track]'", "[bold]file[1].csv[/bold]"])
def test_the_terminal_keeps_brackets(text: str) -> None:
    from gossamer.results.terminal import terminal

    console = terminal()
    console.file = io.StringIO()
    console.print(text)
    assert console.file.getvalue() == f"{text}\n"
    rich_consoles = [
        str(path.relative_to(SRC))
        for path in MODULES
        if re.search(r"\b(Console|Terminal)\((?!stderr=True\)|Console\))", path.read_text(encoding="utf-8"))
    ]
    assert rich_consoles == ["results/terminal.py"]


def test_the_library_exports_what_its_page_says() -> None:
    import gossamer

    assert gossamer.__all__ == [
        "Data",
        "Outcome",
        "PrivateClassifier",
        "PrivateRegressor",
        "audit",
        "compare",
        "load",
        "lora",
        "merge_lora",
        "plan",
        "plugin",
        "report",
        "resume",
        "run",
        "tokens",
        "tune",
    ]
    for name in gossamer.__all__:
        assert callable(getattr(gossamer, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gossamer.nothing  # noqa: B018
