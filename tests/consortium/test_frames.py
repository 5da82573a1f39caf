"""A frame comes through whole, or is refused in one sentence: whatever was cut, changed or made up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from tests.support.spoilt_frames import forged, mutated

from gossamer.consortium.frames import (
    HELLO,
    SHARE,
    Decisions,
    Frame,
    Place,
    RefusedError,
    check_content,
    unpack,
)

STUDY = bytes(range(16))
FRAME = Frame(
    kind=SHARE,
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


def read(
    raw: bytes, sender: str = "ann", receiver: str = "bob", study: bytes = STUDY, most: int = 1 << 20
) -> Frame:
    return unpack(raw, sender=sender, receiver=receiver, study=study, most=most)


def test_a_frame_comes_through_whole() -> None:
    found = read(FRAME.pack())
    assert all(map(torch.equal, found.content, FRAME.content))
    assert [t.dtype for t in found.content] == [torch.float32, torch.float64]
    assert replace(found, content=()) == replace(FRAME, content=())
    hello = replace(
        FRAME, kind=HELLO, content=(), place=Place(4, -1), made=Place(4, -1), decisions=Decisions()
    )
    assert read(hello.pack()) == hello


def test_wrong_ends_are_refused() -> None:
    raw = FRAME.pack()
    with pytest.raises(RefusedError, match="another site"):
        read(raw, sender="eve")
    with pytest.raises(RefusedError, match="another site"):
        read(raw, receiver="eve")  # a frame for somebody else
    with pytest.raises(RefusedError, match="another study"):
        read(raw, study=bytes(16))
    with pytest.raises(RefusedError, match="bytes; a frame has"):
        read(raw, most=len(raw) - 1)
    with pytest.raises(RefusedError, match="bytes; a frame has"):
        read(b"")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": 77}, "no kind"),
        ({"content": ()}, "do not fit its kind"),
        ({"kind": HELLO}, "do not fit its kind"),
        ({"oldest": 12}, "counters"),
        ({"incarnation": 1 << 63}, "counters"),
        ({"made": Place(17, 2)}, "future"),
        ({"sequence": 11}, "number"),
        ({"sequence": 7}, "number"),
        ({"decisions": Decisions(7, tuple(range(5000)))}, "decides about more"),
    ],
)
def test_what_a_member_makes_up_is_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        read(replace(FRAME, **change).pack())


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
    pick, accepted = random.Random(seed), 0
    pool = [FRAME.pack(), replace(FRAME, kind=HELLO, content=()).pack()]
    for _ in range(count):
        raw = pick.choice(pool)
        changed = mutated(raw, pick)
        if changed == raw:
            continue
        try:
            read(changed)
            accepted += 1
        except RefusedError:
            pass
    return accepted


def test_no_fuzzed_frame_is_accepted() -> None:
    assert fuzz(4000, 0) == 0


@pytest.mark.slow
def test_no_frame_of_three_hundred_thousand_is_accepted() -> None:
    assert fuzz(300_000, 1) == 0


def test_forged_frames_are_refused_or_read_and_nothing_else_happens() -> None:
    pick, read_through = random.Random(2), 0
    for _ in range(4000):
        try:
            found = read(forged(FRAME.pack(), pick))
        except RefusedError:
            continue
        read_through += 1  # another weight or number: a frame that an honest site could have sent
        assert found.made <= found.place
        assert found.oldest <= found.sequence < found.following
    assert read_through > 100  # so the checks behind the checksum were reached
