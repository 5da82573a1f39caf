"""Tables and arrays in files and frames: features, raw labels and raw owners."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.data import decode
from gossamer.data.arrays import MOST_COLUMNS, Array, Floats, listed, room_for, zeros
from gossamer.data.columns import NOTHING, Column, Numeric, encode_into, encoded, number_names, refuse_absent
from gossamer.data.partition import Numbers, numbers_of
from gossamer.errors import UserError

# What Arrow raises on files that are not what they say: its own exceptions are ValueErrors, KeyErrors and so on.
ARROW = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    NotImplementedError,
    IndexError,
    MemoryError,
    OverflowError,
)


def column_names(file_kind: str, path: Path) -> list[str]:
    """All names, in the order of the file, without reading its records."""
    return [name for name, _ in _named_types(file_kind, path)]


def first_types(file_kind: str, path: Path) -> dict[str, Any]:
    """Column → Arrow's type; of a CSV file as far as its first lines tell."""
    found = _named_types(file_kind, path)
    refuse_twice(path, [name for name, _ in found])
    return dict(found)


def _named_types(file_kind: str, path: Path) -> list[tuple[str, Any]]:
    try:
        if file_kind == "csv":
            from pyarrow import csv

            with csv.open_csv(path) as reader:
                return [(field.name, field.type) for field in reader.schema]
        from pyarrow import parquet

        with path.open("rb") as file:
            return [(field.name, field.type) for field in parquet.read_schema(file)]
    except ARROW as error:
        raise unreadable(file_kind, path, error) from None  # its words may quote a record


def unreadable(file_kind: str, path: Path, error: Exception) -> UserError:
    if isinstance(error, UserError):
        return error
    return UserError(f"{path.name} is not readable as {file_kind}: {_without_values(error)}")


def _without_values(error: Exception) -> str:
    """Arrow's reasons quote the line or the value that they stumbled over, and it may be anybody's."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    counted = re.search(r"Expected (\d+) columns, got (\d+)", reason)
    if counted:
        return f"a line has {counted[2]} columns where the first has {counted[1]}"
    if "conversion error" in reason:
        return "a value is of another type than those before it in its column"
    return re.sub(r"'[^']*'|\"[^\"]*\"", "…", reason)[:160]


def declared_csv(path: Path, schema: Mapping[str, Column], beside: Sequence[str]) -> dict[str, Any]:
    """The columns that are needed; words stay what they are, whatever Arrow would take for nothing or for a number."""
    import pyarrow as pa
    from pyarrow import compute, csv

    words = {name: pa.string() for name, column in schema.items() if not isinstance(column, Numeric)}
    convert = csv.ConvertOptions(
        strings_can_be_null=False, column_types=words, include_columns=[*dict.fromkeys([*schema, *beside])]
    )
    refuse_twice(path, column_names("csv", path))
    try:
        room_for(path.name, 3.0 * path.stat().st_size)
        found = columns_of(path, csv.read_csv(path, _one_block(path), convert_options=convert))
    except ARROW as error:
        raise unreadable("csv", path, error) from None  # its words may quote a record
    for name in beside:
        if pa.types.is_string(found[name].type):
            nothing = compute.is_in(compute.utf8_lower(found[name]), value_set=pa.array(NOTHING))
            found[name] = compute.if_else(nothing, pa.scalar(None, pa.string()), found[name])
    return found


def _one_block(path: Path) -> Any:
    """Arrow fixes a column's type by the first block, and fractions may follow whole numbers."""
    from pyarrow import csv

    return csv.ReadOptions(block_size=min(max(path.stat().st_size + 1, 1 << 20), 1 << 30))


BATCH = 1 << 16  # rows of a Parquet file that are turned into numbers at a time


def in_parts(file: Any) -> Any:
    """An open Parquet file, to be read in batches. Arrow would otherwise keep all bytes of it that it has read."""
    from pyarrow import parquet

    return parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 16)


def in_batches(path: Path, schema: Mapping[str, Column], *, mapped: bool | None = False) -> Floats:
    """The numbers of a Parquet file's declared columns; its records are never in memory all at once."""
    try:
        with path.open("rb") as opened:
            file = in_parts(opened)
            rows, names = file.metadata.num_rows, file.schema_arrow.names
            refuse_twice(path, names)
            out, at = zeros(path.name, (rows, len(number_names(schema))), mapped=mapped), 0
            for batch in file.iter_batches(BATCH, columns=[name for name in names if name in schema]):
                part = out[at : at + batch.num_rows]
                encode_into(path.name, schema, {name: batch.column(name) for name in schema}, part)
                at += batch.num_rows
            return out
    except ARROW as error:
        raise unreadable("parquet", path, error) from None  # its words may quote a record


def rows_in(path: Path) -> int:
    """Of a Parquet file, without reading a record."""
    from pyarrow import parquet

    try:
        with path.open("rb") as opened:
            return int(parquet.ParquetFile(opened).metadata.num_rows)
    except ARROW as error:
        raise unreadable("parquet", path, error) from None  # its words may quote a record


def columns_in(file_kind: str, path: Path, only: Sequence[str] | None = None) -> dict[str, Any]:
    """The columns of a file by name, as Arrow arrays; `only` these of a Parquet file, if not None."""
    try:
        if file_kind == "csv":
            from pyarrow import csv

            room_for(path.name, 3.0 * path.stat().st_size)
            convert = csv.ConvertOptions(strings_can_be_null=True)
            found: Any = csv.read_csv(path, _one_block(path), convert_options=convert)
        else:
            from pyarrow import parquet

            with path.open("rb") as file:  # one file, whatever folder it lies in
                facts = parquet.ParquetFile(file).metadata
                if only is None:
                    groups = [facts.row_group(i).total_byte_size for i in range(facts.num_row_groups)]
                    # As arrays of eight bytes a number, or as large as its parts say they are unpacked.
                    room_for(path.name, max(8.0 * facts.num_rows * facts.num_columns, 2.0 * sum(groups)))
                found = parquet.read_table(file, columns=None if only is None else list(only))
    except ARROW as error:
        raise unreadable(file_kind, path, error) from None  # its words may quote a record
    return columns_of(path, found)


def columns_of(path: Path, table: Any) -> dict[str, Any]:
    """The columns of an Arrow table by name."""
    refuse_twice(path, table.column_names)
    return {name: table.column(name) for name in table.column_names}


def refuse_twice(path: Path, names: Sequence[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UserError(f"{path.name} has two columns named {twice!r}: give each a name of its own")


def of_frame(frame: Any, where: str) -> Any:
    """polars brings its own way to Arrow; of pandas Arrow knows one, and leaves the index out."""
    import pyarrow as pa

    try:
        if hasattr(frame, "to_arrow"):
            return frame.to_arrow()
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError):
        raise UserError(
            f"{where} holds a column whose values are neither all numbers nor all words: give each one type"
        ) from None


def is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and (hasattr(value, "to_arrow") or hasattr(value, "iloc"))


Label = str | Sequence[str] | None  # the column to predict, or several of yes or no


def names_of(label: Label) -> list[str]:
    """The columns of the label, or labels."""
    return [] if label is None else [label] if isinstance(label, str) else list(label)


@dataclass(frozen=True)
class Records:
    """One file's features, raw labels and raw owners, before labels get their ids."""

    x: Floats
    y: Array
    owner: Array | None
    columns: list[str]  # of the numbers in x; empty for images
    person: Numbers | None = None  # whose each is
    labels: tuple[str, ...] = ()  # the names of several labels of yes or no, y being (N, L)


def existing(key: str, value: str, data_dir: Path | None) -> Path:
    """A path as given, or inside the data folder."""
    path = Path(value).expanduser()
    if data_dir is not None and not path.exists():
        path = data_dir / path
    if not path.is_file():
        raise UserError(f"{key} = {str(value)!r} is no file: give the path of an existing one")
    return path


def array_of(name: str, value: Any) -> Array:
    """An array, a tensor or lists as numpy's; what has no such form, or would lose something, is refused by name."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        raise UserError(
            f"{name} is a masked array with masked values; fill them, or leave their records out."
        )
    if hasattr(value, "toarray") or isinstance(value, Iterator):
        kind = type(value).__name__
        raise UserError(
            f"{name} is of type {kind}; give a dense array, for example by .toarray() or list(…)."
        )
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        said = f"a tensor {value.dtype} on {value.device}" if hasattr(value, "detach") else "no table"
        raise UserError(
            f"{name} is {said} that numpy cannot hold; give numbers, with rows of one length."
        ) from None


def same_index(name: str, value: Any, others: str, other: Any) -> None:
    """Two of pandas are matched by place: another index means that another order may be meant."""
    index: Any = getattr(value, "index", None)
    known: Any = getattr(other, "index", None)
    if hasattr(index, "equals") and hasattr(known, "equals") and not index.equals(known):
        raise UserError(
            f"{name} has another index than {others}, and they are matched by place; put them in one order and call "
            ".to_numpy() on both."
        )


def no_value_missing(name: str, values: Array) -> None:
    kind = values.dtype.kind
    if (kind == "f" and np.isnan(values).any()) or (
        kind == "O" and any(one is None or str(one) in ("nan", "NaT", "<NA>") for one in values.flat)
    ):
        raise UserError(f"{name} has no value for some records; give one for each.")


def read_table(
    file_kind: str,
    path: Path,
    label: Label,
    features: Sequence[str] | None,
    owner: str | None,
    person: str | None = None,
    schema: Mapping[str, Column] | None = None,
    *,
    mapped: bool | None = False,
) -> Records:
    """`label`: None where nothing is to be learned or compared; the records then have no y.."""
    names = column_names(file_kind, path)
    refuse_too_many(path, names)
    if schema is None:
        return from_columns(path, columns_in(file_kind, path), label, features, owner, person)
    refuse_absent(path.name, schema, names)
    beside = [name for name in (*names_of(label), owner, person) if name is not None and name in names]
    if file_kind == "csv":
        return from_columns(
            path, declared_csv(path, schema, beside), label, None, owner, person, schema=schema
        )
    x = in_batches(path, schema, mapped=mapped)
    return _beside(path, columns_in(file_kind, path, beside), x, schema, label, owner, person)


def refuse_too_many(path: Path, names: Sequence[str]) -> None:
    if len(names) > MOST_COLUMNS:
        raise UserError(
            f"{path.name} has {len(names)} columns, and at most {MOST_COLUMNS} are read: leave some out"
        )


def from_columns(
    path: Path,
    columns: Mapping[str, Any],
    label: Label,
    features: Sequence[str] | None,
    owner: str | None,
    person: str | None = None,
    *,
    schema: Mapping[str, Column] | None = None,
) -> Records:
    """A table's Arrow columns by name; of `path` only the name is used, to speak of it."""
    if schema is not None:
        refuse_absent(path.name, schema, [*columns])
        return _beside(path, columns, encoded(path.name, schema, columns), schema, label, owner, person)
    _refuse_absent_keys(path, columns, label, owner, person, features)
    chosen = (
        list(features)
        if features is not None
        else [name for name in columns if name not in (*names_of(label), owner, person)]
    )
    if not chosen:
        raise UserError(
            f"data.features leaves no column of {path.name} to learn from: it has {listed([*columns])}"
        )
    for name in names_of(label):
        if name in chosen:
            raise UserError(f"data.features must not contain the label {name!r}")
    if person is not None and (person in names_of(label) or person in chosen):
        raise UserError(f"data.person = {person!r} says whose a record is: it is no feature and no label")
    if len(set(chosen)) < len(chosen):
        raise UserError(f"data.features = {chosen} names a column twice")

    rows = len(columns[chosen[0]])
    if not rows:
        raise UserError(f"{path.name} has no rows: give a file with records")
    needed = {
        *chosen,
        *names_of(label),
        *([owner] if owner else []),
        *([person] if person else []),
    }
    _refuse_missing(path, {name: columns[name].null_count for name in columns if name in needed})
    words = [name for name in chosen if not _is_numeric(columns[name].type)]
    if words:
        raise UserError(
            f"{path.name} has non-numeric feature columns {', '.join(words)}: name others in data.features"
        )
    x = np.empty((rows, len(chosen)), np.float32)
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite and is refused by name
        for position, name in enumerate(chosen):
            x[:, position] = _numpy(path, name, columns[name])
    _refuse_non_finite(path, x, chosen)
    return _with_labels(path, columns, x, chosen, label, owner, person)


def _refuse_absent_keys(
    path: Path,
    columns: Mapping[str, Any],
    label: Label,
    owner: str | None,
    person: str | None,
    features: Sequence[str] | None = None,
) -> None:
    named = [
        *(("label", name) for name in names_of(label)),
        ("owner", owner),
        ("person", person),
        *(("features", n) for n in features or ()),
    ]
    for key, name in named:
        if name is not None and name not in columns:
            raise UserError(f"data.{key} = {name!r} is no column of {path.name}: it has {listed([*columns])}")


def _beside(
    path: Path,
    columns: Mapping[str, Any],
    x: Floats,
    schema: Mapping[str, Column],
    label: Label,
    owner: str | None,
    person: str | None,
) -> Records:
    """The numbers of declared columns, with what is beside them."""
    _refuse_absent_keys(path, columns, label, owner, person)
    if not len(x):
        raise UserError(f"{path.name} has no rows: give a file with records")
    needed = {name: columns[name] for name in (*names_of(label), owner, person) if name is not None}
    _refuse_missing(path, {name: column.null_count for name, column in needed.items()})
    return _with_labels(path, columns, x, number_names(schema), label, owner, person)


def _with_labels(
    path: Path,
    columns: Mapping[str, Any],
    x: Floats,
    names: list[str],
    label: Label,
    owner: str | None,
    person: str | None,
) -> Records:
    each = [_numpy(path, name, columns[name]) for name in names_of(label)]
    for name, values in zip(names_of(label), each, strict=True):
        if values.dtype.kind == "f":
            _refuse_non_finite(path, values[:, None], [name])
    y: Array = np.zeros(0, np.float32) if label is None else each[0]
    if label is not None and not isinstance(label, str):
        y = np.stack(each, 1)
    whose = numbers_of(_numpy(path, person, columns[person]), person, path.name) if person else None
    owners = _numpy(path, owner, columns[owner]) if owner else None
    return Records(x, y, owners, names, whose, tuple(names_of(label)) if y.ndim == 2 else ())


def _is_numeric(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)


def _numpy(path: Path, name: str, column: Any) -> Array:
    """A column without missing values as a numpy array of numbers, truth values or words."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_decimal(kind):
        kind = pa.float64()
    try:
        if not _is_numeric(kind):
            return np.asarray(column.cast(pa.string()).to_pylist(), dtype=np.str_)
        return np.asarray(column.cast(kind).to_numpy())
    except ARROW:
        raise UserError(
            f"{path.name}: column {name!r} holds values of type {column.type}, give numbers or words"
        ) from None


def load_npz(path: Path) -> dict[str, Array]:
    try:
        return decode.npz(path)
    except (*ARROW, RuntimeError, SyntaxError, EOFError) as error:  # encrypted, packed in unknown ways, …
        raise unreadable("npz", path, error) from error


def from_arrays(
    path: Path,
    raw: Mapping[str, Array],
    x_names: Sequence[str],
    y_names: Sequence[str],
    owner: str | None,
    person: str | None = None,
    *,
    several: bool = False,
) -> Records:
    """`several`: y is (N, L), labels of yes or no."""

    def pick(names: Sequence[str]) -> Array:
        for name in names:
            if name in raw:
                return raw[name]
        raise UserError(f"{path.name} has no array {' or '.join(names)}: it has {', '.join(raw)}")

    x, y = pick(x_names), pick(y_names)
    if x.ndim == 0 or 0 in x.shape[1:]:
        raise UserError(f"{path.name}: x has shape {x.shape}, give at least one number per record")
    owners = pick([owner]) if owner else None
    ids = pick([person]) if person else None
    beside = [(name, array) for name, array in ((owner, owners), (person, ids)) if name and array is not None]
    if y.ndim == 2 and not several:
        raise UserError(
            f"{path.name}: {y_names[0]} has shape {y.shape} where one value per row needs ({len(x)},): or are these "
            "several labels of yes or no? Then set data.task = 'multi-label'"
        )
    if several and (y.ndim != 2 or len(y) != len(x) or not y.shape[1]):
        raise UserError(
            f"{path.name}: {y_names[0]} has shape {y.shape}, and data.task = 'multi-label' needs ({len(x)}, labels)"
        )
    for name, array in [*([] if several else [(y_names[0], y)]), *beside]:
        if array.shape != (len(x),):
            raise UserError(
                f"{path.name}: {name} has shape {array.shape} where one value per row needs ({len(x)},)"
            )
    if x.ndim not in (2, 3, 4) or x.dtype.kind not in "iufb":
        raise UserError(
            f"{path.name}: x has shape {x.shape} and dtype {x.dtype}, give numbers as (N, p) or images"
        )
    if y.dtype.kind not in "iufbUS":
        raise UserError(f"{path.name}: y has dtype {y.dtype}, give numbers or words")
    if not len(x):
        raise UserError(f"{path.name} has no rows: give a file with records")
    columns = [str(column) for column in range(x.shape[1])] if x.ndim == 2 else []
    features = as_records(x)
    _refuse_non_finite(path, features.reshape(len(x), -1), columns or ["x"])
    if y.dtype.kind == "f":
        _refuse_non_finite(path, y.reshape(len(y), -1), [y_names[0]])
    whose = numbers_of(ids, person, path.name) if person and ids is not None else None
    return Records(features, y, owners, columns, whose)


def as_records(x: Array) -> Floats:
    """Numbers of any type as a model's records: tables as they are, images with their channels first."""
    return _images(x) if x.ndim > 2 else _float32(x)


def _images(x: Array) -> Floats:
    """(N, C, H, W), whichever of the common layouts came."""
    scaled = _float32(x) / np.float32(255) if x.dtype == np.uint8 else _float32(x)
    if x.ndim == 3:
        return scaled[:, None]
    if x.shape[1] not in (1, 3) and x.shape[3] in (1, 3):
        return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))
    return scaled


def _float32(x: Array) -> Floats:
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite and is refused by name
        return np.ascontiguousarray(x, dtype=np.float32)


def _refuse_missing(path: Path, missing: Mapping[str, int]) -> None:
    """In how many rows is nobody's business: what a program prints may be sent on."""
    for name, count in missing.items():
        if count:
            raise UserError(f"{path.name}: column {name!r} has rows without a value: fill or remove them")


def _refuse_non_finite(path: Path, values: Array, columns: Sequence[str]) -> None:
    bad = ~np.isfinite(values.astype(np.float32, copy=False))
    if not bad.any():
        return
    column = int(bad.any(axis=0).argmax()) if len(columns) > 1 else 0
    raise UserError(
        f"{path.name}: column {columns[column]!r} has rows that are NaN or infinite: fill or remove them"
    )


def yes_or_no(y: Array, key: str) -> npt.NDArray[np.float32]:
    """(N, L) of 0 and 1."""
    if y.dtype.kind not in "iufb" or not ((y == 0) | (y == 1)).all():
        raise UserError(f"{key} has a label that is neither yes nor no: give 0 and 1, or true and false")
    return y.astype(np.float32)


def targets_of(y: Array) -> npt.NDArray[np.float32]:
    if y.dtype.kind not in "iufb":
        raise UserError("data.task = 'regression' needs numbers as labels: the label column holds words")
    return y.astype(np.float32)


def known_labels(y: Array, classes: int | list[Any] | None) -> Array:
    """All labels in the order of their ids."""
    if classes is None:
        known = np.unique(_class_labels(y))
        if len(known) < 2:
            raise UserError("data.label is the same in all rows: declare data.classes or choose another")
        return known
    if isinstance(classes, list):
        declared = np.asarray(classes)
        if len(declared) < 2 or declared.ndim != 1 or len(np.unique(declared)) < len(declared):
            raise UserError(f"data.classes = {list(classes)} must list at least two different labels")
        return declared
    return np.arange(classes)


def _class_labels(y: Array) -> Array:
    if y.dtype.kind != "f":
        return y
    if not np.all(y == np.round(y)):
        raise UserError(
            "data.task = 'classification' needs whole numbers or words as labels: the column has fractions"
        )
    return y.astype(np.int64)


def class_numbers(y: Array, known: Array, key: str, where: str) -> npt.NDArray[np.int64]:
    """The position of every label in `known`."""
    y = _class_labels(y)
    if (y.dtype.kind in "US") != (known.dtype.kind in "US"):
        y, known = y.astype(np.str_), known.astype(np.str_)
    order = np.argsort(known)
    position = np.minimum(np.searchsorted(known, y, sorter=order), len(known) - 1)
    ids: npt.NDArray[np.int64] = order[position].astype(np.int64)
    if (known[ids] != y).any():  # which ones stays unsaid: they are values of records
        raise UserError(f"{key} has labels that are not among {where}")
    return ids
