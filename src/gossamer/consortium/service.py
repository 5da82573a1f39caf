"""The service of peer.proto, at either end.

Not by a generated stub: that lets gRPC write a traceback whenever somebody sends bytes that are no frame.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from gossamer.consortium.peer_pb2 import DESCRIPTOR, Frame

_VERSION = "gossamer-version"
_NAME = DESCRIPTOR.services_by_name["Peer"].full_name


def frame(said: bytes) -> Frame:
    """What is no frame is one of no kind, which has no place anywhere."""
    try:
        made: Frame = Frame.FromString(said)
    except DecodeError:
        made = Frame()
    return made


def dial(channel: Any, version: str = "") -> Any:
    """The dialler's end of a new stream; `version`: of the program here."""
    return channel.stream_stream(f"/{_NAME}/Link", Frame.SerializeToString, frame)(metadata=stated(version))


def stated(version: str) -> tuple[tuple[str, str]]:
    """What either end says in its first metadata."""
    return ((_VERSION, version),)


def version_in(metadata: Iterable[tuple[str, Any]] | None) -> str:
    """What the other end states; the first versions stated none."""
    said = next((str(value) for key, value in metadata or () if key == _VERSION), "")
    return said or "(version not stated)"


def answers(answer: Callable[[Any], Awaitable[None]]) -> Any:
    """What a listener is to be given: `answer` gets the other end of every stream."""

    async def link(_requests: Any, context: Any) -> None:
        await answer(context)

    handler = grpc.stream_stream_rpc_method_handler(link, frame, Frame.SerializeToString)
    return grpc.method_handlers_generic_handler(_NAME, {"Link": handler})
