"""What others install: every file of the package is in the wheel, and every name that is printed can be installed."""

from __future__ import annotations

import importlib.util
import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gossamer

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGE = ROOT / "src" / "gossamer"
METADATA = "Name: gossamer\nLicense-Expression: Apache-2.0\nRequires-Python: >=3.11\n"


@pytest.fixture(scope="module")
def dist() -> ModuleType:
    spec = importlib.util.spec_from_file_location("test_dist", ROOT / ".ci" / "test_dist.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_whatever_lies_in_the_package_is_packed() -> None:
    globs = PROJECT["tool"]["setuptools"]["package-data"]["gossamer"]
    packed = {path for glob in globs for path in PACKAGE.glob(glob)}
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and path.parent.name != "__pycache__"}
    others = {path for path in files if path.suffix != ".py"}
    assert others <= packed
    assert PACKAGE / "py.typed" in packed


def test_every_extra_that_is_named_anywhere_can_be_installed(dist: ModuleType) -> None:
    extras = set(PROJECT["project"]["optional-dependencies"])
    pages = [*PACKAGE.rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    named = {name for page in pages for name in re.findall(r"gossamer\[(\w+)\]", page.read_text(encoding="utf-8"))}
    assert {"track", "cluster"} <= named <= extras
    assert set(dist.EXTRAS) <= extras
    assert all((ROOT / name).exists() for name in dist.SMOKE)


def test_the_metadata_is_true() -> None:
    about = PROJECT["project"]
    assert about["version"] == gossamer.__version__
    assert about["license"] == "Apache-2.0"
    assert all((ROOT / name).read_text(encoding="utf-8") for name in about["license-files"])
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert not any(line.startswith("License ::") for line in about["classifiers"])  # the expression says it


def test_a_python_that_is_not_there_is_not_found(dist: ModuleType) -> None:
    assert dist.interpreter("3.99") is None
    assert dist.interpreter(f"{sys.version_info.major}.{sys.version_info.minor}") is not None


def test_a_wheel_that_lacks_a_file_or_has_one_too_many_is_noticed(dist: ModuleType, tmp_path: Path) -> None:
    inside = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    names = [f"gossamer/{path.relative_to(PACKAGE)}" for path in inside]
    source = tmp_path / "s.tar.gz"
    with tarfile.open(source, "w") as archive:
        for name in ("LICENSE", "README.md", "tests/test_cli.py", "docs/privacy.md", "constraints.txt"):
            archive.add(ROOT / name, f"gossamer-0/{name}")

    def look(held: list[str]) -> None:
        with zipfile.ZipFile(tmp_path / "w.whl", "w") as archive:
            for name in (*held, "g.dist-info/licenses/LICENSE"):
                archive.writestr(name, "")
            archive.writestr("g.dist-info/METADATA", METADATA)
        dist.look_into(tmp_path / "w.whl", source)

    look(names)
    with pytest.raises(dist.FailedError, match=r"has besides \['tests/test_x\.py'\]"):
        look([*names, "tests/test_x.py"])
    with pytest.raises(dist.FailedError, match=r"lacks \['gossamer/py\.typed'\]"):
        look([name for name in names if not name.endswith("py.typed")])
