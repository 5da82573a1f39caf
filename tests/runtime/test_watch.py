"""What a rank says of one that is silent, with and without a word from whoever started it."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

from gossamer.run.launch import _reason, _wait
from gossamer.runtime.watch import FAILURE, KILLED, Watch

BLOCKS = [range(0, 3), range(3, 6), range(6, 9)]


def meeting_point() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=5))


def said_of_rank_1(killed: str | None, reason: str) -> str:
    store = meeting_point()
    watch = Watch(store, 0, BLOCKS, timeout=0.2)  # rank 1 has never written its line
    try:
        watch.waiting(7, 1)
        if killed is not None:
            store.set(KILLED, killed)
        return str(watch.lost(1, reason))
    finally:
        watch.close()


def test_silence_alone_is_called_silence() -> None:
    assert said_of_rank_1(None, "timed out") == "rank 1 (nodes 3–5) has not answered for 0.2 s in round 7"


def test_a_killed_rank_has_ended_even_if_all_that_was_seen_is_silence() -> None:
    assert said_of_rank_1("1", "timed out") == "rank 1 (nodes 3–5) ended in round 7"


def test_the_killed_rank_is_named_even_if_another_was_waited_for() -> None:
    assert said_of_rank_1("2", "connection closed") == "rank 2 (nodes 6–8) ended in round 7"


def test_the_parent_does_not_blame_a_rank_it_killed_itself() -> None:
    store = meeting_point()
    store.set(KILLED, "2")
    assert _reason(store, [-9, -9, -9]) == "rank 2 was ended by signal 9 before it could say why."
    store.set(FAILURE, "rank 2 (nodes 6–8) ended in round 7")
    assert _reason(store, [-9, 2, -9]).endswith("ended in round 7 (its process was ended by signal 9).")


def test_a_run_of_one_rank_that_is_killed_says_so() -> None:
    store, process = meeting_point(), subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process.kill()
    process.wait()
    codes = _wait([process], 1.0, store)
    assert store.get(KILLED) == b"0"
    assert _reason(store, codes) == "rank 0 was ended by signal 9 before it could say why."


def test_without_a_killed_rank_the_first_that_failed_is_named() -> None:
    store = meeting_point()
    assert _reason(store, [0, 3, 0]) == "rank 1 ended with exit code 3 before it could say why."
    store.set(FAILURE, "data.path = 'x' is not there.")
    assert _reason(store, [2, 2, 2]) == "data.path = 'x' is not there."
