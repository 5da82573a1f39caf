"""What torchrun's environment says to the transport, and how torch's errors are told apart. The rest is in test_base."""

from __future__ import annotations

import pytest

from gossamer.errors import UserError
from gossamer.runtime.transport.base import LostError, SilentError
from gossamer.runtime.transport.memory import Memory, MemoryNotes
from gossamer.runtime.transport.torch import TorchTransport, _translated, ranks_started, started_by_torchrun

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
        ({}, 0, (True, False, "0")),
        ({}, 2, (False, False, "0")),
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
    made = TorchTransport(rank, 4, NOTES, 60.0)
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
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(
        UserError, match=r"rank 1 cannot reach the meeting point 127.0.0.1:None: .*; check torchrun"
    ):
        TorchTransport.meet(timeout=1.0)
