"""What only the transport in memory can do: break a rank's lines at will, and notice a message of the wrong length."""

from __future__ import annotations

import pytest
import torch

from gossamer.runtime.transport.base import LostError, SilentError
from gossamer.runtime.transport.memory import Memory, MemoryNotes, MemoryTransport


def pair() -> tuple[Memory, MemoryTransport, MemoryTransport]:
    memory = Memory(2)
    return memory, MemoryTransport(memory, 0, 0.2), MemoryTransport(memory, 1, 0.2)


def bytes_of(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8)


def test_a_message_is_a_copy_of_what_was_started() -> None:
    _, one, two = pair()
    message, buffer = bytes_of(1, 2, 3), bytes_of(0, 0, 0)
    one.start({}, {1: message}, 4)
    message.fill_(9)
    two.start({0: buffer}, {}, 4)[0][0].wait(1.0)
    assert buffer.tolist() == [1, 2, 3]


def test_a_message_of_another_length_is_never_delivered() -> None:
    _, one, two = pair()
    buffer = bytes_of(0, 0)
    one.start({}, {1: bytes_of(1, 2, 3)}, 4)
    with pytest.raises(LostError, match="a message of 3 bytes came where 2 were due"):
        two.start({0: buffer}, {}, 4)[0][0].wait(1.0)
    assert buffer.tolist() == [0, 0]


def test_a_rank_that_ended_is_lost_to_senders_and_to_those_who_wait() -> None:
    memory, one, _two = pair()
    pending = one.start({1: bytes_of(0)}, {}, 1)[0][1]
    memory.end(1)
    with pytest.raises(LostError, match="rank 1 has left"):
        pending.wait(5.0)
    with pytest.raises(LostError, match="rank 1 has left"):
        one.start({}, {1: bytes_of(1)}, 2)


def test_what_arrived_before_the_end_is_still_delivered() -> None:
    memory, one, two = pair()
    two.start({}, {0: bytes_of(7)}, 1)
    memory.end(1)
    buffer = bytes_of(0)
    one.start({1: buffer}, {}, 1)[0][1].wait(1.0)
    assert buffer.tolist() == [7]


def test_silence_is_told_from_an_end() -> None:
    _, one, _ = pair()
    with pytest.raises(SilentError, match=r"nothing came within 0\.01 s"):
        one.start({1: bytes_of(0)}, {}, 1)[0][1].wait(0.01)


def test_the_first_claim_stands() -> None:
    notes = MemoryNotes(Memory(2))
    assert notes.read("k") is None
    assert notes.claim("k", "first") == "first"
    assert notes.clone().claim("k", "second") == "first"
    notes.write("k", "third")
    assert notes.read("k") == "third"
