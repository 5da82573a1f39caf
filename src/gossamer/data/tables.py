"""Tables and arrays of the user's own, read into records: features, labels, owners and persons.

No message quotes a value: messages are sent on, and values are private.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from gossamer.data import decode
from gossamer.data.arrays import MOST_COLUMNS, Array, Floats, listed, room_for, zeros
from gossamer.data.columns import (
    MISSING_WORDS,
    NUMBERS,
    Column,
    Finding,
    Numeric,
    encode_into,
    is_type,
    kind_of,
    number_names,
    plain,
)
from gossamer.data.partition import Indices, person_ids
from gossamer.errors import UserError, short

# What Arrow and numpy raise on files that are damaged or of another kind.
UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, RuntimeError, MemoryError, OverflowError, SyntaxError, EOFError,
)  # fmt: skip
BATCH = 1 << 16  # rows of a Parquet file that are turned into numbers at a time
Named = tuple[str, Array]
Label = str | Sequence[str] | None  # the column to predict, or several of yes or no


def names_of(label: Label) -> list[str]:
    return [] if label is None else [label] if isinstance(label, str) else list(label)


@dataclass(frozen=True)
class Roles:
    """The roles of a table's columns. `schema`: the declared columns, in place of `features`."""

    label: Label = None
    features: Sequence[str] | None = None  # None: all columns without another role
    owner: str | None = None
    person: str | None = None
    schema: Mapping[str, Column] | None = None

    @property
    def others(self) -> list[str]:
        """The columns that are no features."""
        return [name for name in (*names_of(self.label), self.owner, self.person) if name is not None]

    def check(self, table: str, names: Sequence[str]) -> list[str]:
        """Refuse a key that names no column of the table, or one twice; return the features of an undeclared table."""
        features = [n for n in names if n not in self.others]
        if self.features is not None:
            features = [*self.features]
        features = [] if self.schema is not None else features
        keys = [("label", name) for name in names_of(self.label)] + [("features", name) for name in features]
        for key, name in [*keys, ("owner", self.owner), ("person", self.person)]:
            if name is not None and name not in names:
                raise UserError(f"data.{key} = {name!r} is no column of {table}; it has {listed(names)}")
        if not features and self.schema is None:
            raise UserError(f"data.features leaves no column of {table}; it has {listed(names)}")
        if len(set(features)) < len(features):
            raise UserError(f"data.features = {features} names a column twice; name each once")
        if self.person in {*features, *names_of(self.label)}:
            raise UserError(f"privacy.unit.column = {short(self.person)} must be no feature and no label.")
        if {*names_of(self.label)} & {*features}:
            raise UserError(f"data.features = {short(list(features))} must not contain the label.")
        return features


@dataclass(frozen=True)
class Records:
    """Features, raw labels, raw owners and persons of one table, before labels become class numbers."""

    x: Floats
    y: Array
    columns: list[str]  # of the numbers in x; empty for images
    labels: tuple[str, ...] = ()  # the names of several labels of yes or no, y being (N, L)
    owner: Array | None = None
    person: Indices | None = None

    def first(self, rows: int) -> Records:
        """The first rows, without owners and persons."""
        return replace(self, x=self.x[:rows], y=self.y[:rows], owner=None, person=None)

    def attach(self, table: str, owner: Named | None, person: Named | None) -> Records:
        """Add the owner and the person of each record, each as (name, values)."""
        for name, values in filter(None, (owner, person)):
            if values.shape != (len(self.x),):
                raise UserError(f"{table}: {name} has shape {values.shape}, not ({len(self.x)},)")
        if owner is not None:
            no_value_missing(*owner)
        return replace(
            self,
            owner=self.owner if owner is None else owner[1],
            person=self.person if person is None else person_ids(person[1], person[0], table),
        )


class Table(ABC):
    """Named columns in a file or a frame."""

    kind: ClassVar[str]
    name: str  # in messages

    @abstractmethod
    def _arrow_schema(self) -> Any:
        """Names and types, without reading records; of a CSV file as far as its first lines tell."""

    @abstractmethod
    def _batches(self, names: Sequence[str], schema: Mapping[str, Column] | None) -> Iterator[Any]:
        """These columns as Arrow tables, some rows at a time where `schema` declares columns among them."""

    @property
    def rows(self) -> int | None:
        """The number of rows, where that is known before they are read."""
        return None

    @cached_property
    def types(self) -> dict[str, Any]:
        """Arrow's type of each column."""
        with reading(self.kind, self.name):
            fields = [(field.name, field.type) for field in self._arrow_schema()]
        twice = next((name for name, count in Counter(name for name, _ in fields).items() if count > 1), None)
        if twice is not None:
            raise UserError(f"{self.name} has two columns named {twice!r}; give each a name of its own")
        return dict(fields)

    @property
    def names(self) -> list[str]:
        return [*self.types]

    @property
    def kinds(self) -> dict[str, str]:
        """Column → numeric, categorical, boolean or date, by its type alone."""
        return {name: kind_of(arrow_type) for name, arrow_type in self.types.items()}

    def batches(self, names: Sequence[str], schema: Mapping[str, Column] | None = None) -> Iterator[Any]:
        with reading(self.kind, self.name):
            yield from self._batches([*dict.fromkeys(names)], schema)

    def encode(
        self, schema: Mapping[str, Column], others: Sequence[str] = (), *, mapped: bool | None = False
    ) -> tuple[Floats, Any]:
        """The numbers of the declared columns, and the other columns as an Arrow table.

        Of a Parquet file the declared columns are never all in memory.
        """
        import pyarrow as pa

        absent = [name for name in schema if name not in self.types]
        if absent:
            what = f"has no column {listed(absent)}, which data.columns declares"
            raise UserError(f"{self.name} {what}: it has {listed(self.names)}")
        out, at, rest = np.empty((0, 0), np.float32), 0, []
        for batch in self.batches([*schema, *others], schema):
            if not at:
                shape = (self.rows or batch.num_rows, len(number_names(schema)))
                out = zeros(self.name, shape, mapped=mapped)
            encode_into(self.name, schema, batch, out[at : at + batch.num_rows])
            at += batch.num_rows
            rest.append(batch.select(others))
        self._check_rows(at)
        return out, pa.concat_tables(rest)

    def findings(self, schema: Mapping[str, Column]) -> list[Finding]:
        """Compare the table with its declared columns; for the holder of the records alone."""
        there = {name: column for name, column in schema.items() if name in self.types}
        absent = [Finding(n, c.kind, "is not in the file", True) for n, c in schema.items() if n not in there]
        remarks: dict[str, dict[str, bool]] = {name: {} for name in there}
        for batch in self.batches([*there], there) if there else ():
            for name, column in there.items():
                remarks[name].update(column.remarks(plain(batch[name])))
        return absent + [
            Finding(name, there[name].kind, text, must)
            for name, its in remarks.items()
            for text, must in (its or {"fits": False}).items()
        ]

    def records(self, roles: Roles, *, mapped: bool | None = False) -> Records:
        """The records of the table; without a label they have no y."""
        names = self.names
        if len(names) > MOST_COLUMNS:
            raise UserError(f"{self.name} has {len(names)} columns, and at most {MOST_COLUMNS} are read")
        numbers = roles.check(self.name, names)
        if roles.schema is None:
            columns = next(self.batches([*numbers, *roles.others]))
            x = self._floats(columns.select(numbers))
        else:
            numbers = number_names(roles.schema)
            x, columns = self.encode(roles.schema, roles.others, mapped=mapped)
        values = {name: self._values(name, columns[name]) for name in roles.others}
        labels = {name: values[name] for name in names_of(roles.label)}
        for name, label in labels.items():
            if label.dtype.kind == "f":
                _check_finite(self.name, label[:, None], [name])
        several = roles.label is not None and not isinstance(roles.label, str)
        y: Array = next(iter(labels.values()), np.zeros(0, np.float32))
        if several:
            y = np.stack([*labels.values()], 1)
        owner, person = (None if n is None else (n, values[n]) for n in (roles.owner, roles.person))
        return Records(x, y, numbers, tuple(labels) if several else ()).attach(self.name, owner, person)

    def _floats(self, columns: Any) -> Floats:
        """(rows, columns) of undeclared columns, which must be numbers without gaps."""
        self._check_rows(columns.num_rows)
        names = columns.column_names
        values = {name: self._values(name, columns[name]) for name in names}
        words = [name for name, its in values.items() if its.dtype.kind == "U"]
        if words:
            remedy = "declare their levels in data.columns, or leave them out of data.features"
            raise UserError(f"{self.name} has non-numeric feature columns {listed(words)}; {remedy}")
        x = np.empty((columns.num_rows, len(names)), np.float32)
        # A number too large for float32 becomes infinite and is refused by name.
        with np.errstate(over="ignore"):
            for place, its in enumerate(values.values()):
                x[:, place] = its
        _check_finite(self.name, x, names)
        return x

    def _values(self, name: str, column: Any) -> Array:
        """A column without gaps as an array of numbers, truth values or words."""
        import pyarrow as pa

        if column.null_count:  # in how many rows is private
            raise UserError(f"{self.name}: column {name!r} has rows without a value; fill or remove them")
        kind = column.type.value_type if is_type(column.type, "dictionary") else column.type
        kind = pa.float64() if is_type(kind, "decimal") else kind
        try:
            if is_type(kind, *NUMBERS, "boolean"):
                return np.asarray(column.cast(kind).to_numpy())
            return np.asarray(column.cast(pa.string()).to_pylist(), dtype=np.str_)
        except UNREADABLE:
            what = f"{self.name}: column {name!r} holds values of type {column.type}"
            raise UserError(f"{what}; give numbers or words, and sequences as (x, y) without a frame") from None

    def _check_rows(self, rows: int) -> None:
        if not rows:
            raise UserError(f"{self.name} has no rows; give a file with records")


@dataclass(frozen=True)
class FileTable(Table):
    path: Path

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.path.name


class CsvTable(FileTable):
    kind: ClassVar[str] = "csv"

    def _arrow_schema(self) -> Any:
        from pyarrow import csv

        with csv.open_csv(self.path) as reader:
            return reader.schema

    def _batches(self, names: Sequence[str], schema: Mapping[str, Column] | None) -> Iterator[Any]:
        """Words of declared columns stay as they are, also where Arrow would read a gap or a number."""
        import pyarrow as pa
        from pyarrow import compute, csv

        size = self.path.stat().st_size
        room_for(self.name, 3.0 * size)
        words = {n: pa.string() for n, c in (schema or {}).items() if not isinstance(c, Numeric)}
        kinds: dict[str, Any] = {"column_types": words, "include_columns": list(names)}
        convert = csv.ConvertOptions(strings_can_be_null=schema is None, **kinds)
        # One block: Arrow fixes a column's type by the first one, and fractions may follow whole numbers.
        block = csv.ReadOptions(block_size=min(max(size + 1, 1 << 20), 1 << 30))
        table = csv.read_csv(self.path, block, convert_options=convert)
        for place, name in enumerate(names):
            column = table.column(name)
            if schema is not None and name not in schema and is_type(column.type, "string"):
                gap = compute.is_in(compute.utf8_lower(column), value_set=pa.array(MISSING_WORDS))
                column = compute.if_else(gap, pa.scalar(None, pa.string()), column)
                table = table.set_column(place, name, column)
        yield table


class ParquetTable(FileTable):
    kind: ClassVar[str] = "parquet"

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """The file alone, not the folder it is in, without a buffer of all bytes that were read."""
        from pyarrow import parquet

        with reading(self.kind, self.name), self.path.open("rb") as file:
            yield parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 16)

    @property
    def rows(self) -> int:
        with self._opened() as file:
            return int(file.metadata.num_rows)

    def _arrow_schema(self) -> Any:
        with self._opened() as file:
            return file.schema_arrow

    def _batches(self, names: Sequence[str], schema: Mapping[str, Column] | None) -> Iterator[Any]:
        import pyarrow as pa

        with self._opened() as file:
            if schema is None:
                facts = file.metadata
                unpacked = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
                room_for(self.name, max(8.0 * facts.num_rows * len(names), 2.0 * unpacked))
                yield file.read(columns=names)
            else:
                for batch in file.iter_batches(BATCH, columns=names):
                    yield pa.Table.from_batches([batch])


@dataclass(frozen=True)
class FrameTable(Table):
    """A pandas or polars frame."""

    frame: Any
    name: str
    kind: ClassVar[str] = "a frame"

    @cached_property
    def _table(self) -> Any:
        import pyarrow as pa

        try:
            if hasattr(self.frame, "to_arrow"):  # polars
                return self.frame.to_arrow()
            return pa.Table.from_pandas(self.frame, preserve_index=False)
        except (pa.ArrowException, TypeError, ValueError) as error:
            named = re.search(r"for column (.*?) with type", str(error))
            column = f"column {named[1]!r}, which" if named else "a column that"
            raise UserError(f"{self.name} has {column} is neither all numbers nor all words; give one kind") from None

    def _arrow_schema(self) -> Any:
        return self._table.schema

    def _batches(self, names: Sequence[str], schema: Mapping[str, Column] | None) -> Iterator[Any]:
        yield self._table.select(names)


def open_table(kind: str, path: Path) -> FileTable:
    return CsvTable(path) if kind == "csv" else ParquetTable(path)


def is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and (hasattr(value, "to_arrow") or hasattr(value, "iloc"))


@contextmanager
def reading(kind: str, name: str) -> Iterator[None]:
    """Raise what a damaged file causes as one UserError without the values that the cause quotes."""
    try:
        yield
    except UserError:
        raise
    except UNREADABLE as error:
        raise UserError(f"{name} is not readable as {kind}: {_without_values(error)}") from None


def _without_values(error: Exception) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    counted = re.search(r"Expected (\d+) columns, got (\d+)", reason)
    if counted:
        return f"a line has {counted[2]} columns where the first has {counted[1]}"
    if "conversion error" in reason:
        return "a value is of another type than those before it in its column"
    return re.sub(r"'[^']*'|\"[^\"]*\"", "…", reason)[:160]


def existing(key: str, value: str, data_dir: Path | None) -> Path:
    """A path as given, or inside the data folder."""
    path = Path(value).expanduser()
    if data_dir is not None and not path.exists():
        path = data_dir / path
    if not path.is_file():
        raise UserError(f"{key} = {str(value)!r} is no file; give the path of an existing one")
    return path


def load_npz(path: Path) -> dict[str, Array]:
    with reading("npz", path.name):
        return decode.npz(path)


def array_of(name: str, value: Any) -> Array:
    """An array, a tensor or lists as a numpy array; what has no such form, or would lose something, is refused."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        raise UserError(f"{name} has masked values; fill them, or leave their records out.")
    if hasattr(value, "toarray") or isinstance(value, Iterator):
        kind = type(value).__name__
        raise UserError(f"{name} is of type {kind}; give a dense array, as by .toarray() or list(…).")
    try:
        return np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError):
        if hasattr(value, "detach"):
            remedy = "give a tensor that has values" if value.is_meta else "give it by .float()"
            what = f"{name} is a tensor {value.dtype} on {value.device} that numpy cannot hold; {remedy}"
        else:
            what = f"{name} has rows of different lengths or types; give rows of one shape"
        raise UserError(f"{what}.") from None


def same_index(name: str, value: Any, others: str, other: Any) -> None:
    """Refuse two pandas objects with different indices: they are matched by place."""
    index, known = (getattr(one, "index", object) for one in (value, other))
    if hasattr(index, "equals") and hasattr(known, "equals") and not index.equals(known):
        remedy = "put them in one order and call .to_numpy() on both"
        raise UserError(f"{name} has another index than {others}, and they are matched by place; {remedy}.")


def no_value_missing(name: str, values: Array) -> None:
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(0)
    if values.dtype.kind == "O":
        missing = np.array([one is None or str(one) in ("nan", "NaT", "<NA>") for one in values.flat])
    if missing.any():
        raise UserError(f"{name} has no value for some records; give one for each.")


def from_arrays(name: str, x: Array, y: Array, *, y_name: str = "y", several: bool = False) -> Records:
    """Records of arrays; `several`: y is (N, L), labels of yes or no."""
    if x.ndim not in (2, 3, 4) or 0 in x.shape[1:] or x.dtype.kind not in "iufb":
        what = f"x has shape {x.shape} and dtype {x.dtype}"
        wanted = (
            "by .astype('float32') if they are numbers" if x.dtype.kind == "O" else "at least one number per record"
        )
        raise UserError(f"{name}: {what}; give numbers as (N, p) or images, {wanted}")
    if y.ndim != 1 + several or len(y) != len(x):
        hint = "; for several labels of yes or no set data.task = 'multi-label'" if y.ndim == 2 else ""
        wanted = f"multi-label needs ({len(x)}, labels)"
        if not several:
            wanted = f"one value per row needs ({len(x)},){hint}"
        raise UserError(f"{name}: {y_name} has shape {y.shape} where {wanted}")
    if y.dtype.kind not in "iufbUS":
        raise UserError(f"{name}: y has dtype {y.dtype}, give all numbers or all words")
    if not y.size:
        raise UserError(f"{name} has no rows; give a file with records")
    columns = [str(column) for column in range(x.shape[1])] if x.ndim == 2 else []
    features = as_records(x)
    _check_finite(name, features.reshape(len(x), -1), columns or ["x"])
    if y.dtype.kind == "f":
        _check_finite(name, y.reshape(len(y), -1), [y_name])
    return Records(features, y, columns)


def as_records(x: Array) -> Floats:
    """Numbers of any type as float32: tables as they are, images as (N, C, H, W), bytes divided by 255."""
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite and is refused by name
        floats = np.ascontiguousarray(x, dtype=np.float32)
    if x.ndim == 2:
        return floats
    if x.dtype == np.uint8:
        floats = floats / np.float32(255)
    if x.ndim == 3:
        return floats[:, None]
    if x.shape[1] not in (1, 3) and x.shape[3] in (1, 3):
        return np.ascontiguousarray(floats.transpose(0, 3, 1, 2))
    return floats


def _check_finite(name: str, values: Array, columns: Sequence[str]) -> None:
    bad = ~np.isfinite(values.astype(np.float32, copy=False))
    if bad.any():
        column = int(bad.any(axis=0).argmax()) if len(columns) > 1 else 0
        raise UserError(f"{name}: column {columns[column]!r} has rows that are NaN or infinite; fill them")


def yes_or_no(y: Array, key: str) -> npt.NDArray[np.float32]:
    """(N, L) of 0 and 1."""
    if y.dtype.kind not in "iufb" or not ((y == 0) | (y == 1)).all():
        raise UserError(f"{key} has a label that is neither yes nor no; give 0 and 1, or true and false")
    return y.astype(np.float32)


def targets_of(y: Array) -> npt.NDArray[np.float32]:
    if y.dtype.kind not in "iufb":
        raise UserError("data.task = 'regression' needs numbers as labels, not words; choose another column")
    return y.astype(np.float32)


def known_labels(y: Array, classes: int | list[Any] | None) -> Array:
    """All labels in the order of their class numbers."""
    if classes is None:
        known = np.unique(_class_labels(y))
        if len(known) < 2:
            raise UserError("data.label is the same in all rows; declare data.classes or choose another")
        return known
    if isinstance(classes, list):
        declared = np.asarray(classes)
        if len(declared) < 2 or declared.ndim != 1 or len(np.unique(declared)) < len(declared):
            raise UserError(f"data.classes = {list(classes)} must list at least two different labels")
        return declared
    return np.arange(classes)


def class_numbers(y: Array, known: Array, key: str, where: str) -> npt.NDArray[np.int64]:
    """The position of every label in `known`."""
    y = _class_labels(y)
    if (y.dtype.kind in "US") != (known.dtype.kind in "US"):
        y, known = y.astype(np.str_), known.astype(np.str_)
    order = np.argsort(known)
    position = np.minimum(np.searchsorted(known, y, sorter=order), len(known) - 1)
    ids: npt.NDArray[np.int64] = order[position].astype(np.int64)
    if (known[ids] != y).any():
        raise UserError(f"{key} has labels that are not among {where}; declare them")
    return ids


def _class_labels(y: Array) -> Array:
    if y.dtype.kind != "f":
        return y
    if not np.all(y == np.round(y)):
        raise UserError("data.task = 'classification' needs whole numbers or words as labels; use regression")
    return y.astype(np.int64)
