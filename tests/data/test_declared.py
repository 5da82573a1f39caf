"""All columns together: short forms, order, and what is refused without a word about a record."""

from __future__ import annotations

import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import TypeAdapter, ValidationError

from gossamer.data.columns import (
    Schema,
    check_declared_once,
    encode_into,
    encoded,
    number_names,
)
from gossamer.data.tables import CsvTable
from gossamer.errors import UserError

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
        encode_into(
            "t", SCHEMA, {name: column[i : i + 1] for name, column in table.items()}, parts[i : i + 1]
        )
    np.testing.assert_array_equal(parts, found)


@pytest.mark.parametrize(
    ("name", "values", "wrong"),
    [
        ("age", pa.array([31337, None]), "data.columns.age.missing = true"),
        ("age", pa.array(["secret", "1"]), "without a value, or with one that is not numeric"),
        (
            "age",
            pa.array([datetime.date(1931, 3, 7)] * 2),
            "of type date32[day], and data.columns.age is numeric",
        ),
        ("female", pa.array(["secret", "no"]), "not boolean"),
        ("since", pa.array(["secret", "2020-01-01"]), "not date"),
        ("site", pa.array([None, "secret"]), "data.columns.site.missing"),
    ],
)
def test_no_value_of_a_record_is_named(name: str, values: pa.Array, wrong: str) -> None:
    good = {
        "age": pa.array([1, 2]),
        "plan": pa.array(["a", "a"]),
        "female": pa.array([True, True]),
        "since": pa.array(["2020-01-01"] * 2),
        "income": pa.array([1, 2]),
        "site": pa.array(["north"] * 2),
    }
    with pytest.raises(UserError) as refused:
        encoded("t.csv", SCHEMA, {**good, name: values})
    said = str(refused.value)
    assert wrong in said
    assert not any(word in said for word in ("secret", "31337", "1931"))


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,x\n1,2\n")
    with pytest.raises(UserError, match=r"t\.csv has no column plan, female, since, income, site"):
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
        ({"ranges": {"age": [0, 1]}}, "data.ranges is part of"),
        ({"features": ["age"]}, "data.features is what"),
        ({"label": "plan"}, "data.columns.plan is data.label"),
        ({"person": "age"}, "data.columns.age is data.person"),
    ],
)
def test_a_column_is_declared_once(beside: dict[str, Any], wrong: str) -> None:
    rest = {"ranges": None, "features": None, "label": "y", "owner": None, "person": None}
    with pytest.raises(UserError, match=wrong):
        check_declared_once(SimpleNamespace(schema=SCHEMA, **{**rest, **beside}))
    check_declared_once(SimpleNamespace(schema=None, **{**rest, **beside}))
