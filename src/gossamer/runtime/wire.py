"""What travels between two ranks in an exchange: one contiguous buffer, a header and the rows of some nodes.

The receiver knows what it must get (both sides compute the round's graph themselves), so every field of the header is
compared, and a message that differs is refused, never averaged in. Header and rows are sealed with a key of the run's
meeting, for this receiver.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hmac import compare_digest
from math import prod

import torch
from torch import Tensor

from gossamer.runtime.transport.secret import TAG, Seal

_HEADER = struct.Struct("<4s8sQIIIII8s8Q32s")
HEADER = 160  # bytes: so that the rows behind it are aligned
MOST_TENSORS = 8
EVERYONE = 0xFFFFFFFF  # the receiver of what is sent to several ranks alike
_DTYPES = {torch.float32: 1, torch.float64: 2, torch.int64: 3}
_MAGIC = b"GOS2"


class RefusedError(Exception):
    """The message is not the one that was due; the text says what about it."""


@dataclass(frozen=True)
class Layout:
    """The tensors of one exchange, without their rows: (shape of a row, dtype) each."""

    rows: tuple[tuple[tuple[int, ...], torch.dtype], ...]

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> Layout:
        if len(tensors) > MOST_TENSORS:
            raise ValueError(f"an exchange takes at most {MOST_TENSORS} tensors, not {len(tensors)}")
        for tensor in tensors:
            if tensor.dtype not in _DTYPES:
                raise ValueError(f"mixing needs float32, float64 or int64, not {tensor.dtype}")
        return cls(tuple((tuple(tensor.shape[1:]), tensor.dtype) for tensor in tensors))

    @property
    def row_bytes(self) -> int:
        return sum(prod(shape) * dtype.itemsize for shape, dtype in self.rows)

    def size(self, rows: int) -> int:
        return HEADER + rows * self.row_bytes

    def views(self, buffer: Tensor, rows: int) -> list[Tensor]:
        """The tensors inside a message's buffer, (rows, …) each; doubles first, so that all are aligned."""
        found: dict[int, Tensor] = {}
        at = HEADER
        for i in sorted(range(len(self.rows)), key=lambda i: -self.rows[i][1].itemsize):
            shape, dtype = self.rows[i]
            size = rows * prod(shape) * dtype.itemsize
            found[i] = buffer[at : at + size].view(dtype).view(rows, *shape)
            at += size
        return [found[i] for i in range(len(self.rows))]


@dataclass(frozen=True)
class Label:
    """Which message: of which run, round, call within the round, sender; to whom, and sealed by what."""

    run: str
    round: int
    call: int
    sender: int
    seal: Seal
    receiver: int = EVERYONE

    def write(self, buffer: Tensor, layout: Layout, rows: int) -> None:
        """Put the header before the rows, which must be in place."""
        fields = self._fields(layout, rows)
        header = _HEADER.pack(*fields, self._tag(_HEADER.pack(*fields, bytes(TAG)), buffer))
        buffer[: len(header)] = torch.frombuffer(bytearray(header), dtype=torch.uint8)

    def check(self, buffer: Tensor, layout: Layout, rows: int) -> None:
        """Refuse a message that is not this one, or was changed on its way."""
        found = _HEADER.unpack(bytes(buffer[: _HEADER.size].tolist()))
        due = self._fields(layout, rows)
        for name, was, must in zip(_NAMES, _grouped(found[:-1]), _grouped(due), strict=True):
            if was != must:
                raise RefusedError(f"its {name} is not the one that was due")
        if not compare_digest(found[-1], self._tag(_HEADER.pack(*due, bytes(TAG)), buffer)):
            raise RefusedError("its seal does not fit its content")

    def _tag(self, header: bytes, buffer: Tensor) -> bytes:
        return self.seal.tag(b"message", header, buffer[HEADER:].cpu().numpy().data)

    def _fields(self, layout: Layout, rows: int) -> tuple[bytes | int, ...]:
        codes = bytes(_DTYPES[dtype] for _, dtype in layout.rows)
        widths = [prod(shape) for shape, _ in layout.rows]
        widths += [0] * (MOST_TENSORS - len(widths))
        run = bytes.fromhex(self.run)
        return (
            _MAGIC,
            run,
            self.round,
            self.call,
            self.sender,
            self.receiver,
            rows,
            len(codes),
            codes.ljust(8, b"\0"),
            *widths,
        )


_NAMES = ("format", "run", "round", "place in the round", "sender", "receiver", "shape", "dtype")


def _grouped(fields: Sequence[bytes | int]) -> list[object]:
    """In the order of `_NAMES`: the shape is rows, tensors and widths together."""
    magic, run, at, call, sender, receiver, rows, count, codes, *widths = fields
    return [magic, run, at, call, sender, receiver, (rows, count, *widths), codes]


def first_not_finite(tensor: Tensor) -> int | None:
    """The first row with NaN or infinity in it."""
    # A sum is one pass and no memory; only where it is not finite the rows are looked at (it may just have overflowed).
    if bool(torch.isfinite(tensor.sum())):
        return None
    rows = torch.isfinite(tensor.flatten(1)).all(1)
    return None if bool(rows.all()) else int(rows.int().argmin())
