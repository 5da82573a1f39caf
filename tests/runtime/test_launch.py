"""The process that starts the ranks: their environment, and what it makes of how they ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gossamer
from gossamer.runtime.launch import environment, meeting_point, reason, wait


def test_threads_and_the_package_are_set_and_the_rest_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv("SOMETHING", "else")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    variables = environment(3)
    assert variables["SOMETHING"] == "else"
    assert variables["OMP_WAIT_POLICY"] == "PASSIVE"
    assert {variables[f"{name}_NUM_THREADS"] for name in ("OMP", "MKL", "OPENBLAS", "NUMBA")} == {"3"}
    root = str(Path(gossamer.__file__).parents[1])
    assert variables["PYTHONPATH"] == os.pathsep.join([root, "elsewhere"])
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


def test_ranks_of_one_machine_meet_on_loopback_alone() -> None:
    store = meeting_point(5.0)
    lines = Path("/proc/net/tcp").read_text().splitlines() + Path("/proc/net/tcp6").read_text().splitlines()
    listening = [line.split()[1] for line in lines if line.split()[3] == "0A"]
    assert [address for address in listening if int(address.rsplit(":", 1)[1], 16) == store.port] == [
        f"0100007F:{store.port:04X}"
    ]


def test_a_killed_rank_is_named_and_not_those_that_were_killed_afterwards() -> None:
    assert reason(None, 2, [-9, -9, -9]) == "rank 2 was ended by signal 9 before it could say why."
    claimed = "rank 2 (nodes 6–8) ended in round 7"
    assert reason(claimed, 2, [-9, 2, -9]) == f"{claimed} (its process was ended by signal 9)."


def test_without_a_killed_rank_the_first_that_failed_is_named() -> None:
    assert reason(None, None, [0, 3, 0]) == "rank 1 ended with exit code 3 before it could say why."
    assert reason("data.path = 'x' is not there.", None, [2, 2, 2]) == "data.path = 'x' is not there."


def test_the_first_killed_rank_is_noticed() -> None:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    process.kill()
    process.wait()
    assert wait([process], 1.0) == 0
