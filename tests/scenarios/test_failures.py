"""A rank that dies, hangs or fails ends the run everywhere, in time, with a sentence that names it; nothing is lost."""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.pool import Pool
from tests.support.refusals import assert_names

from gossamer.accounting import ledger
from gossamer.results.verify import verify_run

pytestmark = pytest.mark.slow

TIMEOUT = 6.0
PATIENT = 60.0  # where a rank may be slow and must not be given up
BUSY = 120.0  # more than a busy machine needs


@pytest.mark.parametrize(
    ("how", "words", "least", "most"),
    [
        ("dies", "rank 2 (nodes 3–4) ended in round", 0.0, BUSY),
        (
            "stops",
            f"rank 2 (nodes 3–4) has not answered for {TIMEOUT:g} s in round",
            TIMEOUT - 1,
            TIMEOUT + BUSY,
        ),
        (
            "dawdles",
            f"rank 2 (nodes 3–4) has kept the others waiting for {TIMEOUT:g} s",
            TIMEOUT - 1,
            TIMEOUT + BUSY,
        ),
    ],
)
def test_all_others_name_the_rank_within_the_time_out(how: str, words: str, least: float, most: float) -> None:
    pool = Pool(4, timeout=TIMEOUT)
    try:
        sizes = [1, 2, 2, 1]
        pool.call("one_exchange", sizes=sizes)
        job = {"sizes": sizes, "how": how, "rank": 2, "at": 40}
        answers = [a for i, a in enumerate(_call_but(pool, 2, "misbehave", job)) if i != 2]
        for sentence, seconds in answers:
            assert words in sentence
            assert least <= seconds <= most
            number = int(sentence.rsplit("in round ", 1)[1].split()[0].rstrip(".;"))
            assert 38 <= number <= 41
        assert len({sentence for sentence, _ in answers}) == 1
    finally:
        pool.close()


def _call_but(pool: Any, silent: int, name: str, job: dict[str, Any]) -> list[Any]:
    """As `Pool.call`, but without waiting for the one that will not answer."""
    processes = pool.processes
    asked = pickle.dumps((name, job))
    for process in processes:
        process.stdin.write(struct.pack("<Q", len(asked)) + asked)
        process.stdin.flush()
    return [None if i == silent else pool._answer(process) for i, process in enumerate(processes)]


COMMAND = [sys.executable, "-P", "-m", "gossamer", "run"]
LONG = [
    "--runtime", "processes", "--set", "runtime.ranks=3", "--set", f"runtime.timeout={PATIENT}",
    "--set", "rounds=1200", "--set", "checkpoints.every=100", "--set", "privacy.noise.multiplier=12",
    "--set", "privacy.claim=none",
]  # fmt: skip


def begin(start: Any, out: Path) -> subprocess.Popen[str]:
    """Started, and past its first checkpoint."""
    words = [*COMMAND, "--out", str(out), *LONG]
    process: subprocess.Popen[str] = start(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 300
    while not list((out / "checkpoints").glob("round-000100*")):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


def ranks_of(process: subprocess.Popen[str]) -> list[int]:
    """Its children, by rank."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ranks = {}
    for child in map(int, children):
        environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        ranks[next(int(item[5:]) for item in environment if item.startswith(b"RANK="))] = child
    return [ranks[rank] for rank in sorted(ranks)]


def continues(out: Path) -> dict[str, Any]:
    done = subprocess.run(
        [*COMMAND, "--resume", str(out), "--runtime", "simulator", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for _, events in ledger.read_all(out).values():
        steps = [event.draw for event in events]
        assert len(set(steps)) == len(steps)
    verify_run(out)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_a_killed_rank_ends_the_command_and_the_run_goes_on(tmp_path: Path, start: Any) -> None:
    process = begin(start, tmp_path / "r")
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    start = time.monotonic()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2
    assert time.monotonic() - start < PATIENT + BUSY
    sentence = err.strip().splitlines()[-1]
    assert sentence.startswith("gossamer: rank 1 (nodes 3–5) ended in round ")
    assert "signal 9" in sentence
    assert "Traceback" not in err
    assert continues(tmp_path / "r")["rounds"] == 1200


def test_control_c_ends_all_ranks_and_the_run_goes_on(tmp_path: Path, start: Any) -> None:
    process = begin(start, tmp_path / "r")
    children = ranks_of(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert f"gossamer: stopped; continue with `gossamer run --resume {tmp_path / 'r'}`." in err
    assert "Traceback" not in err
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert continues(tmp_path / "r")["epsilon_proven"] is not None


def test_ranks_end_without_their_parent(tmp_path: Path, start: Any) -> None:
    process = begin(start, tmp_path / "r")
    children = ranks_of(process)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + PATIENT + BUSY
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    continues(tmp_path / "r")


def test_a_full_disk_on_one_rank_is_everybodys_sentence(tmp_path: Path) -> None:
    """The limit holds for every file of every rank; a ledger reaches it in the middle of the run."""
    import resource

    done = subprocess.run(
        [*COMMAND, "--out", str(tmp_path / "r"), *LONG],
        capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, 90_000)),
    )  # fmt: skip
    assert done.returncode == 2
    sentence = done.stderr.strip().splitlines()[-1]
    assert_names(sentence, "rank", names=f"--resume {tmp_path / 'r'}", remedy=True)
    continues(tmp_path / "r")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--set", "runtime.ranks=9"], ["runtime.ranks = 9", "nodes = 8"]),
        (["--set", "runtime.blocks=[4,5]"], ["runtime.blocks", "nodes = 8"]),
        (["--set", "runtime.ranks=2", "--set", "runtime.blocks=[8]"], ["runtime.blocks", "2 ranks"]),
        (["--set", "runtime.ranks=2", "--set", "topology.kind=mesh"], ["topology.kind", "mesh"]),
        (["--set", "runtime.timeout=0"], ["runtime.timeout"]),
        (["--set", "evaluation.diagnostics=true"], ["evaluation.diagnostics"]),
        (["--set", "runtime.ranks=2", "--set", "baseline=central"], ["runtime.ranks = 2", "nodes = 1"]),
    ],
)
def test_a_mistake_with_processes_is_one_sentence(tmp_path: Path, words: list[str], named: list[str]) -> None:
    done = subprocess.run(
        [*COMMAND, "--runtime", "processes", "--out", str(tmp_path / "r"), *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in named:
        assert word in done.stderr
    assert not (tmp_path / "r").exists()
