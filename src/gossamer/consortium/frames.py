"""What travels between two sites: one frame, a header and perhaps a parcel. Every field is checked before any is used.

A frame tells where its sender is, what it has decided about the receiver's parcels, and carries at most one parcel.
The connection proves the sender's name and keeps the bytes intact; a member may still send anything: nothing is
believed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from gossamer.consortium.links import MOST
from gossamer.runtime.exchange import first_not_finite

HELLO, SHARE, OFFER, ASK, MODEL, WAITING = range(1, 7)
KINDS = {HELLO: "hello", SHARE: "share", OFFER: "offer", ASK: "question", MODEL: "model", WAITING: "reminder"}
MOST_TENSORS = 8
MOST_DECISIONS = 4096
_MAGIC = b"GSP1"
_HEADER = struct.Struct("<4sBBH16s8s8sIQIQQQQIIQQI8s8QQ16s")
_CHECKSUM = 16
_DTYPES = {1: torch.float32, 2: torch.float64}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_LIMIT = 1 << 62  # of counters: none gets there
FAR = 2.0**30  # times the first model: no training that has not diverged gets there


class RefusedError(Exception):
    """The frame is not one that was due; the text says what is wrong with it."""


@dataclass(frozen=True, order=True)
class Place:
    """Where in a run: the round, and which of its exchanges; −1 is the pause before the first, where epochs change."""

    round: int
    call: int


@dataclass(frozen=True)
class Decisions:
    """What a receiver has decided, for good, about parcels of one sender that the sender still keeps."""

    incarnation: int = 0  # of the sender
    taken: tuple[int, ...] = ()
    returned: tuple[int, ...] = ()  # too old, not taken: the sender takes them back


@dataclass(frozen=True)
class Frame:
    kind: int
    study: bytes  # 16 bytes
    epoch: int
    sender: str
    receiver: str
    place: Place  # where the sender is
    incarnation: int
    oldest: int = 0  # the sender's parcels below are settled, and it has forgotten them
    following: int = 0  # the next parcel on this link would have this number
    decisions: Decisions = field(default_factory=Decisions)
    channel: int = 0
    sequence: int = 0
    made: Place = Place(0, 0)  # where the sender was when it made the parcel
    content: tuple[Tensor, ...] = ()  # flat tensors

    def pack(self) -> bytes:
        taken, returned = self.decisions.taken, self.decisions.returned
        widths = [tensor.numel() for tensor in self.content]
        numbers = np.array([*taken, *returned], dtype="<u8").tobytes()
        body = b"".join([numbers, *(_bytes(tensor) for tensor in self.content)])
        fields = (
            _MAGIC, self.kind, len(widths), self.channel, self.study, _mark(self.sender), _mark(self.receiver),
            self.epoch, self.place.round, self.place.call + 1, self.incarnation, self.oldest, self.following,
            self.decisions.incarnation, len(taken), len(returned), self.sequence, self.made.round, self.made.call + 1,
            bytes(_CODES[tensor.dtype] for tensor in self.content).ljust(8, b"\0"),
            *widths, *[0] * (MOST_TENSORS - len(widths)), _HEADER.size + len(body),
        )  # fmt: skip
        return _HEADER.pack(*fields, _checksum(_HEADER.pack(*fields, bytes(_CHECKSUM)), body)) + body


def unpack(raw: bytes, *, sender: str, receiver: str, study: bytes, most: int = MOST) -> Frame:
    """The frame in these bytes, which `sender` sent: `RefusedError` with one reason if it is not one for `receiver`."""
    if not _HEADER.size <= len(raw) <= most:
        raise RefusedError(f"it has {len(raw)} bytes; a frame has {_HEADER.size} to {most}")
    (
        magic, kind, tensors, channel, of, sent_by, sent_to, epoch, at, call, incarnation, oldest, following,
        decided_about, taken, returned, sequence, made_at, made_call, codes, *widths, length, checksum,
    ) = _HEADER.unpack_from(raw)  # fmt: skip
    body = memoryview(raw)[_HEADER.size :]
    dtypes = [_DTYPES.get(code) for code in codes[:tensors]]
    sizes = [
        width * dtype.itemsize for width, dtype in zip(widths, dtypes, strict=False) if dtype is not None
    ]
    counters = (at, made_at, incarnation, oldest, following, sequence, decided_about)
    bare = raw[: _HEADER.size - _CHECKSUM] + bytes(_CHECKSUM)
    carries = kind in (SHARE, OFFER, MODEL)
    reasons = {
        "it is not a frame of this format": magic != _MAGIC,
        f"it has {len(raw)} bytes and says {length}": length != len(raw),
        "its checksum does not fit its content": checksum != _checksum(bare, body),
        "it belongs to another study": of != study,
        "it was made by or for another site": (sent_by, sent_to) != (_mark(sender), _mark(receiver)),
        f"{kind} is no kind of frame": kind not in KINDS,
        f"{tensors} tensors do not fit its kind": not (
            0 < tensors <= MOST_TENSORS if carries else tensors == 0
        ),
        f"it decides about more than {MOST_DECISIONS} parcels": max(taken, returned) > MOST_DECISIONS,
        "its counters make no sense": max(counters) > _LIMIT or oldest > following,
        "its parcel is from the future": (made_at, made_call) > (at, call),
        "its number is not one of its sender's": kind == SHARE and not oldest <= sequence < following,
        "its dtypes are not float32 or float64": None in dtypes
        or any(codes[tensors:])
        or any(widths[tensors:]),
        "its shapes do not fit its length": 8 * (taken + returned) + sum(sizes) != len(body),
    }
    for reason, found in reasons.items():
        if found:
            raise RefusedError(reason)
    numbers = np.frombuffer(body, dtype="<u8", count=taken + returned).tolist()
    return Frame(
        kind=kind, study=study, epoch=epoch, sender=sender, receiver=receiver, place=Place(at, call - 1),
        incarnation=incarnation, oldest=oldest, following=following,
        decisions=Decisions(decided_about, tuple(numbers[:taken]), tuple(numbers[taken:])),
        channel=channel, sequence=sequence, made=Place(made_at, made_call - 1),
        content=_tensors(body[8 * (taken + returned) :], dtypes, widths),
    )  # fmt: skip


def longest(width: int) -> int:
    """Bytes of the longest frame about models of `width` values: two of them, in double precision."""
    return _HEADER.size + 8 * 2 * MOST_DECISIONS + 8 * 2 * width


def check_content(
    content: Sequence[Tensor], like: Sequence[Tensor], *, weight: float | None, bound: float = FAR
) -> None:
    """Refuse what must not be added: other shapes or dtypes, NaN, infinity; a last one outside (0, `weight`].

    Values may be at most `bound`, in proportion to the weight where there is one: then the mixed model is so, too.
    """
    if [(t.numel(), t.dtype) for t in content] != [(t.numel(), t.dtype) for t in like]:
        raise RefusedError("its shapes or dtypes are not those of this exchange")
    for tensor in content:
        if first_not_finite(tensor.view(1, -1)) is not None:
            raise RefusedError("it holds NaN or infinite values")
    if weight is not None and not 0 < float(content[-1]) <= weight:
        raise RefusedError(f"its weight is {float(content[-1]):g}; it must be above 0 and at most {weight:g}")
    values, share = (content, 1.0) if weight is None else (content[:-1], float(content[-1]))
    largest = max((float(tensor.abs().max()) for tensor in values if tensor.numel()), default=0.0)
    if largest > bound * share:
        raise RefusedError(
            f"its values are up to {largest / share:.3g}; no model of this study is above {bound:.3g}"
        )


def _mark(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:8]


def _checksum(header: bytes, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(header)
    digest.update(body)
    return digest.digest()[:_CHECKSUM]


def _bytes(tensor: Tensor) -> bytes:
    return bytes(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


def _tensors(
    body: memoryview, dtypes: Sequence[torch.dtype | None], widths: Sequence[int]
) -> tuple[Tensor, ...]:
    found, at = [], 0
    for dtype, width in zip(dtypes, widths, strict=False):
        kind = np.dtype("<f4" if dtype == torch.float32 else "<f8")
        found.append(torch.from_numpy(np.frombuffer(body, kind, width, at).copy()))
        at += width * kind.itemsize
    return tuple(found)
