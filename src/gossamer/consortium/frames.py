"""Frames, the messages of an exchange: a header in JSON and perhaps tensors. Every field is checked before any is used.

A frame tells where its sender is, what it has decided about the receiver's parcels, and carries at most one parcel.
The connection proves the sender's name and keeps the bytes intact. A member may still send anything: nothing is
trusted.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import safetensors.torch
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from gossamer.consortium.links import MAX_MESSAGE

MAX_TENSORS = 8
MAX_DECISIONS = 4096
MAX_RATIO = 2.0**30  # of a value to those of the first model: no training that has not diverged gets there
_CARRIES = ("share", "offer", "model")
_LENGTH = struct.Struct("<Q")
_HEADER = 1 << 18  # bytes that the longest header has at most

Count = Annotated[int, Field(ge=0, lt=1 << 62)]
Numbers = Annotated[tuple[Count, ...], Field(max_length=MAX_DECISIONS)]


class RefusedError(Exception):
    """A frame was refused; the text is one reason."""


class Place(NamedTuple):
    """A place in a run: the round, and its exchange; −1 is the pause before the first, where epochs change."""

    round: Count
    call: Annotated[int, Field(ge=-1, lt=1 << 32)]


class Decisions(NamedTuple):
    """A receiver's final decisions about parcels of one sender that the sender still keeps."""

    incarnation: Count = 0  # of the sender
    taken: Numbers = ()
    returned: Numbers = ()  # too old: the sender takes them back


class Frame(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)

    kind: Literal["hello", "share", "offer", "ask", "model", "waiting"]
    study: str
    epoch: Count
    sender: str
    receiver: str
    place: Place  # of the sender
    incarnation: Count
    oldest: Count = 0  # the sender's parcels below this number are settled, and it has forgotten them
    following: Count = 0  # number of the next parcel on this link
    decisions: Decisions = Decisions()
    channel: Count = 0
    sequence: Count = 0
    made: Place = Place(0, 0)  # where the sender was when it made the parcel
    content: tuple[Tensor, ...] = Field(default=(), exclude=True)  # flat tensors

    def pack(self) -> bytes:
        tensors = {str(i): tensor for i, tensor in enumerate(self.content)}
        return pack_tensors(self.model_dump(mode="json", warnings=False), tensors)


def pack_tensors(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bytes:
    """Encode a JSON object and tensors: the object's length, the object, and the tensors by safetensors."""
    text = json.dumps(header).encode()
    saved = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    return _LENGTH.pack(len(text)) + text + (safetensors.torch.save(saved) if saved else b"")


def unpack_tensors(raw: bytes) -> tuple[bytes, dict[str, Tensor]]:
    """Return the JSON text and the tensors that `pack_tensors` encoded."""
    (length,) = _LENGTH.unpack_from(raw)
    end = _LENGTH.size + length
    return raw[_LENGTH.size : end], safetensors.torch.load(raw[end:]) if len(raw) > end else {}


def unpack(raw: bytes, *, sender: str, receiver: str, study: str, largest: int = MAX_MESSAGE) -> Frame:
    """Decode a frame that `sender` sent; raise `RefusedError` with one reason if it is not one for `receiver`."""
    if len(raw) > largest:
        raise RefusedError(f"it has {len(raw)} bytes; a frame has at most {largest}")
    try:
        header, tensors = unpack_tensors(raw)
        frame = Frame.model_validate_json(header)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, first["loc"]))[:80] or "its header"
        raise RefusedError(f"{field}: {first['msg']}") from None
    except Exception as error:  # of a decoder that got invalid bytes
        raise RefusedError(f"it cannot be decoded ({type(error).__name__})") from None
    content = tuple(tensors.get(str(i), torch.empty(0, 0)) for i in range(len(tensors)))
    fits = 0 < len(content) <= MAX_TENSORS if frame.kind in _CARRIES else not content
    numbered = frame.oldest <= frame.sequence < frame.following
    reasons = {
        "it belongs to another study": frame.study != study,
        "it was made by or for another site": (frame.sender, frame.receiver) != (sender, receiver),
        f"{len(content)} tensors do not fit its kind": not fits,
        "its tensors are not flat float32 or float64": not all(map(_is_flat, content)),
        "its counters make no sense": frame.oldest > frame.following,
        "its parcel is from the future": frame.made > frame.place,
        "its number is not one of its sender's": frame.kind == "share" and not numbered,
    }
    for reason, applies in reasons.items():
        if applies:
            raise RefusedError(reason)
    return frame.model_copy(update={"content": content})


def _is_flat(tensor: Tensor) -> bool:
    return tensor.ndim == 1 and tensor.dtype in (torch.float32, torch.float64)


def largest_frame(width: int) -> int:
    """Return the bytes of the longest frame about models of `width` values: two of them, in double precision."""
    return _HEADER + 8 * 2 * width


def check_content(
    content: Sequence[Tensor], like: Sequence[Tensor], *, weight: float | None, bound: float = MAX_RATIO
) -> None:
    """Refuse other shapes or dtypes than those of `like`, NaN and infinity, and a last tensor outside (0, `weight`].

    Values may be at most `bound`, in proportion to the weight where there is one: then the mixed model is so, too.
    """
    if [(t.numel(), t.dtype) for t in content] != [(t.numel(), t.dtype) for t in like]:
        raise RefusedError("its shapes or dtypes are not those of this exchange")
    if not all(bool(tensor.isfinite().all()) for tensor in content):
        raise RefusedError("it holds NaN or infinite values")
    if weight is not None and not 0 < float(content[-1]) <= weight:
        raise RefusedError(f"its weight is {float(content[-1]):g}; it must be above 0 and at most {weight:g}")
    values, share = (content, 1.0) if weight is None else (content[:-1], float(content[-1]))
    largest = max((float(tensor.abs().max()) for tensor in values if tensor.numel()), default=0.0)
    if largest > bound * share:
        raise RefusedError(f"its values are up to {largest / share:.3g}; no model is above {bound:.3g}")
