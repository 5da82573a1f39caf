"""How much and how long a link may take: sizes, times, and the same in gRPC's words."""

from __future__ import annotations

from dataclasses import dataclass

CHUNK = 1 << 18  # bytes of a parcel in one message
MESSAGE = CHUNK + 4096  # the longest message that is read at all
KEPT = 2  # parcels a link that wait to be taken
SMALL = 1 << 16  # bytes: acknowledgements and the like, which must not push out a model
SMALL_KEPT = 32
CONNECTIONS = 256  # that a listener holds at once, strangers' among them


@dataclass(frozen=True)
class Pace:
    """Seconds."""

    beat: float = 2.0  # a site that has nothing to say says so this often
    suspect: float = 6.0  # nothing was heard for so long
    silence: float = 15.0  # the connection is given up
    handshake: float = 10.0  # from the first byte to the last proof
    redial: float = 5.0  # at most, between two attempts
    patience: float = 3.0  # for the other one to dial, where both could
    age: float = (
        6 * 3600.0
    )  # of a connection: then certificates are shown anew, and one that has expired is seen


Options = list[tuple[str, int | str]]


def _common(pace: Pace) -> Options:
    return [
        ("grpc.max_receive_message_length", MESSAGE),
        ("grpc.max_send_message_length", MESSAGE),
        ("grpc.max_metadata_size", 4096),
        ("grpc.absolute_max_metadata_size", 8192),
        # Only the identity: noise does not shrink, and a message that grows when it is unpacked is refused.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        # A connection that is dead below our stream, or has none, is found by pings of gRPC's own.
        ("grpc.keepalive_time_ms", int(pace.silence * 1000)),
        ("grpc.keepalive_timeout_ms", int(pace.silence * 1000)),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def of_listener(pace: Pace) -> Options:
    return [
        *_common(pace),
        ("grpc.server_handshake_timeout_ms", int(pace.handshake * 1000)),
        ("grpc.max_allowed_incoming_connections", CONNECTIONS),
        ("grpc.max_concurrent_streams", 2),  # of one connection
        (
            "grpc.max_connection_idle_ms",
            int(pace.silence * 1000),
        ),  # without a stream: somebody who was revoked
        ("grpc.max_connection_age_ms", int(pace.age * 1000)),
        ("grpc.max_connection_age_grace_ms", 1000),
        ("grpc.http2.min_ping_interval_without_data_ms", int(pace.silence * 500)),
        ("grpc.so_reuseport", 0),  # a second program at this address is an error, not a lottery
    ]


def of_dialler(pace: Pace, name: str) -> Options:
    return [
        *_common(pace),
        (
            "grpc.ssl_target_name_override",
            name,
        ),  # the certificate must name the member, wherever it is dialled
        ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for every attempt
        ("grpc.enable_retries", 0),
    ]
