"""A rank that torchrun ends says why first. In processes of their own: a signal is the whole process'."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gossamer.runtime.farewell import started_by_torchrun_itself

PROGRAM = """
import os, signal, sys, time
from gossamer.runtime.farewell import Farewell
from gossamer.runtime.transport.memory import Memory, MemoryNotes
from gossamer.runtime.watch import Watch
blocks, notes = [range(0, 3), range(3, 6)], MemoryNotes(Memory(2))
watch = Watch(notes, 0, blocks, timeout=0.2)
others = [Watch(notes, 1, blocks, timeout=0.2)] if sys.argv[1] == "alive" else []
time.sleep(0.1)
farewell = Farewell(watch, grace=0.3)
farewell.check()
os.kill(os.getpid(), signal.SIGTERM)
if sys.argv[2] == "busy":
    time.sleep(30)
try:
    farewell.check()
except KeyboardInterrupt:
    sys.exit("stopped")
except Exception as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize(
    ("other", "how", "code", "said"),
    [
        ("dead", "between rounds", 1, "rank 1 (nodes 3–5) ended in round 0"),
        ("dead", "busy", 2, "gossamer: rank 1 (nodes 3–5) ended in round 0"),
        ("alive", "between rounds", 1, "stopped"),
        ("alive", "busy", 143, "gossamer: stopped by SIGTERM"),
    ],
)
def test_it_ends_soon_and_with_a_sentence(other: str, how: str, code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, other, how], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr.strip()) == (code, said)


def test_only_torchrun_ends_ranks_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert not started_by_torchrun_itself()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert started_by_torchrun_itself()
