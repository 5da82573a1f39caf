"""tests/ mirrors src/ one to one, tests import no tests, and long files say why they are long.

A module src/gossamer/x/y.py is tested by tests/x/test_y.py. A package with functions of its own in `__init__` may have
tests/x/test_x.py. Beside the mirror there are only the folders of FREE.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "gossamer"
FREE = (
    "conformance",  # all algorithms, recorded runs
    "docs",  # pages and their examples
    "scenarios",  # whole commands and machines
    "support",  # shared pieces, no tests
)
# Modules in which nothing can fail, each with the reason.
EXEMPT: tuple[tuple[str, str], ...] = ()
LONGEST = 350
REASON = "# Over 350 lines: "

MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
FILES = sorted(path.relative_to(TESTS) for path in TESTS.rglob("*.py"))
FOLDERS = sorted({path.parts[0] for path in [*MODULES, *FILES] if len(path.parts) > 1} - set(FREE))


def mirror_of(module: Path) -> Path:
    """Where a module's tests are; of a package, where they may be."""
    if module.name == "__init__.py":
        return module.parent / f"test_{module.parent.name}.py"
    return module.with_name(f"test_{module.name}")


def top(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else "."


def imported(path: Path) -> list[str]:
    """The modules that a file imports, and the names it takes from packages."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            found += [f"{start}.{alias.name}" for alias in node.names]
    return found


@pytest.mark.parametrize("folder", [".", *FOLDERS])
def test_every_module_has_its_tests(folder: str) -> None:
    exempt = {Path(module) for module, _ in EXEMPT}
    modules = [m for m in MODULES if top(m) == folder and not m.name.startswith("__") and m not in exempt]
    missing = [str(mirror_of(module)) for module in modules if not (TESTS / mirror_of(module)).exists()]
    assert not missing


@pytest.mark.parametrize("folder", [".", *FOLDERS])
def test_every_test_file_belongs_to_a_module(folder: str) -> None:
    known = {mirror_of(module) for module in MODULES} | {Path("test_layout.py")}
    files = [f for f in FILES if top(f) == folder and f.name not in {"conftest.py", "__init__.py"}]
    assert not [str(file) for file in files if file not in known]


def test_what_is_exempt_is_there_untested_and_explained() -> None:
    for module, reason in EXEMPT:
        assert Path(module) in MODULES
        assert not (TESTS / mirror_of(Path(module))).exists()
        assert len(reason.split()) > 3


def test_shared_pieces_hold_no_tests_and_the_other_free_folders_nothing_else() -> None:
    for file in FILES:
        if file.parts[0] == "support":
            assert not file.name.startswith("test_"), file
        elif file.parts[0] in FREE:
            assert file.name.startswith("test_") or file.name == "conftest.py", file


@pytest.mark.parametrize("folder", [".", *FOLDERS, *FREE])
def test_no_test_imports_a_test(folder: str) -> None:
    for file in (f for f in FILES if top(f) == folder):
        for name in imported(TESTS / file):
            shared = f"{name}.".startswith("tests.support.")
            ours = name.startswith(("tests.", "test_", ".")) or name.endswith("conftest")
            assert shared or not ours, f"{file} imports {name}"


def test_long_files_say_why_near_their_top() -> None:
    for module in MODULES:
        lines = (SOURCE / module).read_text(encoding="utf-8").splitlines()
        if len(lines) > LONGEST:
            reasons = [line for line in lines[:40] if line.startswith(REASON)]
            assert reasons, f"{module} has {len(lines)} lines and none of its first 40 begins with {REASON!r}"
            assert len(reasons[0].removeprefix(REASON).split()) > 5


@pytest.mark.parametrize("package", ["mechanism", "studies/audit"])
def test_the_mirror_looks_at_folders_within_folders(package: str) -> None:
    """So that none of the above passes because it looked at nothing."""
    below = [module for module in MODULES if str(module).startswith(f"{package}/")]
    assert len(below) > 5
    assert mirror_of(Path(package) / "x.py") == Path(package) / "test_x.py"
