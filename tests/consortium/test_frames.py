"""A frame comes through whole, or is refused in one sentence: whatever was cut, changed or made up."""

from __future__ import annotations

import random

import pytest
import torch
from tests.support.spoilt_frames import changed, mutated

from gossamer.consortium.frames import Decisions, Frame, Place, RefusedError, check_content, unpack

STUDY = "ab" * 32
FRAME = Frame(
    kind="share",
    study=STUDY,
    epoch=3,
    sender="ann",
    receiver="bob",
    place=Place(17, 1),
    incarnation=5,
    oldest=8,
    following=11,
    decisions=Decisions(7, (1, 4), (2,)),
    channel=1,
    sequence=9,
    made=Place(16, 0),
    content=(torch.arange(6.0), torch.tensor([0.25], dtype=torch.float64)),
)


def read(raw: bytes, sender: str = "ann", receiver: str = "bob", study: str = STUDY, largest: int = 1 << 20) -> Frame:
    return unpack(raw, sender=sender, receiver=receiver, study=study, largest=largest)


def test_a_frame_comes_through_whole() -> None:
    found = read(FRAME.pack())
    assert all(map(torch.equal, found.content, FRAME.content))
    assert [t.dtype for t in found.content] == [torch.float32, torch.float64]
    assert changed(found, content=()) == changed(FRAME, content=())
    hello = changed(FRAME, kind="hello", content=(), place=Place(4, -1), made=Place(4, -1), decisions=Decisions())
    assert read(hello.pack()) == hello


def test_wrong_ends_are_refused() -> None:
    raw = FRAME.pack()
    with pytest.raises(RefusedError, match="another site"):
        read(raw, sender="eve")
    with pytest.raises(RefusedError, match="another site"):
        read(raw, receiver="eve")  # a frame for somebody else
    with pytest.raises(RefusedError, match="another study"):
        read(raw, study="cd" * 32)
    with pytest.raises(RefusedError, match="bytes; a frame has"):
        read(raw, largest=len(raw) - 1)
    with pytest.raises(RefusedError, match="cannot be decoded"):
        read(b"")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": 77}, "kind: "),
        ({"content": ()}, "do not fit its kind"),
        ({"kind": "hello"}, "do not fit its kind"),
        ({"oldest": 12}, "counters"),
        ({"incarnation": 1 << 63}, "incarnation: "),
        ({"epoch": -1}, "epoch: "),
        ({"content": (torch.zeros(2, 2),)}, "flat"),
        ({"content": (torch.zeros(2, dtype=torch.int64),)}, "flat"),
        ({"content": tuple(torch.zeros(1) for _ in range(9))}, "9 tensors"),
        ({"made": Place(17, 2)}, "future"),
        ({"sequence": 11}, "number"),
        ({"sequence": 7}, "number"),
        ({"decisions": Decisions(7, tuple(range(5000)))}, "at most 4096"),
    ],
)
def test_what_a_member_makes_up_is_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        read(changed(FRAME, **change).pack())


def test_content_that_must_not_be_added_is_refused() -> None:
    like = (torch.zeros(6), torch.zeros(1, dtype=torch.float64))
    check_content(FRAME.content, like, weight=4.0)
    x, w = FRAME.content
    with pytest.raises(RefusedError, match="shapes or dtypes"):
        check_content((x, w.float()), like, weight=4.0)  # a weight in single precision
    with pytest.raises(RefusedError, match="shapes or dtypes"):
        check_content((x[:5], w), like, weight=4.0)
    for bad in (float("nan"), float("inf")):
        spoilt = x.clone()
        spoilt[3] = bad
        with pytest.raises(RefusedError, match="NaN"):
            check_content((spoilt, w), like, weight=4.0)
    for weight in (0.0, -1.0, 4.5):
        with pytest.raises(RefusedError, match="its weight is"):
            check_content((x, torch.tensor([weight], dtype=torch.float64)), like, weight=4.0)


def fuzz(count: int, seed: int) -> int:
    """How many of so many spoilt frames can be read: then they are frames that a member could have sent."""
    pick, accepted = random.Random(seed), 0
    pool = [FRAME.pack(), changed(FRAME, kind="hello", content=()).pack()]
    for _ in range(count):
        try:
            frame = read(mutated(pick.choice(pool), pick))
        except RefusedError:
            continue
        accepted += 1
        assert frame.made <= frame.place
        assert frame.oldest <= frame.following
        if frame.kind == "share":
            assert frame.oldest <= frame.sequence < frame.following
            assert all(tensor.ndim == 1 for tensor in frame.content)
    return accepted


def test_spoilt_frames_are_refused_or_read_and_nothing_else_happens() -> None:
    assert fuzz(4000, 0) > 20


@pytest.mark.slow
def test_nothing_else_happens_with_three_hundred_thousand() -> None:
    assert fuzz(300_000, 1) > 100
