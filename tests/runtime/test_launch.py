"""What the parent of the ranks makes of how they ended."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gossamer.errors import UserError
from gossamer.runtime.launch import launch, reason, wait
from gossamer.runtime.transport.memory import Memory, MemoryNotes
from gossamer.runtime.watch import FAILURE, KILLED


def test_the_parent_does_not_blame_a_rank_it_killed_itself() -> None:
    notes = MemoryNotes(Memory(3))
    notes.write(KILLED, "2")
    assert reason(notes, [-9, -9, -9]) == "rank 2 was ended by signal 9 before it could say why."
    notes.write(FAILURE, "rank 2 (nodes 6–8) ended in round 7")
    assert reason(notes, [-9, 2, -9]).endswith("ended in round 7 (its process was ended by signal 9).")


def test_a_run_of_one_rank_that_is_killed_says_so() -> None:
    notes, process = MemoryNotes(Memory(1)), subprocess.Popen([sys.executable, "-c", "while True: pass"])
    process.kill()
    process.wait()
    codes = wait([process], 1.0, notes)
    assert notes.read(KILLED) == "0"
    assert reason(notes, codes) == "rank 0 was ended by signal 9 before it could say why."


def test_without_a_killed_rank_the_first_that_failed_is_named() -> None:
    notes = MemoryNotes(Memory(3))
    assert reason(notes, [0, 3, 0]) == "rank 1 ended with exit code 3 before it could say why."
    notes.write(FAILURE, "data.path = 'x' is not there.")
    assert reason(notes, [2, 2, 2]) == "data.path = 'x' is not there."


RANK = """
import os
from gossamer.errors import UserError
from gossamer.runtime.launch import answer

def work(job, still_needed):
    still_needed()
    if job["refuse"]:
        raise UserError(f"rank {os.environ['RANK']} refuses.")
    return [job["text"], os.environ["WORLD_SIZE"]] if os.environ["RANK"] == "0" else None

answer(work)
"""


def test_a_job_goes_to_every_rank_and_the_first_ones_result_comes_back() -> None:
    command = [sys.executable, "-c", RANK]
    assert launch(command, 2, timeout=5.0, job={"refuse": False, "text": "ε"}) == ["ε", "2"]
    long = "x" * 300_000  # more than a pipe holds
    assert launch(command, 1, timeout=5.0, job={"refuse": False, "text": long}) == [long, "1"]
    with pytest.raises(UserError, match=r"^rank \d refuses\.$"):
        launch(command, 2, timeout=5.0, job={"refuse": True})


FORGER = """
import os
from gossamer.runtime.launch import answer
from gossamer.runtime.transport.meeting import PLACE, MeetingNotes
from gossamer.runtime.transport.secret import Secret

def work(job, still_needed):
    host, port = os.environ[PLACE].rsplit(":", 1)
    assert host == "127.0.0.1"
    notes = MeetingNotes(Secret.of_environment(), host, int(port), 0)
    for key in ("gossamer/result", "result"):
        notes.write(key, '{"epsilon_proven": 0.001}')
    return {"epsilon_proven": 7.99} if os.environ["RANK"] == "0" else None

answer(work)
"""


@pytest.mark.slow
def test_what_is_found_does_not_come_by_the_meeting_point() -> None:
    assert launch([sys.executable, "-c", FORGER], 2, timeout=5.0, job={}) == {"epsilon_proven": 7.99}
