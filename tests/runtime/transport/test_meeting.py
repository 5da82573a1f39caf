"""The meeting point: notes for those who have the run's secret, and what is said when it is not there."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from gossamer.runtime.transport.base import LostError
from gossamer.runtime.transport.meeting import ForeignError, Meeting, MeetingNotes
from gossamer.runtime.transport.secret import Secret


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    made = Meeting()
    yield made
    made.close()


def joined(meeting: Meeting, rank: int = 0) -> MeetingNotes:
    return MeetingNotes(meeting.secret, "127.0.0.1", meeting.server.port, rank)


def test_notes_are_everybodys_and_the_first_claim_stands(meeting: Meeting) -> None:
    here, there = joined(meeting), joined(meeting, 1)
    assert here.read("k") is None
    here.write("k", "ε ≤ 1")
    assert there.clone().read("k") == "ε ≤ 1"
    assert [notes.claim("c", name) for notes, name in ((there, "there"), (here, "here"))] == [
        "there",
        "there",
    ]
    assert here.read("c") == "there"
    assert there.add("n", 3) + here.add("n", -1) == 5
    assert there.delete("n")
    assert not here.delete("n")


def test_notes_under_a_prefix_are_apart(meeting: Meeting) -> None:
    notes = joined(meeting)
    notes.under("a").write("k", "1")
    assert notes.read("k") is None
    assert notes.under("a").clone().read("k") == "1"


def test_without_the_secret_nobody_joins(meeting: Meeting) -> None:
    joined(meeting).write("k", "mine")
    with pytest.raises(ForeignError, match="it has another secret"):
        MeetingNotes(Secret.fresh(), "127.0.0.1", meeting.server.port, 1)
    assert joined(meeting).read("k") == "mine"


def test_a_place_where_nobody_serves_is_a_lost_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(LostError):
        MeetingNotes(Secret.fresh(), "127.0.0.1", port, 0, patience=0.1)


def test_a_place_that_does_not_prove_the_secret_is_not_believed() -> None:
    """Whoever takes the place of the meeting point cannot feed the ranks."""
    import threading

    from gossamer.runtime.transport import frames

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            connection.sendall(frames.MAGIC + bytes(frames.NONCE))
            connection.recv(frames.HELLO)
            connection.sendall(b"w" * len(frames.REFUSED))

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(ForeignError, match="does not prove the run's secret"):
            MeetingNotes(Secret.fresh(), "127.0.0.1", server.getsockname()[1], 0)


def test_every_call_to_a_server_that_is_gone_is_a_lost_connection(meeting: Meeting) -> None:
    notes = joined(meeting)
    meeting.server.close()
    for call in (
        lambda: notes.read("k"),
        lambda: notes.write("k", "x"),
        lambda: notes.claim("k", "x"),
    ):
        with pytest.raises(LostError):
            call()


def test_a_child_finds_the_place_and_the_secret_in_its_environment(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in meeting.environment().items():
        monkeypatch.setenv(key, value)
    secret = Secret.of_environment()
    assert secret is not None
    MeetingNotes(secret, "127.0.0.1", meeting.server.port, 1).write("k", "child")
    assert meeting.notes.read("k") == "child"
