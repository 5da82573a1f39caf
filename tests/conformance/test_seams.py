"""The seams of docs/design.md hold: who may compare which name, and what stands at the package's root."""

from __future__ import annotations

import ast
import io
import re
from functools import cache
from pathlib import Path

import pytest

from gossamer.accounting.releases import KINDS
from gossamer.algorithms import rules
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
    names = set(KINDS) - {"none"}  # which is also a baseline's, a scale's, an axis'
    wrong = [
        f"{path.relative_to(SRC)}:{line} {name}"
        for path in outside("mechanism", "accounting")
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
            f"{place}:{line} {name}"
            for line, name in compared(path)
            if name in names and place != "config/checks.py"
        ]
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                asked = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
                in_assert = re.search(rf"assert {re.escape(ast.unparse(node))}", text)
                if asked & types and not in_assert:
                    wrong.append(f"{place}:{node.lineno} {ast.unparse(node)}")
    assert wrong == []


def test_the_root_of_the_package_holds_the_door_and_nothing_else() -> None:
    doors = {"__init__.py", "__main__.py", "arguments.py", "cli.py", "estimators.py"}
    assert {path.name for path in SRC.glob("*.py")} == {*doors, "errors.py"}


def test_every_door_enters_by_run() -> None:
    """Nobody outside of run/ makes an outline or parts by himself: the functions are defined there alone."""
    for name in ("outline", "assemble", "execute", "load_nodes"):
        homes = [
            str(path.relative_to(SRC))
            for path in MODULES
            for node in tree(path).body
            if isinstance(node, ast.FunctionDef) and node.name == name
        ]
        assert len(homes) == 1, homes
        assert homes[0].startswith(("run/", "data/by_node"))
    users = [path for path in outside("run", "data") if "load_nodes" in path.read_text(encoding="utf-8")]
    assert users == []


@pytest.mark.parametrize("text", ["pip install 'gossamer[report]'", "[bold]file[1].csv[/bold]"])
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


def imported(path: Path) -> list[tuple[str, str]]:
    """(module, name) of every `from gossamer.… import name`."""
    return [
        (node.module, alias.name)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gossamer.")
        for alias in node.names
    ]


def surface(package: str) -> list[str]:
    """`__all__` of a folder."""
    body = ast.parse((SRC / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")).body
    lists = [
        node.value
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert len(lists) == 1, f"gossamer.{package} does not say what it exports"
    return list(ast.literal_eval(lists[0]))


FOLDERS = sorted(
    path.parent.relative_to(SRC).as_posix().replace("/", ".") for path in SRC.rglob("*/__init__.py")
)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_exports_what_exists(folder: str) -> None:
    place = SRC / folder.replace(".", "/")
    text = (place / "__init__.py").read_text(encoding="utf-8")
    for name in surface(folder):
        assert (place / f"{name}.py").is_file() or (place / name).is_dir() or re.search(rf"\b{name}\b", text)


def test_others_import_only_what_a_folder_exports() -> None:
    wrong = []
    for path in MODULES:
        own = path.relative_to(SRC).parts[0]
        for module, name in imported(path):
            first, *rest = module.removeprefix("gossamer.").split(".")
            if first == own or not (SRC / first).is_dir():
                continue
            steps = [*rest, name] if (SRC / first / Path(*rest)).is_dir() else rest
            package = first
            for step in steps:
                if not (SRC / package.replace(".", "/")).is_dir():
                    break
                if step not in surface(package):
                    wrong.append(f"{path.relative_to(SRC)}: gossamer.{package} does not export {step}")
                package = f"{package}.{step}"
    assert wrong == []


def test_nobody_imports_a_name_that_is_private() -> None:
    wrong = [
        f"{path.relative_to(SRC)}: {name} of {module}"
        for path in MODULES
        for module, name in imported(path)
        if name.startswith("_") and not name.startswith("__")
    ]
    assert wrong == []


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
        "plan",
        "plugin",
        "report",
        "resume",
        "run",
        "tune",
    ]
    for name in gossamer.__all__:
        assert callable(getattr(gossamer, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gossamer.nothing  # noqa: B018
