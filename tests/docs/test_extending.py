"""docs/extending.md: each example is one file with one registry line, and does what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^## An? ([\w ]+)\n.*?```python\n(.*?)```", PAGE, re.S | re.M))
CHECKS = re.findall(r"^## Its tests\n.*?```python\n(.*?)```", PAGE, re.S | re.M)
# In a process of its own: registering is for good, and other tests list what there is.
RUNNER = """
import json, sys
found = {}
for name, code in json.load(sys.stdin).items():
    space = {"__name__": name.replace(" ", "_")}
    sys.modules[space["__name__"]] = type(sys)(space["__name__"])
    exec(compile(code, name, "exec"), sys.modules[space["__name__"]].__dict__)
    made = sys.modules[space["__name__"]].__dict__
    outcome = made.get("outcome")
    found[name] = outcome.result | {"notes": outcome.certificate["notes"]} if outcome else made["found"].result
parts = {name: made for m in found for name, made in vars(sys.modules[m.replace(" ", "_")]).items()}
for checks in json.loads(sys.argv[1]):
    exec(compile(checks, "checks", "exec"), parts)
print(json.dumps(found, default=str))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return executed([], tmp_path_factory.mktemp("examples"))


@pytest.mark.slow
def test_the_pages_checks_find_nothing(tmp_path: Path) -> None:
    executed(CHECKS, tmp_path)


def executed(checks: list[str], folder: Path) -> dict[str, dict[str, Any]]:
    ran = subprocess.run(
        [sys.executable, "-c", RUNNER, json.dumps(checks)],
        input=json.dumps(EXAMPLES),
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    results: dict[str, dict[str, Any]] = json.loads(ran.stdout.splitlines()[-1])
    return results


def rows() -> dict[str, tuple[int, int, str]]:
    lines = re.findall(r"^\| an? ([\w ]+) \| (\d+) \| (\d+) \| `([\w.]+)` \|$", PAGE, re.M)
    return {name: (int(files), int(registered), where) for name, files, registered, where in lines}


def test_every_part_of_the_table_has_an_example() -> None:
    assert len(CHECKS) == 1
    assert set(rows()) == set(EXAMPLES)
    assert {"algorithm", "clip", "noise", "data set", "topology", "observer"} == set(EXAMPLES)


@pytest.mark.slow
def test_the_package_is_found_once_it_is_installed(tmp_path: Path) -> None:
    """As the page says: its pyproject.toml, the first example as the module, pip, and the command line."""
    source, target = tmp_path / "source", tmp_path / "installed"
    source.mkdir()
    (settings,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    (source / "pyproject.toml").write_text(settings.replace('dependencies = ["gossamer"]\n', ""), encoding="utf-8")
    (source / "my_parts.py").write_text(EXAMPLES["algorithm"].partition("outcome =")[0], encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--quiet"]
    installed = subprocess.run([*pip, "--target", target, source], capture_output=True, text=True, check=False)
    if installed.returncode and "setuptools" in installed.stderr:
        pytest.skip("setuptools is not installed here, and nothing can be fetched to build the package")
    assert installed.returncode == 0, installed.stderr
    path = os.pathsep.join([str(target), *filter(None, [os.environ.get("PYTHONPATH")])])
    planned = subprocess.run(
        [sys.executable, "-m", "gossamer", "plan", "--set", "algorithm.kind=diffusion",
         "--set", "topology.kind=ring", "--json"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["epsilon_claimed"] is None


@pytest.mark.parametrize("part", EXAMPLES)
def test_a_newcomer_touches_one_file_and_registers_in_one_line(part: str) -> None:
    files, lines, where = rows()[part]
    assert (files, lines) == (1, 1)
    module, _, name = where.rpartition(".")
    code = EXAMPLES[part]
    decorator = "@register(" if name == "register" else f"@{name}.register("
    assert code.count(decorator) == lines
    assert any(line.startswith(f"from {module}") and name in line for line in code.splitlines())


@pytest.mark.parametrize("part", ["algorithm", "clip", "noise", "data set", "topology"])
def test_an_example_trains_with_a_proof(part: str, found: dict[str, dict[str, Any]]) -> None:
    result = found[part]
    assert 0 < result["epsilon_proven"] <= 8.0
    assert result["accuracy_mean"] > (0.5 if part == "data set" else 0.2)


def test_a_method_without_a_paper_claims_nothing(found: dict[str, dict[str, Any]]) -> None:
    assert found["algorithm"]["epsilon_claimed"] is None


def test_an_observer_of_ones_own_attacks_and_is_named(found: dict[str, dict[str, Any]]) -> None:
    assert found["observer"]["observer"].startswith("nodes 1, 7 together")
    assert 0 <= found["observer"]["epsilon_audited"] <= found["observer"]["epsilon_proven"]
    assert not found["observer"]["violation"]
