"""One value at a time, as words, numbers and days."""

from __future__ import annotations

import datetime
import math

import numpy as np
import pyarrow as pa
import pytest

from gossamer.data.columns import day, floats, is_day, is_nothing, level, one_by_one, plain, texts


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([" a", "b ", None]), ["a", "b", None]),
        (pa.array([1, 2, None]), ["1", "2", None]),
        (pa.array([1.0, 2.5, math.nan]), ["1", "2.5", None]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array(["1.0", "-3.", "1.5", "01", "1.0.0"]), ["1", "-3", "1.5", "01", "1.0.0"]),
        (plain(pa.array(["x", "y", "x"]).dictionary_encode()), ["x", "y", "x"]),
        (plain(pa.chunked_array([["p"], ["q"]])), ["p", "q"]),
        (plain(pa.chunked_array([], pa.string())), []),
    ],
)
def test_a_level_is_found_however_a_program_wrote_it(values: pa.Array, wanted: list[str | None]) -> None:
    assert texts(values).to_pylist() == wanted
    assert [level(one) for one in wanted if one is not None] == [one for one in wanted if one is not None]


def test_declared_levels_have_the_same_form() -> None:
    assert [level(one) for one in (1, 1.0, "1.0", True, " a ", 2.5)] == ["1", "1", "1", "true", "a", "2.5"]


def test_words_for_nothing() -> None:
    found = is_nothing(pa.array(["", "NA", "NaN", None, "nobody", "0"]))
    assert found.tolist() == [True, True, True, True, False, False]


def test_numbers_out_of_words() -> None:
    found = floats(pa.array(["1.5", "x", None, "inf", " 2 "]))
    assert np.array_equal(found, [1.5, np.nan, np.nan, np.inf, 2.0], equal_nan=True)
    assert np.array_equal(floats(pa.array([1, None], pa.int64())), [1.0, np.nan], equal_nan=True)
    assert np.isnan(one_by_one(pa.nulls(2), float)).all()


def test_days() -> None:
    assert day("1970-01-02") == 1
    assert day(" 2024-02-29 23:59") == (datetime.date(2024, 2, 29) - datetime.date(1970, 1, 1)).days
    assert math.isnan(day("2023-02-29"))
    assert (is_day("2024-02-29"), is_day("2024-02-29T10"), is_day(3)) == (True, False, False)
