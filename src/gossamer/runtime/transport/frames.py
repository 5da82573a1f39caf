"""What goes over a connection to the meeting point: a handshake that proves the secret on both sides, then frames.

Before the handshake has succeeded a side reads a fixed number of bytes and believes none of them. After it every frame
carries its length (bounded before anything is allocated), and a seal over its direction, its place in the connection
and its content: nothing can be forged, changed, repeated, left out or moved to another connection.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from gossamer.runtime.transport.secret import TAG, Seal

MAGIC = b"GOSM1\0\0\0"
NONCE = 32
GREETING = len(MAGIC) + NONCE  # bytes, from the server
HELLO = NONCE + 4 + TAG  # bytes, from whoever joins
HEAD = 4 + TAG  # bytes before a frame's content
MOST = 1 << 20  # bytes of a frame's content
REFUSED = bytes(TAG)
_LENGTH = struct.Struct("<I")


class FrameError(Exception):
    """What came is not what the other side of this connection would have sent."""


def hello(secret: Seal, greeting: bytes, nonce: bytes, rank: int) -> bytes:
    who = struct.pack("<i", rank)
    return nonce + who + secret.tag(b"join", greeting, nonce, who)


def proven(secret: Seal, greeting: bytes, said: bytes) -> bool:
    nonce, who, tag = said[:NONCE], said[NONCE : NONCE + 4], said[NONCE + 4 :]
    return secret.fits(tag, b"join", greeting, nonce, who)


def welcome(secret: Seal, greeting: bytes, said: bytes) -> bytes:
    """The server's own proof."""
    return secret.tag(b"welcome", greeting, said)


class Line:
    """One direction of a connection."""

    def __init__(self, secret: Seal, greeting: bytes, said: bytes, direction: bytes):
        self._seal, self._count = secret.derive(b"line", direction, greeting, said), 0

    def seal(self, fields: Sequence[bytes]) -> bytes:
        content = b"".join(_LENGTH.pack(len(field)) + field for field in fields)
        if len(content) > MOST:
            raise FrameError(f"a frame of {len(content)} bytes is more than {MOST}")
        self._count += 1
        return _LENGTH.pack(len(content)) + self._seal.tag(struct.pack("<Q", self._count), content) + content

    def length(self, head: bytes) -> int:
        (length,) = _LENGTH.unpack(head[:4])
        if length > MOST:
            raise FrameError(f"a frame of {length} bytes is more than {MOST}")
        return int(length)

    def open(self, head: bytes, content: bytes) -> list[bytes]:
        self._count += 1
        if not self._seal.fits(head[4:], struct.pack("<Q", self._count), content):
            raise FrameError("a frame's seal does not fit")
        fields, at = [], 0
        while at < len(content):
            if at + 4 > len(content):
                raise FrameError("a frame's fields do not fill it")
            (size,) = _LENGTH.unpack_from(content, at)
            if at + 4 + size > len(content):
                raise FrameError("a frame's fields do not fill it")
            fields.append(content[at + 4 : at + 4 + size])
            at += 4 + size
        return fields
