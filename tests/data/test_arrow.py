"""Tables as Arrow reads them: declared columns, whatever the file's order, and no value in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import TypeAdapter

from gossamer.data import tables as arrow
from gossamer.data.columns import Schema, encoded
from gossamer.data.tables import (
    column_names,
    columns_in,
    columns_of,
    declared_csv,
    in_batches,
    is_frame,
    of_frame,
)
from gossamer.errors import UserError

FORM: TypeAdapter[Any] = TypeAdapter(Schema)
SCHEMA = FORM.validate_python(
    {"age": {"range": [0, 50], "missing": True}, "plan": ["NA", "EU"], "ill": "boolean"}
)
CSV = "ill,age,extra,plan\ntrue,10,x,NA\n0,NA,y,EU\nyes,100,z,US\n"


def test_words_of_declared_columns_are_not_taken_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    table = declared_csv(path, SCHEMA, ["extra"])
    assert sorted(table) == ["age", "extra", "ill", "plan"]
    found = encoded("t.csv", SCHEMA, table)
    np.testing.assert_array_equal(found, np.float32([[0.2, 0, 1, 0, 1], [0, 1, 0, 1, 0], [1, 0, 0, 0, 1]]))


def test_what_is_beside_them_still_has_gaps(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,plan,ill,label\n1,EU,no,a\n2,EU,no,\n3,EU,no,NA\n")
    assert declared_csv(path, SCHEMA, ["label"])["label"].null_count == 2


def test_parts_of_a_parquet_file_make_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 1000
    draw = np.random.default_rng(0)
    table = pa.table(
        {
            "ill": draw.integers(0, 2, rows).astype(bool),
            "plan": pa.array(draw.choice(["NA", "EU", "US"], rows)).dictionary_encode(),
            "age": pa.array(draw.normal(30, 20, rows), mask=draw.random(rows) < 0.1),
        }
    )
    path = tmp_path / "t.parquet"
    parquet.write_table(table, path, row_group_size=300)
    whole = encoded("t", SCHEMA, columns_of(path, table))
    monkeypatch.setattr(arrow, "BATCH", 77)
    np.testing.assert_array_equal(in_batches(path, SCHEMA), whole)
    assert list(columns_in("parquet", path, ["age"])) == ["age"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("age,plan,ill\n1,EU,no\n2,secret,no,7\n", "a line has 4 columns where the first has 3"),
        ("age,plan,ill,ill\n1,EU,no,no\n", "two columns named 'ill'"),
    ],
)
def test_a_line_that_cannot_be_read_is_not_quoted(tmp_path: Path, text: str, wrong: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    for read in (lambda: declared_csv(path, SCHEMA, []), lambda: columns_in("csv", path)):
        with pytest.raises(UserError) as refused:
            read()
        assert wrong in str(refused.value)
        assert "secret" not in str(refused.value)


def test_arrow_s_own_reasons_are_kept_without_what_they_quote(tmp_path: Path) -> None:
    quoted = arrow.unreadable("csv", tmp_path / "t.csv", ValueError("cannot take 'secret' for a number"))
    assert str(quoted) == "t.csv is not readable as csv: cannot take … for a number"
    typed = arrow.unreadable(
        "csv",
        tmp_path / "t.csv",
        ValueError("In CSV column #0: CSV conversion error to double: invalid value 'secret'"),
    )
    assert "another type" in str(typed)
    assert "secret" not in str(typed)
    with pytest.raises(UserError, match="is not readable as parquet"):
        column_names("parquet", _written(tmp_path / "t.parquet", "no"))


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    assert is_frame(frame)
    assert not is_frame(np.zeros(3))
    assert of_frame(frame, "x").column_names == ["a", "b"]
    with pytest.raises(UserError, match="neither all numbers nor all words") as refused:
        of_frame(pandas.DataFrame({"a": [1, "secret"]}), "x")
    assert "secret" not in str(refused.value)
