"""torchrun on one and on two "hosts" of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

TORCHRUN = Path(sys.executable).with_name("torchrun")
pytestmark = pytest.mark.skipif(not TORCHRUN.is_file(), reason="torchrun is not installed")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def two_hosts(folder: Path, *settings: list[str]) -> list[tuple[int, str]]:
    """(exit code, all that was printed) of a torchrun on each, with these settings."""
    port, started = free_port(), []
    known = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    for host, own in enumerate(settings):
        words = [
            "--nnodes", "2", "--node-rank", str(host), "--nproc-per-node", "1", "--master-addr", "127.0.0.1",
            "--master-port", str(port), "-m", "gossamer", "run", "quickstart", "--runtime", "processes",
            "--set", "rounds=4", "--set", "runtime.timeout=120", "--out", "run", *own,
        ]  # fmt: skip
        (folder / f"host-{host}").mkdir()
        started.append(
            subprocess.Popen(
                [str(TORCHRUN), *words],
                cwd=folder / f"host-{host}",
                env=known,
                text=True,
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
    try:
        return [(process.wait(), out) for process in started for out in process.communicate(timeout=600)[:1]]
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
def test_two_hosts_train_together(tmp_path: Path) -> None:
    (first, said), (second, more) = two_hosts(tmp_path, [], [])
    assert (first, second) == (0, 0), said + more
    for words in (said, more):  # every site sees its own run and has its own statement
        assert "proven ε = " in words
        assert "round 4  accuracy " in words
        assert "run directory: run" in words
    for host in (0, 1):
        assert (tmp_path / f"host-{host}" / "run" / "certificate.json").is_file()


@pytest.mark.slow
def test_hosts_with_other_settings_are_told_which_and_not_what(tmp_path: Path) -> None:
    (first, said), (second, more) = two_hosts(tmp_path, [], ["--set", "algorithm.lr=0.123"])
    assert 0 not in (first, second)
    for words in (said, more):
        assert "rank 1 has another algorithm.lr" in words
        assert "0.123" not in words


def ranks_of(torchrun: subprocess.Popen[str]) -> dict[int, int]:
    """Its children, by rank."""
    found = {}
    for child in Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split():
        environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        found.update({int(item[5:]): int(child) for item in environment if item.startswith(b"RANK=")})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_rank_is_named_by_those_that_are_left(killed: int, tmp_path: Path) -> None:
    """torchrun ends the others at once: they say first why."""
    known = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    words = [
        "--nproc-per-node", "3", "--master-addr", "127.0.0.1", "--master-port", str(free_port()), "-m", "gossamer",
        "run", "quickstart", "--runtime", "processes", "--set", "rounds=3000", "--set", "evaluation.every=20",
        "--set", "privacy.noise.multiplier=3", "--set", "privacy.claim=none", "--out", "run",
    ]  # fmt: skip
    said = tmp_path / "said.txt"
    with said.open("w") as file:
        process = subprocess.Popen(
            [str(TORCHRUN), *words], cwd=tmp_path, env=known, text=True, start_new_session=True,
            stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        end = time.monotonic() + 300
        while "round 20 " not in said.read_text():
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < end, said.read_text()
            time.sleep(0.1)
        os.kill(ranks_of(process)[killed], signal.SIGKILL)
        began = time.monotonic()
        process.wait(300)
        took = time.monotonic() - began
    finally:
        if process.poll() is None:
            left = ranks_of(process).values()  # in sessions of their own
            os.killpg(process.pid, signal.SIGKILL)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
    named = [line for line in said.read_text().splitlines() if f"gossamer: rank {killed} (node" in line]
    print(f"named {len(named)} times within {took:.1f} s: {named[0] if named else said.read_text()}")
    assert len(named) == 2  # by both that are left


@pytest.mark.slow
def test_a_users_mistake_is_printed_once(tmp_path: Path) -> None:
    words = [
        "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port()), "-m", "gossamer",
        "run", "quickstart", "--runtime", "processes", "--out", "run",
        "--set", "topology={kind='random-regular',degree=9}",
    ]  # fmt: skip
    done = subprocess.run(
        [str(TORCHRUN), *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode
    assert sum(line.startswith("gossamer: topology.degree = 9") for line in done.stderr.splitlines()) == 1
