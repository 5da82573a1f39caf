"""What torchrun's environment says to the transport, and how torch's errors are told apart. The rest is in test_base."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from gossamer.errors import UserError
from gossamer.runtime.transport.base import LostError, SilentError
from gossamer.runtime.transport.meeting import Meeting
from gossamer.runtime.transport.memory import Memory, MemoryNotes
from gossamer.runtime.transport.secret import Secret
from gossamer.runtime.transport.torch import (
    MeetingStore,
    TorchTransport,
    _meeting_point,
    _translated,
    ranks_started,
    started_by_torchrun,
)

NOTES = MemoryNotes(Memory(1))


def test_a_process_knows_that_torchrun_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert not started_by_torchrun()
    monkeypatch.setenv("RANK", "1")
    assert started_by_torchrun()
    assert ranks_started() == 4


@pytest.mark.parametrize(
    ("environment", "rank", "place"),
    [
        ({}, 0, (True, True, "of rank 0")),
        ({}, 2, (False, True, "of rank 2")),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}, 2, (True, True, "1")),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "0"}, 1, (False, False, "0")),
    ],
)
def test_a_rank_knows_its_machine(
    environment: dict[str, str], rank: int, place: tuple[bool, bool, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        monkeypatch.delenv(key, raising=False)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    made = TorchTransport(rank, 4, NOTES, 60.0, Secret("k" * 32))
    assert (made.first_here, made.spread, made.machine) == place
    assert made.start({}, {}, 1) == ({}, {})  # nothing to send is nothing to start


def test_silence_and_a_broken_connection_are_told_apart_by_their_first_line() -> None:
    def fail(words: str) -> None:
        raise RuntimeError(words)

    with pytest.raises(SilentError, match=r"^Timed out waiting 500ms$"):
        _translated(lambda: fail("Timed out waiting 500ms\nframe #0: somewhere"))
    with pytest.raises(LostError, match=r"^Connection closed by peer$") as caught:
        _translated(lambda: fail("Connection closed by peer\nframe #0"))
    assert not isinstance(caught.value, SilentError)
    assert _translated(lambda: 3) == 3


def test_a_meeting_point_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("GOSSAMER_SECRET", "s" * 32)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    monkeypatch.delenv("GOSSAMER_MEETING_POINT", raising=False)
    with pytest.raises(
        UserError, match=r"rank 1 cannot reach the meeting point 127.0.0.1:None: .*; check torchrun"
    ):
        TorchTransport.meet(timeout=1.0)


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meeting]:
    made = Meeting()
    for key, value in {"RANK": "1", "WORLD_SIZE": "2", **made.environment()}.items():
        monkeypatch.setenv(key, value)
    yield made
    made.close()


def test_a_rank_without_the_runs_secret_is_told_how_to_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for key in ("GOSSAMER_SECRET", "GOSSAMER_SECRET_FILE"):
        monkeypatch.delenv(key, raising=False)
    with pytest.raises(
        UserError, match=r"rank 1 has no secret of the run; put one .* into GOSSAMER_SECRET_FILE"
    ):
        TorchTransport.meet(timeout=1.0)


def test_a_rank_with_another_secret_does_not_join(meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_SECRET", "x" * 32)
    with pytest.raises(
        UserError, match=r"rank 1 cannot join .*: it has another secret; give every host the same"
    ):
        TorchTransport.meet(timeout=1.0)
    assert meeting.notes.read("gossamer/joined/1") is None


def test_a_rank_that_has_joined_keeps_its_place(meeting: Meeting) -> None:
    meeting.notes.write("gossamer/joined/1", "the one that came first")
    with pytest.raises(UserError, match=r"rank 1 is already taken at 127.0.0.1:\d+; start every rank once"):
        TorchTransport.meet(timeout=1.0)


def test_a_rank_that_does_not_come_is_named(meeting: Meeting) -> None:
    with pytest.raises(UserError, match=r"rank 0 did not come to .* within runtime.timeout = 0.3 s"):
        TorchTransport.meet(timeout=0.3)


def test_torchs_view_of_the_notes(meeting: Meeting) -> None:
    store = MeetingStore(meeting.notes, timedelta(seconds=0.05))
    store.set("a", "1")
    store.set("b", b"2")
    assert store.get("a") + store.get("b") == b"12"
    assert store.check(["a", "b"])
    assert not store.check(["a", "c"])
    assert store.add("n", 2) == 2
    assert store.delete_key("n")
    with pytest.raises(RuntimeError, match="timed out waiting for c"):
        store.get("c")


def test_beside_torchruns_own_store_the_meeting_point_has_the_next_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GOSSAMER_MEETING_POINT", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    assert _meeting_point(0) == ("10.0.0.1:29500", True)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert _meeting_point(1) == ("10.0.0.1:29501", False)
    monkeypatch.setenv("GOSSAMER_MEETING_POINT", "127.0.0.1:7")
    assert _meeting_point(0) == ("127.0.0.1:7", False)
