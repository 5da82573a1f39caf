"""What a rank says of one that is silent, with and without a word from whoever started it."""

from __future__ import annotations

import time

from gossamer.runtime.transport.base import LostError, SilentError
from gossamer.runtime.transport.memory import Memory, MemoryNotes
from gossamer.runtime.watch import FAILURE, KILLED, Watch

BLOCKS = [range(0, 3), range(3, 6), range(6, 9)]


def said_of_rank_1(error: LostError, **noted: str) -> str:
    notes = MemoryNotes(Memory(3))
    watch = Watch(notes, 0, BLOCKS, timeout=0.2)  # rank 1 has never written its line
    try:
        watch.waiting(7, 1)
        for key, text in noted.items():
            notes.write({"killed": KILLED, "failure": FAILURE}[key], text)
        return str(watch.lost(1, error))
    finally:
        watch.close()


def test_silence_alone_is_called_silence() -> None:
    assert said_of_rank_1(SilentError()) == "rank 1 (nodes 3–5) has not answered for 0.2 s in round 7"


def test_rounds_are_counted_and_not_their_exchanges() -> None:
    notes = MemoryNotes(Memory(3))
    watch = Watch(notes, 0, BLOCKS, timeout=0.2)
    try:
        watch.begin(2)
        watch.waiting(7, 1)  # the eighth exchange, in the third round
        assert watch.round == 2
        assert str(watch.lost(1, SilentError())).endswith("in round 2")
    finally:
        watch.close()


def test_a_broken_connection_to_a_rank_that_is_gone_is_its_end() -> None:
    assert said_of_rank_1(LostError()) == "rank 1 (nodes 3–5) ended in round 7"


def test_a_killed_rank_has_ended_even_if_all_that_was_seen_is_silence() -> None:
    assert said_of_rank_1(SilentError(), killed="1") == "rank 1 (nodes 3–5) ended in round 7"


def test_the_killed_rank_is_named_even_if_another_was_waited_for() -> None:
    assert said_of_rank_1(LostError(), killed="2") == "rank 2 (nodes 6–8) ended in round 7"


def test_what_was_said_first_is_what_everybody_says() -> None:
    assert said_of_rank_1(SilentError(), killed="2", failure="node 8 sent NaN") == "node 8 sent NaN"
    notes = MemoryNotes(Memory(3))
    watch = Watch(notes, 0, BLOCKS, timeout=0.2)
    assert str(watch.tell("first")) == str(watch.tell("second")) == "first"
    watch.close()


def test_the_one_all_wait_for_need_not_be_a_neighbour() -> None:
    """Rank 0 waits for 1, which waits for 2, which computes: it is rank 2 that keeps them waiting."""
    memory = Memory(3)
    watches = [Watch(MemoryNotes(memory), rank, BLOCKS, timeout=0.3) for rank in range(3)]
    try:
        watches[1].waiting(7, 2)
        watches[2].computing(6)
        watches[0].waiting(7, 1)
        said = str(watches[0].lost(1, SilentError()))
        assert said == "rank 2 (nodes 6–8) has kept the others waiting for 0.3 s in round 6"
    finally:
        for watch in watches:
            watch.close()


def test_notes_of_a_rank_that_means_ill_are_neither_obeyed_nor_a_traceback() -> None:
    assert "\x1b" not in said_of_rank_1(SilentError(), failure="\x1b[2J done, ε = 0.001")
    for killed in ("", "x", "99", "-1", "1.5"):
        expected = "rank 1 (nodes 3–5) has not answered for 0.2 s in round 7"
        assert said_of_rank_1(SilentError(), killed=killed) == expected
    notes = MemoryNotes(Memory(3))
    watch = Watch(notes, 0, BLOCKS, timeout=0.2)
    for line in (
        "",
        "{",
        "[]",
        "[1, 2]",
        "[1, 2, 1.5]",
        '["a", 0, 0]',
        "[1, 2, true]",
        "[" * 100_000,
        "null",
    ):
        notes.write("gossamer/at/1", line)
        assert watch._line(1) is None
    notes.write("gossamer/at/1", "[1, 2, null]")
    assert watch._line(1) == (1, 2, None)
    watch.close()


def test_who_is_terminated_says_which_rank_is_gone() -> None:
    notes = MemoryNotes(Memory(3))
    watch, other = (Watch(notes, rank, BLOCKS, timeout=0.2) for rank in (0, 2))
    try:
        watch.computing(7)
        assert str(watch.terminated()) == "rank 1 (nodes 3–5) ended in round 7"
        assert str(other.terminated()) == "rank 1 (nodes 3–5) ended in round 7"
    finally:
        watch.close()
        other.close()


def test_who_is_terminated_while_all_are_there_blames_nobody() -> None:
    notes = MemoryNotes(Memory(3))
    watches = [Watch(notes, rank, BLOCKS, timeout=0.2) for rank in range(3)]
    try:
        time.sleep(0.05)
        assert watches[0].terminated() is None
    finally:
        for watch in watches:
            watch.close()
