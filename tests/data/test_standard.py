"""Columns by released numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.support.refusals import expect_refusal

from gossamer.data.dataset import FAR, Standard

STANDARD = Standard(places=(0, 2), low=0.0, high=10.0, middle=(5.0, 1.0), spread=(2.0, 0.1))


def test_columns_are_divided_cut_off_and_the_others_stay() -> None:
    x = np.array([[5.0, 77.0, 1.0], [12.0, -3.0, 0.9], [-4.0, 0.0, 9.0]], np.float32)
    found = STANDARD.applied(x)
    assert found.dtype == np.float32
    assert found == pytest.approx(np.array([[0, 77, 0], [2.5, -3, -1], [-2.5, 0, FAR]]), abs=1e-5)
    assert x[1, 0] == 12.0  # what was handed over is left alone


def test_images_keep_their_shape_and_a_record_is_changed_by_itself() -> None:
    x = np.random.default_rng(0).uniform(0, 10, (6, 1, 3, 1)).astype(np.float32)
    found = STANDARD.applied(x)
    assert found.shape == x.shape
    for i in range(len(x)):
        assert np.array_equal(STANDARD.applied(x[i : i + 1])[0], found[i])
    assert STANDARD.applied(x[:0]).shape == (0, 1, 3, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"middle": (1.0,)},
        {"spread": (1.0, 0.0)},
        {"spread": (1.0, math.nan)},
        {"low": 10.0},
        {"places": (-1, 0)},
    ],
)
def test_numbers_that_do_not_go_together_are_refused(wrong: dict[str, object]) -> None:
    with expect_refusal(key="standard", names="middle spread"):
        Standard(**{**vars(STANDARD), **wrong})  # type: ignore[arg-type]


def test_records_that_are_too_short_are_refused() -> None:
    with expect_refusal(key="standard", names="2"):
        STANDARD.applied(np.zeros((4, 2), np.float32))
