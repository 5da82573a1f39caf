"""Each kind of column against what it says, written out by hand."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.data.columns import Boolean, Categorical, Column, Date, Numeric, kinds
from gossamer.errors import UserError


def numbers(column: Column, values: Any) -> tuple[list[list[float]], list[bool]]:
    out = np.zeros((len(values), len(column.numbers("c"))), np.float32)
    missing = column.encode(values, out)
    return out.tolist(), missing.tolist()


def test_a_range_becomes_0_to_1_and_is_clipped() -> None:
    found, missing = numbers(Numeric(range=[-10.0, 30.0]), pa.array([-10, 0, 30, 500, -500, None]))
    assert found == [[0], [0.25], [1], [1], [0], [0]]
    assert missing == [False] * 5 + [True]


def test_infinite_is_the_nearer_end_and_nan_is_missing() -> None:
    found, missing = numbers(Numeric(range=[0.0, 2.0]), pa.array([np.inf, -np.inf, np.nan]))
    assert (found, missing) == ([[1], [0], [0]], [False, False, True])


def test_a_mean_and_a_scale() -> None:
    column = Numeric(mean=10.0, scale=2.0, clip=3.0)
    assert numbers(column, pa.array([10.0, 12.0, 9.0, 1e308, -1e308]))[0] == [[0], [1], [-0.5], [3], [-3]]
    assert numbers(Numeric(mean=0.0, scale=1e-300), pa.array([1e300]))[0] == [[5]]


@given(st.lists(st.floats(width=64) | st.none(), min_size=1, max_size=20))
def test_whatever_a_number_is_it_is_inside(values: list[float | None]) -> None:
    """Of every double: in [0, 1], and missing only where there is none."""
    found, missing = numbers(Numeric(range=[-1.0, 3.0]), pa.array(values, pa.float64()))
    assert all(0 <= row[0] <= 1 for row in found)
    assert missing == [value is None or np.isnan(value) for value in values]


def test_levels_and_others() -> None:
    values = pa.array(["a", "b", "new", None, "NA", "A"])
    zeros, missing = numbers(Categorical(levels=["a", "b"]), values)
    assert zeros == [[1, 0], [0, 1], [0, 0], [0, 0], [0, 0], [0, 0]]
    assert missing == [False, False, False, True, True, False]
    others, _ = numbers(Categorical(levels=["a", "b"], other=True), values)
    assert [row[2] for row in others] == [0, 0, 1, 0, 0, 1]


def test_a_level_may_be_called_na() -> None:
    found, missing = numbers(Categorical(levels=["NA", "EU"]), pa.array(["NA", "EU", ""]))
    assert (found, missing) == ([[1, 0], [0, 1], [0, 0]], [False, False, True])


@pytest.mark.parametrize("values", [pa.array([1, 2]), pa.array([1.0, 2.0]), pa.array(["1", "2.0"])])
def test_levels_that_are_numbers(values: pa.Array) -> None:
    assert numbers(Categorical(levels=[2, 1]), values)[0] == [[0, 1], [1, 0]]


def test_truth_values() -> None:
    values = pa.array(["True", "no", "1", "0", "maybe", None])
    found, missing = numbers(Boolean(), values)
    assert [row[0] for row in found] == [1, 0, 1, 0, 0, 0]
    assert missing == [False] * 4 + [True] * 2
    assert numbers(Boolean(), pa.array([1.0, 0.0, 2.0]))[1] == [False, False, True]
    assert numbers(Boolean(), pa.array([True, False]))[0] == [[1], [0]]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["2020-01-01", "2020-01-06 12:00:00", "2030-01-01", "1990-01-01", "soon"]),
        pa.array(
            [
                datetime.datetime(2020, 1, 1),
                datetime.datetime(2020, 1, 6, 12),
                datetime.datetime(2030, 1, 1),
                datetime.datetime(1990, 1, 1),
                None,
            ]
        ),
        pa.array(
            [
                datetime.date(2020, 1, 1),
                datetime.date(2020, 1, 6),
                datetime.date(2030, 1, 1),
                datetime.date(1990, 1, 1),
                None,
            ]
        ),
    ],
)
def test_days(values: pa.Array) -> None:
    found, missing = numbers(Date(range=["2020-01-01", "2020-01-11"]), values)
    assert found == [[0], [0.5], [1], [0], [0]]
    assert missing == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [
        (Numeric(range=[0.0, 1.0]), [pa.int8(), pa.bool_(), pa.decimal128(5), pa.string()], [pa.date32()]),
        (Categorical(levels=["a"]), [pa.string(), pa.int64(), pa.date32()], [pa.list_(pa.int8())]),
        (Boolean(), [pa.bool_(), pa.large_string()], [pa.timestamp("s")]),
        (Date(range=["2020-01-01", "2021-01-01"]), [pa.timestamp("ns", "UTC"), pa.string()], [pa.float64()]),
    ],
)
def test_types_that_fit(column: Column, good: list[Any], bad: list[Any]) -> None:
    assert all(map(column.fits, good))
    assert not any(map(column.fits, bad))


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        ({"kind": "numeric"}, "either range = [lo, hi] or mean and scale"),
        ({"kind": "numeric", "range": [0, 1], "mean": 1.0, "scale": 1.0}, "either range"),
        ({"kind": "numeric", "mean": 1.0}, "either range"),
        ({"kind": "numeric", "range": [1, 1]}, "lo < hi"),
        ({"kind": "numeric", "range": [0.0, float("inf")]}, "lo < hi"),
        ({"kind": "numeric", "range": [0, 1], "clip": 2.0}, "clip goes with mean"),
        ({"kind": "numeric", "mean": 0.0, "scale": 0.0}, "greater than 0"),
        ({"kind": "numeric", "mean": float("nan"), "scale": 1.0}, "finite"),
        ({"kind": "categorical", "levels": []}, "at least 1 entry"),
        ({"kind": "categorical", "levels": [1, "1.0"]}, "levels must differ"),
        ({"kind": "date", "range": ["2020-02-30", "2021-01-01"]}, "two days"),
        ({"kind": "date", "range": ["2021-01-01", "2020-01-01"]}, "the earlier first"),
        ({"kind": "boolean", "levels": [0, 1]}, "levels is not a key"),
    ],
)
def test_a_wrong_declaration_is_one_sentence(table: dict[str, Any], wrong: str) -> None:
    with pytest.raises(UserError) as refused:
        kinds.parse(table)
    assert wrong in str(refused.value)
