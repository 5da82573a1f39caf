"""Tables and arrays of the user's own become records, or a sentence says which do not, without a value in it."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import TypeAdapter
from tests.support.refusals import expect_refusal

from gossamer.data import tables as arrow
from gossamer.data.arrays import MOST_COLUMNS
from gossamer.data.columns import Schema, encode_into
from gossamer.data.load import load
from gossamer.data.tables import (
    CsvTable,
    FrameTable,
    ParquetTable,
    Roles,
    class_numbers,
    existing,
    is_frame,
    known_labels,
    load_npz,
    reading,
    targets_of,
    yes_or_no,
)
from gossamer.errors import UserError

FORM: TypeAdapter[Any] = TypeAdapter(Schema)
SCHEMA = FORM.validate_python({"age": {"range": [0, 50], "missing": True}, "plan": ["NA", "EU"], "ill": "boolean"})
CSV = "ill,age,extra,plan\ntrue,10,x,NA\n0,NA,y,EU\nyes,100,z,US\n"


def test_words_of_declared_columns_are_not_taken_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(CSV)
    found, beside = CsvTable(path).encode(SCHEMA, ["extra"])
    assert beside.column_names == ["extra"]
    np.testing.assert_array_equal(found, np.float32([[0.2, 0, 1, 0, 1], [0, 1, 0, 1, 0], [1, 0, 0, 0, 1]]))


def test_what_is_beside_them_still_has_gaps(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age,plan,ill,label\n1,EU,no,a\n2,EU,no,\n3,EU,no,NA\n")
    assert next(CsvTable(path).batches([*SCHEMA, "label"], SCHEMA))["label"].null_count == 2


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
    whole = encode_into("t", SCHEMA, table, np.zeros((rows, 5), np.float32))
    monkeypatch.setattr(arrow, "BATCH", 77)
    np.testing.assert_array_equal(ParquetTable(path).encode(SCHEMA)[0], whole)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("age,plan,ill\n1,EU,no\n2,secret,no,7\n", "t.csv 4 3"),
        ("age,plan,ill,ill\n1,EU,no,no\n", "t.csv ill"),
    ],
)
def test_a_line_that_cannot_be_read_is_not_quoted(tmp_path: Path, text: str, wrong: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    for read in (
        lambda: CsvTable(path).encode(SCHEMA),
        lambda: next(CsvTable(path).batches(CsvTable(path).names)),
    ):
        with expect_refusal(names=wrong) as refused:
            read()
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
    with expect_refusal(key="t.parquet", names="readable"):
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
    with expect_refusal(key="x", names="words") as refused:
        FrameTable(pandas.DataFrame({"a": [1, "secret"]}), "x").types  # noqa: B018
    assert "secret" not in str(refused.value)


CSV_FILES = """age,weight,smoker,hospital,outcome
30,70.5,true,north,ill
41,80,false,south,well
52,64.25,true,north,well
60,90,false,east,ill
"""


@pytest.fixture
def csv(tmp_path):
    def write(text=CSV_FILES, name="own.csv"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_parquet_numbers_of_every_kind(tmp_path):
    from decimal import Decimal

    table = pa.table(
        {
            "small": pa.array([1, 2], pa.int8()),
            "half": pa.array(np.array([0.5, 1.5], np.float16)),
            "exact": pa.array([Decimal("1.25"), Decimal("2.50")]),
            "y": pa.array([0.5, 1.0]),
        }
    )
    parquet.write_table(table, tmp_path / "own.parquet")
    data = load("parquet", path=str(tmp_path / "own.parquet"), label="y")
    assert data.x_train.tolist() == [[1, 0.5, 1.25], [2, 1.5, 2.5]]
    assert data.classes is None
    assert data.y_train.dtype == np.float32


def test_fractions_may_follow_two_megabytes_of_whole_numbers(csv):
    text = "x,y\n" + "1,0\n" * 600_000 + "1.5,1\n"
    data = load("csv", path=csv(text), label="y")
    assert data.x_train[-1, 0] == 1.5


@pytest.mark.parametrize("shape", [(4, 5, 5), (4, 1, 5, 5), (4, 5, 5, 1), (4, 3, 5, 5), (4, 5, 5, 3)])
def test_npz_images(tmp_path, shape):
    x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    np.savez(tmp_path / "own.npz", x=x, y=np.array([0, 1, 0, 1]))
    data = load("npz", path=str(tmp_path / "own.npz"))
    assert data.x_train.shape == (4, 3 if 3 in shape else 1, 5, 5)
    assert data.x_train.flags.c_contiguous
    pixel = x[2, 1, 4] if x.ndim == 3 else x[2, 0, 1, 4] if shape[1] in (1, 3) else x[2, 1, 4, 0]
    assert data.x_train[2, 0, 1, 4] == np.float32(pixel) / np.float32(255)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.zeros((2, 2))}, "x_train x"),
        (
            {"x": np.zeros((2, 2)), "y": np.zeros(3, int)},
            "y_train 3 2",
        ),
        ({"x": np.zeros(2), "y": np.zeros(2, int)}, "x 2"),
        ({"x": np.array([["a"]]), "y": np.zeros(1, int)}, "numbers"),
        (
            {"x": np.array([[1, np.nan], [2, 3]]), "y": np.array([0, 1])},
            "1",
        ),
        (
            {"x": np.zeros((2, 2)), "y": np.array([0.5, np.nan])},
            "y_train",
        ),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0, int)}, "rows"),
        ({"x": np.zeros((2, 2)), "y": np.array([{}, {}])}, "npz"),
    ],
)
def test_npz_mistakes(tmp_path, arrays, message):
    np.savez(tmp_path / "own.npz", **arrays)
    with expect_refusal(key="own.npz", names=message):
        load("npz", path=str(tmp_path / "own.npz"))


def test_many_columns_are_refused_before_they_are_read(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{i}" for i in range(MOST_COLUMNS)) + ",y\n" + "1," * MOST_COLUMNS + "1\n")
    with expect_refusal(key="wide.csv", names="20001 20000"):
        CsvTable(path).records(Roles(label="y"))


def test_columns_that_hold_lists_are_refused_by_name(tmp_path):
    path = tmp_path / "own.parquet"
    parquet.write_table(pa.table({"a": [1.0, 2.0], "y": [[1, 2], [3]]}), path)
    with expect_refusal(key="own.parquet", names="y"):
        ParquetTable(path).records(Roles(label="y"))


def test_an_npz_that_promises_more_than_it_holds_allocates_nothing(tmp_path):
    path = tmp_path / "own.npz"
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (400000000, 100), }".ljust(117) + "\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.encode())
    with expect_refusal(key="own.npz", names="x.npy 400000000 100"):
        load_npz(path)
    np.savez(path, x=np.zeros((3, 0)), y=np.zeros(3))
    with expect_refusal(key="own.npz", names="record"):
        load("npz", path=str(path))


def test_names_that_are_no_utf8_and_pipes_are_one_sentence(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("größe,y\n1,0\n".encode("latin-1"))
    with expect_refusal(key="latin.csv"):
        CsvTable(path).records(Roles(label="y"))
    os.mkfifo(tmp_path / "pipe")
    with expect_refusal(key="data.path", names="file"):
        existing("data.path", str(tmp_path / "pipe"), None)


def test_classes_are_their_places_in_what_is_declared():
    known = known_labels(np.array(["b", "a"]), ["b", "c", "a"])
    assert class_numbers(np.array(["a", "b", "c"]), known, "y", "here").tolist() == [2, 0, 1]
    assert class_numbers(np.array([1.0, 0.0]), known_labels(np.array([1.0]), 3), "y", "here").tolist() == [
        1,
        0,
    ]


@pytest.mark.parametrize("values", [[0, 1], [True, False], [0.0, 1.0]])
def test_yes_and_no_are_one_and_nought(values):
    found = yes_or_no(np.array([values, values]), "y")
    assert found.dtype == np.float32
    assert found.tolist() == [[float(v) for v in values]] * 2


@pytest.mark.parametrize(
    "refused",
    [
        lambda: yes_or_no(np.array([[0, 4242]]), "data.label"),
        lambda: yes_or_no(np.array([["yes", "4242"]]), "data.label"),
        lambda: targets_of(np.array(["4242"])),
        lambda: class_numbers(np.array([4242]), np.array([0, 1]), "data.label", "the declared data.classes"),
    ],
)
def test_no_sentence_shows_a_value(refused):
    with pytest.raises(UserError) as caught:
        refused()
    assert "4242" not in str(caught.value)
