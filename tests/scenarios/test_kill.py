"""kill -9 at any moment: the ledgers verify, ε covers what was released, no noise is drawn twice, the run finishes."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gossamer.accounting import ledger
from gossamer.accounting.proven import proven
from gossamer.accounting.recompute import recompute
from gossamer.results.verify import verify_run

NODES, ROUNDS = 4, 60
SEEDS = "GOSSAMER_KILL_SEEDS"  # which fifties of kills under trouble: "0 1 2 3" are 200, `make kills`
SETTINGS = [
    "--set", f"rounds={ROUNDS}", "--set", f"nodes={NODES}", "--set", "evaluation.every=20",
    "--set", "topology.kind=directed-ring", "--set", "privacy.noise.multiplier=3", "--set", "privacy.claim=none",
]  # fmt: skip


class Server:
    def __init__(self, folder: Path):
        warm = ["--out", str(folder / "warm"), *SETTINGS, "--set", "rounds=2"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kill_server", *warm],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def run(
        self,
        folder: Path,
        *words: str,
        kill: tuple[int, float] | None = None,
        limits: dict[str, int] | None = None,
        twice: bool = False,
    ) -> int:
        """The exit code, −9 if it was killed first: `kill` = (draws, seconds) after which that is done.

        `limits`: open files, bytes of a file (a full disk); `twice`: the same command a second time beside it.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"folder": str(folder), "words": words, "kill": kill, "limits": limits or {}, "twice": twice}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        with self._process:
            self._process.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    it = Server(tmp_path)
    yield it
    it.close()


def lines(path: Path) -> list[tuple[int, ...]]:
    text = path.read_text() if path.exists() else ""
    return [tuple(map(int, line.split())) for line in text.splitlines()]


def check(run: Path, folder: Path) -> None:
    """After a kill, at whatever moment it came."""
    drawn = Counter(lines(folder / "drawn"))
    assert all(count == 1 for count in drawn.values()), "noise was drawn twice"
    released = {step for (step,) in lines(folder / "released")}
    path = run / "ledger.jsonl"
    if not path.exists() or b"\n" not in path.read_bytes():
        assert not released
        return
    by_group = [one.events for one in ledger.read_ledger(path, lenient=True).groups()]
    # A draw is on file for all of them or for none; they differ in header and σ alone.
    draws = [[event.draw for event in events] for events in by_group]
    assert all(own == draws[0] for own in draws)
    spent = {event.draw for event in by_group[0]}
    assert len(spent) == len(by_group[0])
    # A draw is skipped only where a stop came before its line: then that value never left.
    assert released <= spent, "a value left that is not in the ledger"


def trouble(rng: random.Random, resumed: bool) -> dict[str, Any]:
    """A low limit of open files, a disk that is soon full, and the same run continued twice at once."""
    limits = {}
    if rng.random() < 0.5:
        limits["files"] = rng.randrange(64, 128)
    if rng.random() < 0.3:
        limits["bytes"] = rng.randrange(100, 25_000)
    return {"limits": limits, "twice": resumed and rng.random() < 0.5}


def torture(
    server: Server,
    folder: Path,
    kills: int,
    seed: int,
    *,
    hard: bool = False,
    more_settings: Sequence[str] = (),
) -> None:
    rng, done, runs = random.Random(seed), 0, 0
    run, out = folder / "r", folder / "log"
    while done < kills or run.exists():
        if not (run / "manifest.json").exists():  # killed before it had begun, or finished
            for path in (run, out):
                shutil.rmtree(path, ignore_errors=True)
            out.mkdir()
            words = ["run", "--out", str(run), *SETTINGS, *more_settings]
        else:
            words = ["run", "--resume", str(run)]
        early = rng.random() < 0.2  # before, while or after the run directory is made or read
        kill = (0, rng.uniform(0, 0.5)) if early else (rng.randrange(1, NODES * 40), rng.uniform(0, 0.02))
        more = trouble(rng, words[1] == "--resume") if hard and done < kills else {}
        code = server.run(out, *words, kill=kill if done < kills else None, **more)
        assert code in (0, -9, 2 if more.get("limits") or more.get("twice") else 0)
        check(run, out)
        done += code == -9
        if (run / "certificate.json").exists():  # also where the kill came as it was about to say so
            runs += 1
            finished(run, out)
            shutil.rmtree(run)
    assert runs >= 1


def finished(run: Path, folder: Path) -> None:
    verify_run(run)
    released = {step for (step,) in lines(folder / "released")}
    for proof in recompute(run):
        header, events = ledger.read_all(run)[proof.node]
        left = [event for event in events if event.draw in released]
        assert proof.proven.epsilon >= proven(left, header["delta"], header["adjacency"]).epsilon
        assert proof.proven.epsilon <= 8.0
    certificate = json.loads((run / "certificate.json").read_text())
    assert certificate["epsilon_proven"] == max(proof.proven.epsilon for proof in recompute(run))
    rounds = [json.loads(line)["round"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert rounds == [20, 40, 60]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [int(seed) for seed in os.environ.get(SEEDS, "0").split()])
def test_fifty_kills_with_low_limits_full_disks_and_two_at_once(server: Server, tmp_path: Path, seed: int) -> None:
    torture(server, tmp_path, kills=50, seed=10 + seed, hard=True)


@pytest.mark.slow
def test_fifty_kills(server: Server, tmp_path: Path) -> None:
    torture(server, tmp_path, kills=50, seed=2)


# A ring of secrets, whose masks are drawn pair by pair.
MASKED = ["--set", "privacy.noise.kind=pairwise", "--set", "privacy.noise.secrets=[[0,1],[1,2],[2,3],[0,3]]"]


@pytest.mark.slow
def test_twenty_kills_draw_no_mask_twice(server: Server, tmp_path: Path) -> None:
    torture(server, tmp_path, kills=20, seed=3, more_settings=MASKED)
