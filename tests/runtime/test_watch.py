"""What a rank says of one that is silent, with and without a word from whoever started it."""

from __future__ import annotations

from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

from gossamer.runtime.watch import KILLED, Watch

BLOCKS = [range(0, 3), range(3, 6), range(6, 9)]


def said_of_rank_1(killed: str | None, reason: str) -> str:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=5))
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
