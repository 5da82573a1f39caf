"""Frames that no honest site sends: cut and spoilt on the way, or made up by a member."""

from __future__ import annotations

import random

from gossamer.consortium.frames import Frame


def mutated(raw: bytes, pick: random.Random) -> bytes:
    found = bytearray(raw)
    for _ in range(pick.choice((1, 1, 2, 8))):
        kind, at = pick.randrange(4), pick.randrange(len(found))
        if kind == 0:
            found[at] ^= 1 << pick.randrange(8)
        elif kind == 1:
            found[at] = pick.choice((0, 255, 127, 128))
        elif kind == 2:
            del found[at : at + pick.randrange(1, 9)]
        else:
            found[at:at] = pick.randbytes(pick.randrange(1, 9))
        if not found:
            return b""
    return bytes(found)


def changed(frame: Frame, **fields: object) -> Frame:
    """Without the checks of an honest site."""
    return frame.model_copy(update=fields)
