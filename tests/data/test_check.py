"""A file beside its declaration: every mistake is found, and no value of a record is in what is said."""

from __future__ import annotations

import tomllib
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from pydantic import TypeAdapter

from gossamer.data import tables
from gossamer.data.columns import Schema, skeleton
from gossamer.data.tables import open_table

FORM: TypeAdapter[Any] = TypeAdapter(Schema)
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
    schema = FORM.validate_python(
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
    wrong = FORM.validate_python(
        {"plan": {"range": [0, 1], "missing": True}, "ok": ["2020-01-01", "2021-01-01"]}
    )
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
