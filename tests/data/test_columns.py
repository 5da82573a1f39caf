"""Declared columns: values as numbers, declarations, and files compared with them; no message shows a value."""

from __future__ import annotations

import datetime
import math
import tomllib
from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, parquet
from pydantic import TypeAdapter, ValidationError
from tests.support.refusals import expect_refusal

from gossamer.data import tables
from gossamer.data.columns import (
    Boolean,
    Categorical,
    Column,
    Date,
    Numeric,
    Schema,
    check_declared_once,
    day,
    encode_into,
    floats,
    is_day,
    is_missing,
    kinds,
    level_text,
    number_names,
    plain,
    skeleton,
    texts,
)
from gossamer.data.tables import CsvTable, open_table


def encoded(where: str, schema: dict[str, Column], table: dict[str, Any]) -> Any:
    rows = len(next(iter(table.values())))
    return encode_into(where, schema, table, np.zeros((rows, len(number_names(schema))), np.float32))


def numbers(column: Column, values: Any) -> tuple[list[list[float]], list[bool]]:
    out = np.zeros((len(values), len(column.numbers("c"))), np.float32)
    missing, _ = column.encode(values, out)
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
        ({"kind": "numeric"}, "data.columns.NAME range mean scale"),
        ({"kind": "numeric", "range": [0, 1], "mean": 1.0, "scale": 1.0}, "range"),
        ({"kind": "numeric", "mean": 1.0}, "range"),
        ({"kind": "numeric", "range": [1, 1]}, "data.columns.NAME.range"),
        ({"kind": "numeric", "range": [0.0, float("inf")]}, "data.columns.NAME.range"),
        ({"kind": "numeric", "range": [0, 1], "clip": 2.0}, "data.columns.NAME clip mean"),
        ({"kind": "numeric", "mean": 0.0, "scale": 0.0}, "data.columns.NAME.scale 0.0"),
        ({"kind": "numeric", "mean": float("nan"), "scale": 1.0}, "data.columns.NAME.mean nan finite"),
        ({"kind": "categorical", "levels": []}, "data.columns.NAME.levels [] 1"),
        ({"kind": "categorical", "levels": [1, "1.0"]}, "data.columns.NAME levels"),
        ({"kind": "date", "range": ["2020-02-30", "2021-01-01"]}, "data.columns.NAME days"),
        ({"kind": "date", "range": ["2021-01-01", "2020-01-01"]}, "data.columns.NAME earlier"),
        ({"kind": "boolean", "levels": [0, 1]}, "data.columns.NAME.levels"),
    ],
)
def test_a_wrong_declaration_is_one_sentence(table: dict[str, Any], wrong: str) -> None:
    with expect_refusal(names=wrong):
        kinds.parse(table)


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
    assert [level_text(one) for one in wanted if one is not None] == [one for one in wanted if one is not None]


def test_declared_levels_have_the_same_form() -> None:
    assert [level_text(one) for one in (1, 1.0, "1.0", True, " a ", 2.5)] == [
        "1",
        "1",
        "1",
        "true",
        "a",
        "2.5",
    ]


def test_words_for_nothing() -> None:
    found = is_missing(pa.array(["", "NA", "NaN", None, "nobody", "0"]))
    assert found.tolist() == [True, True, True, True, False, False]


def test_numbers_out_of_words() -> None:
    found = floats(pa.array(["1.5", "x", None, "inf", " 2 "]))
    assert np.array_equal(found, [1.5, np.nan, np.nan, np.inf, 2.0], equal_nan=True)
    assert np.array_equal(floats(pa.array([1, None], pa.int64())), [1.0, np.nan], equal_nan=True)
    assert np.isnan(floats(pa.nulls(2))).all()


def test_days_values() -> None:
    assert day("1970-01-02") == 1
    assert day(" 2024-02-29 23:59") == (datetime.date(2024, 2, 29) - datetime.date(1970, 1, 1)).days
    assert (is_day("2024-02-29"), is_day("2024-02-29T10"), is_day(3)) == (True, False, False)


FORM: TypeAdapter[Any] = TypeAdapter(Schema)
SCHEMA = FORM.validate_python(
    {
        "age": [0, 100],
        "plan": {"levels": ["a", "b"], "other": True, "missing": True},
        "female": "boolean",
        "since": [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)],
        "income": {"mean": 10, "scale": 5, "missing": True},
        "site": ["north", "south"],
    }
)


def test_short_forms_are_kept_in_full() -> None:
    full = FORM.dump_python(SCHEMA, exclude_none=True)
    assert [table["kind"] for table in full.values()] == [
        "numeric",
        "categorical",
        "boolean",
        "date",
        "numeric",
        "categorical",
    ]
    assert full["since"]["range"] == ["2020-01-01", "2021-01-01"]
    assert FORM.validate_python(full) == SCHEMA
    assert FORM.validate_json(FORM.dump_json(SCHEMA)) == SCHEMA


def test_numbers_come_in_the_order_of_the_declaration() -> None:
    table = {
        "site": pa.array(["south", "elsewhere"]),
        "income": pa.array([20.0, None]),
        "since": pa.array(["2020-07-02", "2021-01-01"]),
        "female": pa.array([True, False]),
        "unused": pa.array([1, 2]),
        "plan": pa.array(["c", None]),
        "age": pa.array([50, 200]),
    }
    names = number_names(SCHEMA)
    assert names == [
        *("age", "plan=a", "plan=b", "plan other", "plan missing", "female"),
        *("since", "income", "income missing", "site=north", "site=south"),
    ]
    found = encoded("t", SCHEMA, table)
    first = [0.5, 0, 0, 1, 0, 1, 0.5, 2, 0, 0, 1]
    np.testing.assert_array_equal(found, np.float32([first, [1, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0]]))
    parts = np.zeros_like(found)
    for i in range(2):
        encode_into("t", SCHEMA, {name: column[i : i + 1] for name, column in table.items()}, parts[i : i + 1])
    np.testing.assert_array_equal(parts, found)


@pytest.mark.parametrize(
    ("name", "values", "names"),
    [
        ("age", pa.array([31337, None]), "data.columns.age.missing = true"),
        ("age", pa.array(["secret", "1"]), "numeric data.columns.age.missing"),
        (
            "age",
            pa.array([datetime.date(1931, 3, 7)] * 2),
            "date32[day] data.columns.age numeric",
        ),
        ("female", pa.array(["secret", "no"]), "boolean"),
        ("since", pa.array(["secret", "2020-01-01"]), "date"),
        ("site", pa.array([None, "secret"]), "data.columns.site.missing"),
    ],
)
def test_no_value_of_a_record_is_named(name: str, values: pa.Array, names: str) -> None:
    good = {
        "age": pa.array([1, 2]),
        "plan": pa.array(["a", "a"]),
        "female": pa.array([True, True]),
        "since": pa.array(["2020-01-01"] * 2),
        "income": pa.array([1, 2]),
        "site": pa.array(["north"] * 2),
    }
    with expect_refusal("t.csv", names=["column", repr(name), *names.split()], remedy=True) as refused:
        encoded("t.csv", SCHEMA, {**good, name: values})
    said = str(refused.value)
    assert not any(word in said for word in ("secret", "31337", "1931"))


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,x\n1,2\n")
    with expect_refusal(key="t.csv", names="female"):
        CsvTable(tmp_path / "t.csv").encode(SCHEMA)


@pytest.mark.parametrize(
    ("tables", "wrong"),
    [
        ({}, "declares no column"),
        ({"x": {"levels": list(range(10**6))}}, "makes 1000000 numbers of a record, and at most 20000"),
        ({"x": 3}, "x"),
        ({"x": "number"}, "x"),
        ({"x": [0, 1, 2]}, "x"),
    ],
)
def test_a_bad_schema_is_refused(tables: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValidationError) as refused:
        FORM.validate_python(tables)
    assert wrong in str(refused.value)


@pytest.mark.parametrize(
    ("beside", "wrong"),
    [
        ({"ranges": {"age": [0, 1]}}, "data.ranges part"),
        ({"features": ["age"]}, "data.features part"),
        ({"label": "plan"}, "data.columns.plan data.label"),
        ({"person": "age"}, "data.columns.age data.person"),
    ],
)
def test_a_column_is_declared_once(beside: dict[str, Any], wrong: str) -> None:
    rest = {"ranges": None, "features": None, "label": "y", "owner": None, "person": None}
    with expect_refusal(names=wrong):
        check_declared_once(SimpleNamespace(schema=SCHEMA, **{**rest, **beside}))
    check_declared_once(SimpleNamespace(schema=None, **{**rest, **beside}))


FORM_CHECK: TypeAdapter[Any] = TypeAdapter(Schema)
SECRETS = ("31337", "xyzzy", "1931")
TABLE = pa.table(
    {
        "age": [10, 31337, 20],
        "gap": [1.0, None, 2.0],
        "plan": ["a", "xyzzy", "b"],
        "since": ["2020-01-01", "1931-05-05", "2020-06-01"],
        "ok": [True, False, True],
    }
)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(tables, "BATCH", 2)  # what the last part holds counts as well
    path = tmp_path / f"t.{kind}"
    csv.write_csv(TABLE, path) if kind == "csv" else parquet.write_table(TABLE, path)
    schema = FORM_CHECK.validate_python(
        {
            "age": [0, 100],
            "gap": [0, 5],
            "plan": {"levels": ["a", "b"], "other": True},
            "since": ["2020-01-01", "2021-01-01"],
            "ok": "boolean",
            "height": [0, 3],
        }
    )
    found = open_table(kind, path).findings(schema)
    assert [astuple(finding) for finding in found] == [
        ("height", "numeric", "is not in the file", True),
        ("age", "numeric", "values outside the range count as the nearer end", False),
        ("gap", "numeric", "has gaps, or values that are not numeric: set missing = true", True),
        ("plan", "categorical", "values that are no level count as other", False),
        ("since", "date", "values outside the range count as the nearer end", False),
        ("ok", "boolean", "fits", False),
    ]
    assert not any(secret in str(found) for secret in SECRETS)


def test_a_column_of_another_kind(tmp_path: Path) -> None:
    parquet.write_table(TABLE, tmp_path / "t.parquet")
    csv.write_csv(TABLE, tmp_path / "t.csv")
    wrong = FORM_CHECK.validate_python({"plan": {"range": [0, 1], "missing": True}, "ok": ["2020-01-01", "2021-01-01"]})
    found = open_table("parquet", tmp_path / "t.parquet").findings(wrong)
    assert [(finding.remark, finding.must) for finding in found] == [
        ("has no value that is numeric", False),
        ("holds values of type bool, which cannot be date", True),
    ]
    assert not any(secret in str(found) for secret in SECRETS)
    assert open_table("csv", tmp_path / "t.csv").kinds == {
        "age": "numeric",
        "gap": "numeric",
        "plan": "categorical",
        "since": "date",
        "ok": "boolean",
    }


def test_a_skeleton_is_toml_of_names_alone() -> None:
    names = {
        "age": "numeric",
        'odd "name"\n': "categorical",
        "a.b": "boolean",
        "back\\slash": "date",
        "y": "numeric",
    }
    lines = skeleton(names, ["y", None])
    read = tomllib.loads("\n".join(lines))["data"]["columns"]
    assert list(read) == ["age", 'odd "name"\n', "a.b", "back\\slash"]
    assert read["age"] == {"range": []}
    assert max(map(len, lines)) <= 80
