"""Parcels: any bytes go through and back, and whatever is not the one that is due is refused before it is believed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gossamer.runtime.parcels import FIRST, INSIDE, ParcelError, Stamp
from gossamer.runtime.transport.secret import Secret

STAMP = Stamp(Secret("k" * 32), b"stated", place=7, sender=2, receiver=1)
LENGTHS = [0, 1, INSIDE - 1, INSIDE, INSIDE + 1, 3 * FIRST]


def content(length: int) -> Tensor:
    return (torch.arange(length) % 251).to(torch.uint8)


def taken(stamp: Stamp, first: Tensor, rest: Tensor | None) -> Tensor:
    found = stamp.begin(first)
    if rest is not None:
        found[INSIDE:] = rest
    stamp.check(first, found)
    return found


@pytest.mark.parametrize("length", LENGTHS)
def test_what_is_packed_is_taken(length: int) -> None:
    first, rest = STAMP.pack(content(length))
    assert len(first) == FIRST
    assert (0 if rest is None else len(rest)) == max(0, length - INSIDE)
    assert torch.equal(taken(STAMP, first, rest), content(length))


@pytest.mark.parametrize(
    "changes",
    [{"kind": b"total"}, {"place": 8}, {"sender": 1}, {"receiver": 2}, {"seal": Secret("x" * 32)}],
)
def test_a_parcel_of_another_place_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ParcelError, match="its seal does not fit its content"):
        replace(STAMP, **changes).begin(STAMP.pack(content(10))[0])


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 2 * FIRST - 1), bit=st.integers(0, 7))
def test_every_changed_bit_shows(place: int, bit: int) -> None:
    first, rest = STAMP.pack(content(INSIDE + FIRST))
    assert rest is not None
    changed = torch.cat([first, rest])
    changed[place] ^= 1 << bit
    with pytest.raises(ParcelError, match="its seal does not fit its content"):
        taken(STAMP, changed[:FIRST], changed[FIRST:])


@settings(max_examples=60, deadline=None)
@given(st.binary(min_size=100, max_size=200))
def test_arbitrary_bytes_are_refused(said: bytes) -> None:
    first = torch.frombuffer(bytearray(said.ljust(FIRST, b"\xff")), dtype=torch.uint8)
    with pytest.raises(ParcelError):
        STAMP.begin(first)


def test_a_length_is_bounded_even_for_a_member() -> None:
    first, _ = STAMP.pack(content(INSIDE + 1))
    due = replace(STAMP, most=INSIDE)
    with pytest.raises(
        ParcelError, match=f"it would have {INSIDE + 1} bytes, but at most {INSIDE} are taken"
    ):
        due.begin(first)
    with pytest.raises(ParcelError, match="but at most"):
        due.pack(content(INSIDE + 1))
