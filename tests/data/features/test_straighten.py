"""`straighten`: known slants and shifts are undone, by each image's own moments alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.support.features import apply, images, made, table
from tests.support.refusals import expect_refusal

from gossamer.data.features.steps import Straighten, named_steps, set_up

SIDE = 28


def strokes(slant: float, row: float = 0.0, column: float = 0.0, channels: int = 1) -> torch.Tensor:
    """An ellipse of ink, smooth, that leans by `slant` columns per row about a centre off the middle."""
    down = torch.arange(SIDE) - (SIDE - 1) / 2 - row
    across = torch.arange(SIDE) - (SIDE - 1) / 2 - column
    lean = across[None, :] - slant * down[:, None]
    ink = torch.exp(-((down[:, None] / 5) ** 2) - (lean / 2) ** 2)
    return ink.expand(1, channels, SIDE, SIDE)


@pytest.mark.parametrize("slant", [-0.7, 0.0, 0.4])
@pytest.mark.parametrize(("row", "column"), [(0.0, 0.0), (2.0, -1.5)])
def test_a_known_slant_and_shift_are_undone(slant: float, row: float, column: float) -> None:
    """All of them become the upright ellipse in the middle; a step that did nothing would be far from it."""
    upright = strokes(0.0)
    found = Straighten().build((1, SIDE, SIDE)).apply(strokes(slant, row, column))
    assert float((found - upright).abs().max()) < 0.05  # of bilinear values between pixels
    if slant or row:
        assert float((strokes(slant, row, column) - upright).abs().max()) > 0.3


def test_a_slant_beyond_the_steepest_is_taken_back_by_that_much() -> None:
    flat = torch.zeros(1, 1, SIDE, SIDE)
    flat[0, 0, 13, 4:14] = flat[0, 0, 14, 14:24] = 1  # two rows, ten columns apart
    found = Straighten().build((1, SIDE, SIDE)).apply(flat)[0, 0]
    centres = [float((line * torch.arange(SIDE)).sum() / line.sum()) for line in (found[13], found[14])]
    assert centres[1] - centres[0] == pytest.approx(9, abs=1e-3)  # one column for the one row between them


def test_no_ink_and_one_row_of_it_come_back() -> None:
    step = Straighten().build((1, SIDE, SIDE)).apply
    nothing = torch.zeros(1, 1, SIDE, SIDE)
    assert torch.equal(step(nothing), nothing)
    line = nothing.clone()
    line[0, 0, 3, 10:18] = 1
    found = step(line)
    assert found.isfinite().all()
    assert float(found.sum()) == pytest.approx(8, abs=1e-4)
    assert float(found[0, 0, 13:15].sum()) == pytest.approx(8, abs=1e-4)  # between the two rows in the middle


def test_channels_move_together_and_records_alone() -> None:
    step = Straighten().build((3, SIDE, SIDE)).apply
    block = torch.cat([strokes(s, 1.0, 2.0, 3) for s in (-0.5, 0.1, 0.6)])
    found = step(block)
    for k, image in enumerate(block):
        torch.testing.assert_close(found[k], step(image[None])[0])
    torch.testing.assert_close(found[:, 0], found[:, 2])
    wild = block.clone()
    wild[1] = float("nan")
    torch.testing.assert_close(step(wild)[[0, 2]], found[[0, 2]])


def test_as_a_step_of_a_transform() -> None:
    data = made(images(8, 1))
    found = apply(data, "straighten").x_train
    assert found.shape == data.x_train.shape
    assert not np.allclose(found, data.x_train)
    with expect_refusal(key="data.transform", names="straighten"):
        apply(made(table()), "straighten")
    with expect_refusal(key="data.transform.limit", names="key"):
        set_up(named_steps([{"kind": "straighten", "limit": 2}]), (1, 8, 8))
