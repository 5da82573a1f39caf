"""Frames: what was sealed comes out as it was, and anything else is refused without more memory than the bound."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.runtime.transport import frames
from gossamer.runtime.transport.frames import FrameError, Line
from gossamer.runtime.transport.secret import Secret

SECRET = Secret("0" * 64)


def ends(direction: bytes = b"up") -> tuple[Line, Line]:
    return tuple(Line(SECRET, b"greeting", b"said", direction) for _ in range(2))  # type: ignore[return-value]


@settings(deadline=None)
@given(st.lists(st.lists(st.binary(max_size=40), max_size=4), max_size=4))
def test_fields_come_out_as_they_went_in(all_fields: list[list[bytes]]) -> None:
    here, there = ends()
    for fields in all_fields:
        frame = here.seal(fields)
        assert there.open(frame[: frames.HEAD], frame[frames.HEAD :]) == fields


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_what_nobody_sealed_is_refused(garbage: bytes) -> None:
    _, there = ends()
    head, content = garbage[: frames.HEAD].ljust(frames.HEAD, b"\0"), garbage[frames.HEAD :]
    with pytest.raises(FrameError):
        there.open(head, content)


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 255))
def test_a_flipped_byte_is_refused(at: int, flip: int) -> None:
    here, there = ends()
    frame = bytearray(here.seal([b"set", b"key", b"a text of some length"]))
    frame[4 + at % (len(frame) - 4)] ^= flip
    with pytest.raises(FrameError):
        there.open(bytes(frame[: frames.HEAD]), bytes(frame[frames.HEAD :]))


def test_frames_cannot_be_reordered_repeated_or_sent_back() -> None:
    here, there = ends()
    first, second = here.seal([b"1"]), here.seal([b"2"])
    for frame in (second, first):  # the first place was taken by what did not belong there
        with pytest.raises(FrameError):
            there.open(frame[: frames.HEAD], frame[frames.HEAD :])
    _, back = ends(b"down")
    with pytest.raises(FrameError):
        back.open(first[: frames.HEAD], first[frames.HEAD :])


def test_a_length_is_bounded_before_anything_is_read() -> None:
    here, there = ends()
    with pytest.raises(FrameError, match="is more than"):
        there.length(struct.pack("<I", 1 << 30))
    with pytest.raises(FrameError, match="is more than"):
        here.seal([bytes(frames.MOST)])


def test_a_proof_holds_for_its_greeting_and_its_rank_alone() -> None:
    said = frames.hello(SECRET, b"g" * frames.GREETING, bytes(32), 3)
    assert frames.proven(SECRET, b"g" * frames.GREETING, said)
    assert not frames.proven(SECRET, b"h" * frames.GREETING, said)
    assert not frames.proven(SECRET, b"g" * frames.GREETING, said[:32] + struct.pack("<i", 4) + said[36:])
    assert not frames.proven(Secret("1" * 64), b"g" * frames.GREETING, said)
