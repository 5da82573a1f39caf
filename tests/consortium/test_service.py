"""Any bytes are a frame or one of no kind."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.consortium.parcels import Assembly, FrameError
from gossamer.consortium.peer_pb2 import Beat, Chunk, Frame
from gossamer.consortium.service import _NAME, frame


def test_the_service_has_the_name_of_the_proto() -> None:
    assert _NAME == "gossamer.peers.v1.Peer"


@pytest.mark.parametrize(
    "said", [Frame(beat=Beat()), Frame(taken=3), Frame(chunk=Chunk(number=1, data=b"x"))]
)
def test_frames_come_back(said: Frame) -> None:
    assert frame(said.SerializeToString()) == said


@given(st.binary(max_size=60))
def test_no_bytes_raise(said: bytes) -> None:
    assert frame(said).WhichOneof("kind") in (None, "hello", "proof", "chunk", "taken", "beat")


@pytest.mark.parametrize("said", [b"\xff" * 9, b"\x1a\xff\xff\xff\xff\x0f", b"GET / HTTP/1.1", b""])
def test_what_is_no_frame_has_no_kind(said: bytes) -> None:
    assert frame(said).WhichOneof("kind") is None


@pytest.mark.slow
def test_a_million_fuzzed_frames_neither_crash_nor_deliver_a_part() -> None:
    """Frames of a sender, with bytes flipped, cut, doubled and swapped: what leaves is whole by its own header."""
    rng, whole, refused = random.Random(0), 0, 0
    seeds = [
        Frame(
            chunk=Chunk(number=n, size=size, offset=offset, data=bytes(min(size - offset, 9)))
        ).SerializeToString()
        for n, size, offset in ((1, 9, 0), (1, 5, 0), (2, 300, 0), (2, 300, 9), (1 << 60, 1 << 62, 1 << 61))
    ]
    assembly = Assembly(64)
    for _ in range(1_000_000):
        said = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(4)):
            place = rng.randrange(len(said))
            if rng.random() < 0.7:
                said[place] = rng.randrange(256)
            elif rng.random() < 0.5:
                del said[place:]
                said = said or bytearray(b"\0")
            else:
                said[place:place] = said[: rng.randrange(5)]
        heard = frame(bytes(said))
        if heard.WhichOneof("kind") != "chunk":
            refused += 1
            continue
        try:
            parcel = assembly.add(heard.chunk)
        except FrameError:
            refused += 1
            continue
        assert parcel == heard.chunk.data
        assert heard.chunk.offset == 0
        assert 0 < len(parcel) == heard.chunk.size <= 64
        whole += 1
    assert refused > 100_000
    assert whole > 100_000  # so that not everything was refused
