"""What waits at a link: bounded, in order, and whatever the other end says."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.consortium import parcels
from gossamer.consortium.limits import CHUNK, KEPT, SMALL, SMALL_KEPT
from gossamer.consortium.links import Arrival
from gossamer.consortium.parcels import Assembly, FrameError, Inbox, Outbox
from gossamer.consortium.peer_pb2 import Chunk

LATER = 1e12
LARGE = SMALL + 1


def flush(outbox: Outbox, assembly: Assembly) -> list[bytes]:
    came = []
    while (chunk := outbox.chunk()) is not None:
        whole = assembly.add(chunk)
        if whole is not None:
            came.append(whole)
    return came


@given(st.lists(st.integers(1, 3 * CHUNK + 1), min_size=1, max_size=KEPT))
@settings(max_examples=25, deadline=None)
def test_parcels_of_any_length_come_whole_and_in_order(sizes: list[int]) -> None:
    outbox, sent = Outbox(), [bytes([i]) * size for i, size in enumerate(sizes)]
    for parcel in sent:
        outbox.put(parcel, LATER)
    assert flush(outbox, Assembly(1 << 30)) == sent
    assert len(outbox) == len(sizes)  # until they are taken


def test_of_many_large_parcels_the_newest_two_are_kept() -> None:
    outbox = Outbox()
    for i in range(10):
        outbox.put(bytes([i]) * LARGE, LATER)
    assert [parcel[0] for parcel in flush(outbox, Assembly(1 << 30))] == [8, 9]


def test_a_parcel_on_its_way_is_finished_however_often_one_sends() -> None:
    outbox, assembly = Outbox(), Assembly(1 << 30)
    outbox.put(b"a" * (3 * CHUNK), LATER)
    first = outbox.chunk()
    assert first is not None
    assert assembly.add(first) is None
    for letter in b"bcdef":
        outbox.put(bytes([letter]) * LARGE, LATER)
    assert [parcel[:1] for parcel in flush(outbox, assembly)] == [b"a", b"f"]


def test_small_parcels_do_not_push_out_large_ones() -> None:
    outbox = Outbox()
    for i in range(KEPT):
        outbox.put(bytes([i]) * LARGE, LATER)
    for i in range(10 * SMALL_KEPT):
        outbox.put(b"ok %d" % i, LATER)
    came = flush(outbox, Assembly(1 << 30))
    assert [len(parcel) for parcel in came[:KEPT]] == [LARGE] * KEPT
    assert came[KEPT:] == [b"ok %d" % i for i in range(9 * SMALL_KEPT, 10 * SMALL_KEPT)]


def test_what_was_taken_goes_and_what_was_not_is_sent_again_on_a_new_connection() -> None:
    outbox = Outbox()
    outbox.put(b"one", LATER)
    outbox.put(b"two", LATER)
    assert flush(outbox, Assembly(10)) == [b"one", b"two"]
    assert outbox.chunk() is None
    outbox.taken(1)
    outbox.taken(77)  # never sent
    outbox.again()
    assert flush(outbox, Assembly(10)) == [b"two"]


def test_a_parcel_is_given_up_at_its_deadline_even_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(parcels.time, "monotonic", lambda: clock[0])
    outbox, assembly = Outbox(), Assembly(1 << 30)
    outbox.put(b"a" * (2 * CHUNK), 101.0)
    first = outbox.chunk()
    assert first is not None
    assembly.add(first)
    clock[0] = 102.0
    outbox.put(b"next", LATER)
    assert outbox.expired == 102.0
    assert flush(outbox, assembly) == [b"next"]  # the half that has come is forgotten
    outbox.taken(2)
    assert outbox.expired < 0


def chunk(number: int = 1, size: int = 10, offset: int = 0, data: bytes = b"0123456789") -> Chunk:
    return Chunk(number=number, size=size, offset=offset, data=data)


@pytest.mark.parametrize(
    "frames",
    [
        [chunk(size=101, data=b"x" * 101)],  # oversized
        [chunk(size=0, data=b"")],
        [chunk(size=1 << 63, data=b"x")],
        [chunk(data=b"012345678")],  # truncated
        [chunk(data=b"0123456789a")],  # too long
        [chunk(data=b"")],
        [chunk(offset=3)],  # from nowhere
        [chunk(), chunk(offset=10, data=b"")],  # after the end
        [chunk(), chunk(number=2, offset=5, data=b"01234")],
    ],
)
def test_what_breaks_the_format_is_refused(frames: list[Chunk]) -> None:
    assembly = Assembly(100)
    for frame in frames[:-1]:
        assembly.add(frame)
    with pytest.raises(FrameError):
        assembly.add(frames[-1])


def test_chunks_of_two_parcels_cannot_be_mixed() -> None:
    assembly = Assembly(1 << 30)
    assembly.add(Chunk(number=1, size=2 * CHUNK, offset=0, data=b"a" * CHUNK))
    with pytest.raises(FrameError, match="does not follow"):
        assembly.add(Chunk(number=2, size=2 * CHUNK, offset=CHUNK, data=b"b" * CHUNK))


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(0, 12), st.binary(max_size=12)),
        max_size=20,
    )
)
@settings(max_examples=300, deadline=None)
def test_whatever_chunks_come_only_whole_parcels_leave(fuzzed: list[tuple[int, int, int, bytes]]) -> None:
    """A parcel this small is one chunk: whatever leaves is exactly one of the chunks, complete."""
    assembly = Assembly(8)
    for number, size, offset, data in fuzzed:
        try:
            whole = assembly.add(Chunk(number=number, size=size, offset=offset, data=data))
        except FrameError:
            return
        assert whole == data
        assert (offset, len(data)) == (0, size)
        assert 0 < size <= 8


def test_an_inbox_keeps_the_newest_of_a_site_that_floods_and_all_of_the_others() -> None:
    inbox, taken = Inbox(), []
    inbox.put(Arrival("quiet", b"hello"), lambda: taken.append("quiet"))
    for i in range(100):
        inbox.put(Arrival("loud", bytes([i]) * LARGE), lambda i=i: taken.append(i))
        inbox.put(Arrival("loud", bytes([i])), lambda: None)
    came = []
    while (arrival := inbox.take(0.0)) is not None:
        came.append((arrival.sender, len(arrival.parcel), arrival.parcel[0]))
    assert came[0] == ("quiet", 5, ord("h"))
    assert [first for _, size, first in came[1:] if size == LARGE] == [98, 99]
    assert len(came) == 1 + KEPT + SMALL_KEPT
    assert taken == ["quiet", 98, 99]  # only what the program took


def test_take_waits_until_something_comes_or_the_deadline() -> None:
    inbox = Inbox()
    began = time.monotonic()
    assert inbox.take(began + 0.1) is None
    assert time.monotonic() - began >= 0.1
    timer = threading.Timer(0.05, lambda: inbox.put(Arrival("a", b"x"), lambda: None))
    timer.start()
    assert inbox.take(1e15) == Arrival("a", b"x")
    timer.join()


def test_what_a_revoked_site_has_sent_is_forgotten() -> None:
    inbox = Inbox()
    inbox.put(Arrival("a", b"x"), lambda: None)
    inbox.put(Arrival("b", b"y"), lambda: None)
    inbox.forget("a")
    assert inbox.take(0.0) == Arrival("b", b"y")
    assert inbox.take(0.0) is None
