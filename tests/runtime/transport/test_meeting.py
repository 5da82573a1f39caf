"""The meeting point: notes on torch's key-value server, and what is said when it is not there."""

from __future__ import annotations

import socket

import pytest

from gossamer.runtime.transport.base import LostError
from gossamer.runtime.transport.meeting import open_meeting_point, reach_meeting_point


def test_notes_are_everybodys_and_the_first_claim_stands() -> None:
    server = open_meeting_point()
    here, there = (reach_meeting_point("127.0.0.1", server.store.port) for _ in range(2))
    assert here.read("k") is None
    here.write("k", "ε ≤ 1")
    assert there.clone().read("k") == "ε ≤ 1"
    assert [notes.claim("c", name) for notes, name in ((there, "there"), (here, "here"))] == [
        "there",
        "there",
    ]
    assert here.read("c") == "there"


def test_a_place_where_nobody_serves_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    monkeypatch.setattr("gossamer.runtime.transport.meeting._PATIENCE", timedelta(milliseconds=100))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(LostError):
        reach_meeting_point("127.0.0.1", port)


class Gone:
    """A store whose server has ended."""

    def __getattr__(self, name: str) -> object:
        def fail(*parts: object) -> None:
            raise RuntimeError("Broken pipe")

        return fail


def test_every_call_to_a_server_that_is_gone_is_a_lost_connection() -> None:
    from gossamer.runtime.transport.meeting import StoreNotes

    notes = StoreNotes(Gone())
    for call in (
        lambda: notes.read("k"),
        lambda: notes.write("k", "x"),
        lambda: notes.claim("k", "x"),
        notes.clone,
    ):
        with pytest.raises(LostError, match="Broken pipe"):
            call()
