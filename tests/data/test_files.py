"""Columns and arrays of a file become numbers, or a sentence says which does not."""

import os
import re
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from gossamer.data.arrays import MOST_COLUMNS
from gossamer.data.load import load
from gossamer.data.tables import CsvTable, ParquetTable, Roles, existing, load_npz
from gossamer.errors import UserError

CSV = """age,weight,smoker,hospital,outcome
30,70.5,true,north,ill
41,80,false,south,well
52,64.25,true,north,well
60,90,false,east,ill
"""


@pytest.fixture
def csv(tmp_path):
    def write(text=CSV, name="own.csv"):
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
        ({"a": np.zeros((2, 2))}, "own.npz has no array x_train or x: it has a"),
        (
            {"x": np.zeros((2, 2)), "y": np.zeros(3, int)},
            "y_train has shape (3,) where one value per row needs (2,)",
        ),
        ({"x": np.zeros(2), "y": np.zeros(2, int)}, "x has shape (2,)"),
        ({"x": np.array([["a"]]), "y": np.zeros(1, int)}, "give numbers"),
        (
            {"x": np.array([[1, np.nan], [2, 3]]), "y": np.array([0, 1])},
            "column '1' has rows that are NaN or infinite",
        ),
        (
            {"x": np.zeros((2, 2)), "y": np.array([0.5, np.nan])},
            "column 'y_train' has rows that are NaN or infinite",
        ),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0, int)}, "own.npz has no rows"),
        ({"x": np.zeros((2, 2)), "y": np.array([{}, {}])}, "own.npz is not readable as npz"),
    ],
)
def test_npz_mistakes(tmp_path, arrays, message):
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(UserError, match=re.escape(message)):
        load("npz", path=str(tmp_path / "own.npz"))


def test_many_columns_are_refused_before_they_are_read(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{i}" for i in range(MOST_COLUMNS)) + ",y\n" + "1," * MOST_COLUMNS + "1\n")
    with pytest.raises(UserError, match=r"wide\.csv has 20001 columns, and at most 20000 are read"):
        CsvTable(path).records(Roles(label="y"))


def test_columns_that_hold_lists_are_refused_by_name(tmp_path):
    path = tmp_path / "own.parquet"
    parquet.write_table(pa.table({"a": [1.0, 2.0], "y": [[1, 2], [3]]}), path)
    with pytest.raises(UserError, match=r"own\.parquet: column 'y' holds values of type list"):
        ParquetTable(path).records(Roles(label="y"))


def test_an_npz_that_promises_more_than_it_holds_allocates_nothing(tmp_path):
    path = tmp_path / "own.npz"
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (400000000, 100), }".ljust(117) + "\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.encode())
    with pytest.raises(
        UserError, match=r"own\.npz is not readable as npz: x\.npy promises \(400000000, 100\)"
    ):
        load_npz(path)
    np.savez(path, x=np.zeros((3, 0)), y=np.zeros(3))
    with pytest.raises(UserError, match="give at least one number per record"):
        load("npz", path=str(path))


def test_names_that_are_no_utf8_and_pipes_are_one_sentence(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("größe,y\n1,0\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"latin\.csv"):
        CsvTable(path).records(Roles(label="y"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is no file"):
        existing("data.path", str(tmp_path / "pipe"), None)
