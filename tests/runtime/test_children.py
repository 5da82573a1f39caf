"""The environment of a child: our package first, and its share of the cores in every library's words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gossamer
from gossamer.runtime.children import environment


def test_threads_and_the_package_are_set_and_the_rest_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv("SOMETHING", "else")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    made = environment(3)
    assert made["SOMETHING"] == "else"
    assert made["OMP_WAIT_POLICY"] == "PASSIVE"
    assert {made[f"{name}_NUM_THREADS"] for name in ("OMP", "MKL", "OPENBLAS", "NUMBA")} == {"3"}
    root = str(Path(gossamer.__file__).parents[1])
    assert made["PYTHONPATH"] == os.pathsep.join([root, "elsewhere"])
    monkeypatch.delenv("PYTHONPATH")
    assert environment(1)["PYTHONPATH"] == root
    assert os.environ["OMP_NUM_THREADS"] == "64"  # ours stays as it is


def test_a_child_finds_the_same_package(tmp_path: Path) -> None:
    code = "import gossamer; print(gossamer.__file__)"
    found = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment(1),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == gossamer.__file__
