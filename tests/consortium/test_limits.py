"""What gRPC is told. That it does what it is told is in test_links.py."""

from __future__ import annotations

from gossamer.consortium.limits import CHUNK, MESSAGE, Pace, of_dialler, of_listener
from gossamer.consortium.peer_pb2 import Chunk, Frame

LARGEST = 2**64 - 1


def test_the_longest_frame_of_ours_just_fits() -> None:
    frame = Frame(chunk=Chunk(number=LARGEST, size=LARGEST, offset=LARGEST, data=bytes(CHUNK)))
    assert CHUNK < frame.ByteSize() <= MESSAGE < 1.02 * CHUNK


def test_a_dialler_asks_for_the_members_name_and_both_ends_refuse_compression() -> None:
    dialler, listener = dict(of_dialler(Pace(), "clinic")), dict(of_listener(Pace()))
    assert dialler["grpc.ssl_target_name_override"] == "clinic"
    for options in (dialler, listener):
        assert options["grpc.compression_enabled_algorithms_bitset"] == 1
        assert options["grpc.max_receive_message_length"] == MESSAGE


def test_a_listener_allows_the_pings_that_its_diallers_send() -> None:
    """Else gRPC closes the connection with "too many pings"."""
    dialler, listener = dict(of_dialler(Pace(), "clinic")), dict(of_listener(Pace()))
    assert int(listener["grpc.http2.min_ping_interval_without_data_ms"]) < int(
        dialler["grpc.keepalive_time_ms"]
    )


def test_beats_come_often_enough() -> None:
    pace = Pace()
    assert 3 * pace.beat <= pace.suspect < pace.silence
