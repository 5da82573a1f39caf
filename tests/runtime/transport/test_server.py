"""What a stranger can do at the meeting point: nothing. It reads nothing, changes nothing, fills nothing, stops nothing."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest

from gossamer.runtime.transport import frames, server
from gossamer.runtime.transport.base import LostError
from gossamer.runtime.transport.meeting import Meeting, MeetingNotes
from gossamer.runtime.transport.secret import Secret
from gossamer.runtime.transport.server import MOST_STRANGERS, MeetingServer


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    made = Meeting()
    yield made
    made.close()


def stranger(meeting: Meeting) -> socket.socket:
    return socket.create_connection(("127.0.0.1", meeting.server.port), timeout=3)


def test_it_listens_on_this_machine_alone(meeting: Meeting) -> None:
    assert meeting.server.host == "127.0.0.1"


def test_what_torchs_own_clients_send_gets_no_answer(meeting: Meeting) -> None:
    meeting.notes.write("result", "7.99")
    for words in (
        b"",
        bytes(200),
        b"\x00" + b"result" * 40,
        struct.pack("<I", 1 << 30) * 40,
        frames.hello(Secret.fresh(), bytes(frames.GREETING), bytes(32), 0) + b"get",
    ):
        with stranger(meeting) as line:
            assert line.recv(frames.GREETING).startswith(frames.MAGIC)
            line.sendall(words)
            line.shutdown(socket.SHUT_WR)
            came = b""
            try:
                while part := line.recv(1000):
                    came += part
            except ConnectionResetError:
                pass
            assert set(came) <= {0}  # refused, or nothing at all
    assert meeting.notes.read("result") == "7.99"


def test_a_proof_that_was_overheard_does_not_open_another_connection(meeting: Meeting) -> None:
    with stranger(meeting) as first, stranger(meeting) as second:
        greeting = first.recv(frames.GREETING)
        said = frames.hello(meeting.secret, greeting, bytes(32), 1)
        first.sendall(said)
        assert first.recv(100) == frames.welcome(meeting.secret, greeting, said)
        second.recv(frames.GREETING)
        second.sendall(said)
        assert second.recv(100) == frames.REFUSED


@pytest.mark.parametrize("how", ["changed", "repeated", "too long"])
def test_after_the_handshake_a_frame_that_is_not_the_next_ends_the_connection(
    meeting: Meeting, how: str
) -> None:
    with stranger(meeting) as line:
        greeting = line.recv(frames.GREETING)
        said = frames.hello(meeting.secret, greeting, bytes(32), 1)
        line.sendall(said)
        line.recv(100)
        up = frames.Line(meeting.secret, greeting, said, b"up")
        frame = up.seal([b"add", b"n", b"1"])
        line.sendall(frame)
        assert line.recv(1000)
        if how == "changed":
            frame = up.seal([b"set", b"n", b"1"])[:-1] + b"9"
        elif how == "too long":
            frame = struct.pack("<I", frames.MOST + 1) + bytes(32)
        line.sendall(frame)
        assert line.recv(1000) == b""
    assert meeting.notes.read("n") == "1"


def test_strangers_who_only_stand_in_the_door_give_way(meeting: Meeting) -> None:
    crowd = [stranger(meeting) for _ in range(MOST_STRANGERS + 40)]
    meeting.notes.write("k", "the run goes on")
    late = MeetingNotes(meeting.secret, "127.0.0.1", meeting.server.port, 1)
    assert late.read("k") == "the run goes on"
    crowd[0].settimeout(3)  # less than a stranger has, were there room for all
    with suppress(ConnectionResetError):
        while crowd[0].recv(1000):  # its greeting, and then the end
            pass
    for line in crowd:
        line.close()


def test_a_stranger_has_a_few_seconds(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PATIENCE", 0.1)
    with stranger(meeting) as line:
        line.recv(frames.GREETING)
        assert line.recv(1) == b""


def test_texts_are_bounded(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_BYTES", 100)
    for _ in range(5):
        meeting.notes.set("k", bytes(80))  # the same place again is not more
    with pytest.raises(LostError):
        meeting.notes.set("other", bytes(80))
    with pytest.raises(LostError, match="more than"):
        MeetingNotes(meeting.secret, "127.0.0.1", meeting.server.port, 0).set("k", bytes(frames.MOST))


def test_whoever_serves_waits_until_the_others_have_read(meeting: Meeting) -> None:
    import time

    other = MeetingNotes(meeting.secret, "127.0.0.1", meeting.server.port, 1)
    assert other.read("nothing") is None  # now it has been let in
    start = time.monotonic()
    meeting.server.linger(0.1, besides=1)
    assert time.monotonic() - start >= 0.1
    other.close()
    start = time.monotonic()
    meeting.server.linger(5.0, besides=1)
    assert time.monotonic() - start < 2.0


def test_a_port_that_is_taken_is_said(meeting: Meeting) -> None:
    with pytest.raises(LostError, match="in use"):
        MeetingServer(Secret.fresh(), "127.0.0.1", meeting.server.port)


def test_it_can_be_opened_where_a_loop_runs_already() -> None:
    """As in a notebook."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    async def inside() -> str | None:
        made = Meeting()
        made.notes.write("k", "v")
        found = made.notes.read("k")
        made.close()
        return found

    with ThreadPoolExecutor(
        1
    ) as apart:  # this thread may have a loop of its own, if a browser was tested before
        assert apart.submit(asyncio.run, inside()).result() == "v"
