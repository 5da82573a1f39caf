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
from gossamer.data.tables import CsvTable, FrameTable, ParquetTable, is_frame, reading
from gossamer.errors import UserError

FORM: TypeAdapter[Any] = TypeAdapter(Schema)
SCHEMA = FORM.validate_python(
    {"age": {"range": [0, 50], "missing": True}, "plan": ["NA", "EU"], "ill": "boolean"}
)
CSV = "ill,age,extra,plan\ntrue,10,x,NA\n0,NA,y,EU\nyes,100,z,US\n"


def test_words_of_declared_columns_are_not_taken_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    found, beside = CsvTable(path).encode(SCHEMA, ["extra"])
    assert sorted(beside) == ["age", "extra", "ill", "plan"]
    np.testing.assert_array_equal(found, np.float32([[0.2, 0, 1, 0, 1], [0, 1, 0, 1, 0], [1, 0, 0, 0, 1]]))


def test_what_is_beside_them_still_has_gaps(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,plan,ill,label\n1,EU,no,a\n2,EU,no,\n3,EU,no,NA\n")
    assert CsvTable(path).read([*SCHEMA, "label"], SCHEMA)["label"].null_count == 2


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
    whole = encoded("t", SCHEMA, {name: table.column(name) for name in SCHEMA})
    monkeypatch.setattr(arrow, "BATCH", 77)
    np.testing.assert_array_equal(ParquetTable(path).encode(SCHEMA)[0], whole)
    assert list(ParquetTable(path).read(["age"])) == ["age"]


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
    for read in (lambda: CsvTable(path).encode(SCHEMA), lambda: CsvTable(path).read(CsvTable(path).names)):
        with pytest.raises(UserError) as refused:
            read()
        assert wrong in str(refused.value)
        assert "secret" not in str(refused.value)


def test_arrow_s_own_reasons_are_kept_without_what_they_quote(tmp_path: Path) -> None:
    for reason, shown in (
        ("cannot take 'secret' for a number", "cannot take … for a number"),
        ("In CSV column #0: CSV conversion error to double: invalid value 'secret'", "another type"),
    ):
        with pytest.raises(UserError) as refused, reading("csv", "t.csv"):
            raise ValueError(reason)
        assert shown in str(refused.value)
        assert "secret" not in str(refused.value)
    with pytest.raises(UserError, match="is not readable as parquet"):
        ParquetTable(_written(tmp_path / "t.parquet", "no")).types  # noqa: B018


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    assert is_frame(frame)
    assert not is_frame(np.zeros(3))
    assert FrameTable(frame, "x").names == ["a", "b"]
    with pytest.raises(UserError, match="neither all numbers nor all words") as refused:
        FrameTable(pandas.DataFrame({"a": [1, "secret"]}), "x").types  # noqa: B018
    assert "secret" not in str(refused.value)
