"""What ranks tell each other beside the rounds' messages: bytes of any length, sealed, in one or two messages.

The first message has a fixed length and says how long the parcel is and what seals the rest of it. So nothing is
allocated for a length that nobody of the run has sealed, and most parcels need no second message.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.runtime.transport.secret import TAG, Seal
from gossamer.runtime.wire import EVERYONE

FIRST = 4096  # bytes of the first message
MOST = 1 << 28  # bytes of a parcel whose length nobody knows before
_HEAD = struct.Struct(
    f"<{TAG}sQ{TAG}s"
)  # the seal of this message, the parcel's length, the seal of the rest
INSIDE = FIRST - _HEAD.size  # bytes of the parcel in the first message


class ParcelError(Exception):
    """The parcel is not the one that was due; the text says what about it."""


@dataclass(frozen=True)
class Stamp:
    """Which parcel: its place among all of this meeting, what it is for, from whom to whom. No two have the same."""

    seal: Seal
    kind: bytes
    place: int
    sender: int
    receiver: int = EVERYONE
    most: int = MOST  # bytes; where the length is known, that

    def pack(self, content: Tensor) -> tuple[Tensor, Tensor | None]:
        """Flat bytes as the first message and, where one is needed, the second, which is a part of `content` itself."""
        if len(content) > self.most:
            raise ParcelError(f"it would have {len(content)} bytes, but at most {self.most} are taken")
        first, rest = torch.zeros(FIRST, dtype=torch.uint8), content[INSIDE:]
        message = first.numpy().data
        _HEAD.pack_into(message, 0, bytes(TAG), len(content), self._tag(b"rest", rest))
        first[_HEAD.size :][: len(content)] = content[:INSIDE]
        message[:TAG] = self._tag(b"first", first[TAG:])
        return first, rest if len(rest) else None

    def begin(self, first: Tensor) -> Tensor:
        """Room for the parcel with what its first message holds, which must be of this place and sender."""
        tag, length, _ = _HEAD.unpack_from(first.numpy().data)
        if not self.seal.fits(tag, *self._parts(b"first", first[TAG:])):
            raise ParcelError("its seal does not fit its content")
        if length > self.most:
            raise ParcelError(f"it would have {length} bytes, but at most {self.most} are taken")
        content = torch.empty(length, dtype=torch.uint8)
        content[:INSIDE] = first[_HEAD.size :][:length]
        return content

    def check(self, first: Tensor, content: Tensor) -> None:
        """Is what came behind the first message what it had announced?"""
        _, _, tag = _HEAD.unpack_from(first.numpy().data)
        if not self.seal.fits(tag, *self._parts(b"rest", content[INSIDE:])):
            raise ParcelError("its seal does not fit its content")

    def _tag(self, which: bytes, content: Tensor) -> bytes:
        return self.seal.tag(*self._parts(which, content))

    def _parts(self, which: bytes, content: Tensor) -> tuple[bytes | memoryview, ...]:
        where = struct.pack("<QII", self.place, self.sender, self.receiver)
        return b"parcel", which, self.kind, where, content.numpy().data
