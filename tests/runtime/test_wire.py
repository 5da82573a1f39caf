"""The wire format: what was put in comes out, and whatever differs is refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gossamer.runtime.transport.secret import Secret
from gossamer.runtime.wire import HEADER, Label, Layout, RefusedError, first_not_finite

LABEL = Label("00112233aabbccdd", 7, 1, 3, Secret("k" * 32))
TENSORS = [
    torch.arange(6.0).reshape(2, 3),
    torch.tensor([[1.5], [2.5]], dtype=torch.float64),
    torch.ones(2, 2, 2),
]


def message(tensors: list[Tensor], label: Label = LABEL) -> tuple[Tensor, Layout]:
    layout, rows = Layout.of(tensors), len(tensors[0])
    buffer = torch.zeros(layout.size(rows), dtype=torch.uint8)
    for view, tensor in zip(layout.views(buffer, rows), tensors, strict=True):
        view.copy_(tensor)
    label.write(buffer, layout, rows)
    return buffer, layout


shapes = st.lists(
    st.tuples(st.lists(st.integers(1, 4), max_size=2), st.sampled_from([torch.float32, torch.float64, torch.int64])),
    min_size=1, max_size=8,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(shapes=shapes, rows=st.integers(1, 5), seed=st.integers(0, 99))
def test_any_tensors_go_through_and_back(shapes: list[Any], rows: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    tensors = [(1e6 * torch.randn(rows, *shape, generator=random)).to(dtype) for shape, dtype in shapes]
    buffer, layout = message(tensors)
    assert len(buffer) == HEADER + sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    LABEL.check(buffer, layout, rows)
    for view, tensor in zip(layout.views(buffer, rows), tensors, strict=True):
        assert torch.equal(view, tensor)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"run": "00112233aabbccde"}, "run"), ({"round": 8}, "round"), ({"call": 0}, "place in the round"),
        ({"sender": 2}, "sender"), ({"receiver": 1}, "receiver"),
    ],
)  # fmt: skip
def test_another_label_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    buffer, layout = message(TENSORS)
    with pytest.raises(RefusedError, match=f"its {named} is not the one that was due"):
        replace(LABEL, **changes).check(buffer, layout, 2)


def test_other_shapes_and_dtypes_are_refused() -> None:
    buffer, layout = message(TENSORS)
    with pytest.raises(RefusedError, match="its shape is not"):
        LABEL.check(buffer, layout, 1)
    with pytest.raises(RefusedError, match="its shape is not"):
        LABEL.check(buffer, Layout.of(TENSORS[:2]), 2)
    with pytest.raises(RefusedError, match="its dtype is not"):
        LABEL.check(buffer, Layout.of([tensor.float() for tensor in TENSORS]), 2)


@given(place=st.integers(HEADER, HEADER + 71), bit=st.integers(0, 7))
def test_every_changed_bit_of_the_content_shows(place: int, bit: int) -> None:
    buffer, layout = message(TENSORS)
    buffer[place] ^= 1 << bit
    with pytest.raises(RefusedError, match="its seal does not fit its content"):
        LABEL.check(buffer, layout, 2)


def test_what_cannot_be_mixed_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 8 tensors, not 9"):
        Layout.of([torch.zeros(1, 1)] * 9)
    with pytest.raises(ValueError, match="float32, float64 or int64"):
        Layout.of([torch.zeros(1, 1, dtype=torch.int32)])


def test_the_first_row_that_is_not_finite_is_found_and_an_overflow_is_none() -> None:
    rows = torch.zeros(4, 3)
    assert first_not_finite(rows) is None
    assert first_not_finite(torch.full((4, 3), 3e38)) is None  # the sum overflows, no value does
    for bad in (float("nan"), float("inf"), -float("inf")):
        spoiled = rows.clone()
        spoiled[2, 1] = spoiled[3, 0] = bad
        assert first_not_finite(spoiled) == 2


def test_a_message_cannot_be_made_without_the_key() -> None:
    forged, layout = message(TENSORS, replace(LABEL, seal=Secret("x" * 32)))
    with pytest.raises(RefusedError, match="its seal does not fit its content"):
        LABEL.check(forged, layout, 2)
