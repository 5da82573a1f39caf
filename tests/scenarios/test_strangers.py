"""Runs while somebody without their secret sits on the same network: nothing is read, nothing forged, the run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.namespaces import SCRIPT, SPREAD, no_namespaces, rank_in

ROOT = Path(__file__).parents[2]
GOSSAMER = Path(sys.executable).with_name("gossamer")
# A secret of a certain kind, with which a third host tries to come in.
FOREIGN = {"GOSSAMER_SECRET": "f" * 64, "GOSSAMER_SECRET_FILE": ""}


@pytest.fixture
def namespace() -> Iterator[Callable[..., Any]]:
    """namespace("name") makes one, and in it a process can be run; all are gone at the end."""
    reason = no_namespaces()
    if reason is not None:
        pytest.skip(reason)
    made: list[str] = []

    def make(name: str) -> str:
        full = f"gossamer-{os.getpid()}-{name}"
        subprocess.run(["ip", "netns", "add", full], check=True)
        made.append(full)
        subprocess.run(["ip", "-n", full, "link", "set", "lo", "up"], check=True)
        return full

    yield make
    for name in made:
        subprocess.run(["ip", "netns", "del", name], check=False)


def cable(host: str, stranger: str) -> None:
    """From the stranger to the host: 10.78.0.2 and 10.78.0.1, and by it to whatever address the host has."""
    run = lambda *words: subprocess.run(["ip", *words], check=True)  # noqa: E731
    run("link", "add", "out", "netns", host, "type", "veth", "peer", "name", "in", "netns", stranger)
    for name, card, address in ((host, "out", "10.78.0.1"), (stranger, "in", "10.78.0.2")):
        run("-n", name, "address", "add", f"{address}/24", "dev", card)
        run("-n", name, "link", "set", card, "up")
    run("-n", stranger, "route", "add", "10.77.0.0/24", "via", "10.78.0.1")


def listening(namespace: str) -> list[tuple[str, int]]:
    """Who waits for connections there: (address, port)."""
    command = ["ip", "netns", "exec", namespace, "cat", "/proc/net/tcp", "/proc/net/tcp6"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = [line.split()[1].split(":") for line in lines if line.split()[3] == "0A"]
    return sorted((bytes.fromhex(address)[::-1][:4].hex(), int(port, 16)) for address, port in found)


def inside(namespace: str, *words: str, **settings: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **settings.pop("env", {})}
    return subprocess.Popen(
        ["ip", "netns", "exec", namespace, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True, **settings,
    )  # fmt: skip


def strange(namespace: str, seconds: float, host: str, ports: list[int]) -> dict[str, Any]:
    words = [sys.executable, "-m", "tests.support.stranger", f"{seconds:g}", host, *map(str, ports)]
    out, err = inside(namespace, *words).communicate(timeout=170)
    assert out, err
    found: dict[str, Any] = json.loads(out)
    return found


def until(ready: Callable[[], Any], process: subprocess.Popen[str], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := ready()):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return found


# Over a slow cable the larger one takes its time on any machine.
LONG = ["--set", "rounds=3000", "--set", "privacy.claim=none", "--set", "privacy.noise.multiplier=12"]


@pytest.mark.slow
def test_a_run_on_one_machine_cannot_even_be_reached(namespace: Callable[..., Any], tmp_path: Path) -> None:
    host, stranger = namespace("host"), namespace("stranger")
    cable(host, stranger)
    process = inside(
        host, str(GOSSAMER), "run", "quickstart", "--runtime", "processes", "--set", "runtime.ranks=2", "--out", "r",
        "--json", *LONG, cwd=tmp_path,
    )  # fmt: skip
    until(lambda: list((tmp_path / "r" / "checkpoints").glob("round-*")), process)
    open_here = listening(host)
    assert len(open_here) >= 3  # the meeting point, and gloo's of two ranks
    assert {address for address, _ in open_here} == {"7f000001"}
    found = strange(stranger, 1, "10.78.0.1", [port for _, port in open_here])
    assert found == {"reached": [], "heard": [], "joined": [], "tcp_store": []}
    assert process.poll() is None
    out, err = process.communicate(timeout=170)
    assert process.returncode == 0, err
    assert json.loads(out)["epsilon_proven"] > 0.1


@pytest.mark.slow
def test_a_third_host_reads_nothing_forges_nothing_and_stops_nothing(
    namespace: Callable[..., Any], tmp_path: Path
) -> None:
    stranger = namespace("stranger")
    environment = {**os.environ, "WORK": str(tmp_path), "GOSSAMER": str(GOSSAMER), "RATE": "1mbit"}
    process = subprocess.Popen(
        [str(SCRIPT), "--out", "r", "--json", *LONG, "--set", "rounds=800", *SPREAD],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    first = f"gossamer-{process.pid}-0"
    try:
        until(lambda: list((tmp_path / "host-1" / "r" / "checkpoints").glob("round-*")), process)
        cable(first, stranger)
        ports = [port for _, port in listening(first)]
        assert 29500 in ports
        server = rank_in(tmp_path / "host-0")
        before = memory(server)
        # As a rank of its own, with data of its own, at the same time: on a busy machine it takes long to begin.
        joining = {
            "RANK": "1",
            "WORLD_SIZE": "2",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": "1",
        }
        meeting = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "in"}
        words = [str(GOSSAMER), "run", "quickstart", "--runtime", "processes", "--out", "x", *LONG, *SPREAD]
        third = inside(stranger, *words, cwd=tmp_path, env={**joining, **meeting, **FOREIGN})
        found = strange(stranger, 3, "10.77.0.1", ports)
        assert 29500 in found["reached"]  # it was no wall that kept it out
        assert found["heard"] == []
        assert found["joined"] == []
        assert found["tcp_store"] == []
        assert memory(server) - before < 50 << 20
        _, said = third.communicate(timeout=120)
        assert third.returncode == 2
        assert "rank 1 cannot join at the meeting point 10.77.0.1:29500: it has another secret" in said
        assert process.poll() is None, process.communicate()
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err + (tmp_path / "host-1" / "log").read_text()
        assert json.loads(out.splitlines()[-1])["rounds"] == 800
        assert "0.001" not in (tmp_path / "host-0" / "r" / "certificate.json").read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def memory(process: int) -> int:
    """The most it has had, in bytes."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmHWM")


OWN = """
name = "own"
nodes = 8
rounds = 3
model = { kind = "softmax" }
topology = { kind = "one-peer-exponential" }
algorithm = { kind = "dyn-d2p", lr = 2.0 }

[data]
kind = "csv"
path = "clinic-{node}.csv"
label = "label"
classes = 2
ranges = { age = [0, 120], weight = [0, 200] }
records = 40

[privacy]
epsilon = 8.0
delta = 1e-4
adjacency = "add-remove"
claim = "none"
sampling = { kind = "poisson", rate = 0.25 }
clip = { kind = "decaying", start = 1.0, ratio = 2.0 }
noise = { source = "system", schedule = { kind = "growing-budget", ratio = 2.0 } }
"""
ROWS = "age,weight,label\n41,70.5,0\n52,81.0,1\n63,77.7,Anna-Schmidt\n"


@pytest.mark.slow
def test_a_row_of_one_host_does_not_show_on_the_other(namespace: Callable[..., Any], tmp_path: Path) -> None:
    good = "age,weight,label\n" + "".join(f"{30 + i},{60 + i % 9},{i % 2}\n" for i in range(40))
    for host in (0, 1):
        (tmp_path / f"host-{host}").mkdir()
    for node in range(8):
        host = tmp_path / f"host-{int(node >= 5)}"
        (host / f"clinic-{node}.csv").write_text(ROWS if node == 6 else good)
    recipe = tmp_path / "own.toml"
    recipe.write_text(OWN)
    environment = {**os.environ, "WORK": str(tmp_path), "GOSSAMER": str(GOSSAMER), "RECIPE": str(recipe)}
    done = subprocess.run(
        [str(SCRIPT), "--out", "r", *SPREAD], env=environment, capture_output=True, text=True, timeout=170, check=False
    )  # fmt: skip
    there = (tmp_path / "host-1" / "log").read_text()
    assert done.returncode != 0
    assert "not among the declared data.classes: 'Anna-Schmidt'" in there  # at home, in full
    assert "Schmidt" not in done.stdout + done.stderr
    assert "rank 1 (nodes 5–7) cannot read its data" in done.stderr
    for file in (tmp_path / "host-0").rglob("*"):
        if file.is_file():
            assert b"Schmidt" not in file.read_bytes()
