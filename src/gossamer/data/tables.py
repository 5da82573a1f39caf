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
    NOTHING,
    Column,
    Finding,
    Numeric,
    encode_into,
    encoded,
    kind_of,
    number_names,
    plain,
)
from gossamer.data.persons import Numbers, person_ids
from gossamer.errors import UserError

# What Arrow and numpy raise on files that are damaged or of another kind.
UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, RuntimeError, MemoryError, OverflowError, SyntaxError, EOFError,
)  # fmt: skip
BATCH = 1 << 16  # rows of a Parquet file that are turned into numbers at a time
Label = str | Sequence[str] | None  # the column to predict, or several of yes or no


def names_of(label: Label) -> list[str]:
    return [] if label is None else [label] if isinstance(label, str) else list(label)


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Which columns of a table are what. `schema`: the declared columns, in place of `features`."""

    label: Label = None
    features: Sequence[str] | None = None  # None: all columns without another role
    owner: str | None = None
    person: str | None = None
    schema: Mapping[str, Column] | None = None

    @property
    def others(self) -> list[str]:
        """The columns that are no features."""
        return [name for name in (*names_of(self.label), self.owner, self.person) if name is not None]

    def check(self, table: str, names: Sequence[str]) -> None:
        """Refuse a key that names no column of the table."""
        keys = [("label", name) for name in names_of(self.label)]
        keys += [("owner", self.owner or ""), ("person", self.person or "")]
        keys += [("features", name) for name in self.features or () if self.schema is None]
        for key, name in keys:
            if name and name not in names:
                raise UserError(f"data.{key} = {name!r} is no column of {table}: it has {listed(names)}")

    def features_in(self, table: str, names: Sequence[str]) -> list[str]:
        """The feature columns of an undeclared table."""
        chosen = self.features
        if chosen is None:
            chosen = [name for name in names if name not in self.others]
        if not chosen:
            raise UserError(
                f"data.features leaves no column of {table} to learn from: it has {listed(names)}"
            )
        if len(set(chosen)) < len(chosen):
            raise UserError(f"data.features = {chosen} names a column twice")
        for name in names_of(self.label):
            if name in chosen:
                raise UserError(f"data.features must not contain the label {name!r}")
        if self.person in (*names_of(self.label), *chosen):
            raise UserError(f"data.person = {self.person!r} must be neither a feature nor the label")
        return list(chosen)


@dataclass(frozen=True)
class Records:
    """Features, raw labels, raw owners and persons of one table, before labels become class numbers."""

    x: Floats
    y: Array
    columns: list[str]  # of the numbers in x; empty for images
    labels: tuple[str, ...] = ()  # the names of several labels of yes or no, y being (N, L)
    owner: Array | None = None
    person: Numbers | None = None

    def first(self, rows: int) -> Records:
        """The first rows, without owners and persons."""
        return replace(self, x=self.x[:rows], y=self.y[:rows], owner=None, person=None)

    def attach(
        self, table: str, owner: tuple[str, Array] | None, person: tuple[str, Array] | None
    ) -> Records:
        """Add the owner and the person of each record, each as (name, values)."""
        for name, values in filter(None, (owner, person)):
            if values.shape != (len(self.x),):
                raise UserError(
                    f"{table}: {name} has shape {values.shape} where one value per row needs ({len(self.x)},)"
                )
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
    def _arrow(self, names: Sequence[str], schema: Mapping[str, Column] | None) -> Any:
        """These columns as an Arrow table. `schema`: the declared ones among them."""

    @cached_property
    def types(self) -> dict[str, Any]:
        """Arrow's type of each column."""
        with reading(self.kind, self.name):
            fields = [(field.name, field.type) for field in self._arrow_schema()]
        twice = next((name for name, count in Counter(name for name, _ in fields).items() if count > 1), None)
        if twice is not None:
            raise UserError(f"{self.name} has two columns named {twice!r}: give each a name of its own")
        return dict(fields)

    @property
    def names(self) -> list[str]:
        return [*self.types]

    @property
    def kinds(self) -> dict[str, str]:
        """Column → numeric, categorical, boolean or date, by its type alone."""
        return {name: kind_of(arrow_type) for name, arrow_type in self.types.items()}

    def read(self, names: Sequence[str], schema: Mapping[str, Column] | None = None) -> dict[str, Any]:
        """These columns as Arrow arrays."""
        with reading(self.kind, self.name):
            table = self._arrow([*dict.fromkeys(names)], schema)
        return {name: table.column(name) for name in table.column_names}

    def batches(self, schema: Mapping[str, Column]) -> Iterator[Mapping[str, Any]]:
        """The declared columns, some rows at a time."""
        yield self.read([*schema], schema)

    def encode(
        self, schema: Mapping[str, Column], others: Sequence[str] = (), *, mapped: bool | None = False
    ) -> tuple[Floats, Mapping[str, Any]]:
        """The numbers of the declared columns, and the other columns."""
        self.check_declared(schema)
        columns = self.read([*schema, *others], schema)
        return encoded(self.name, schema, columns), columns

    def check_declared(self, schema: Mapping[str, Column]) -> None:
        absent = [name for name in schema if name not in self.types]
        if absent:
            raise UserError(
                f"{self.name} has no column {listed(absent)}, which data.columns declares: it has {listed(self.names)}"
            )

    def findings(self, schema: Mapping[str, Column]) -> list[Finding]:
        """Compare the table with its declared columns; for the holder of the records alone."""
        there = {name: column for name, column in schema.items() if name in self.types}
        absent = [Finding(n, c.kind, "is not in the file", True) for n, c in schema.items() if n not in there]
        remarks: dict[str, dict[str, bool]] = {name: {} for name in there}
        for batch in self.batches(there) if there else ():
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
            raise UserError(
                f"{self.name} has {len(names)} columns, and at most {MOST_COLUMNS} are read: leave some out"
            )
        roles.check(self.name, names)
        if roles.schema is None:
            numbers = roles.features_in(self.name, names)
            columns: Mapping[str, Any] = self.read([*numbers, *roles.others])
            x = self._floats({name: columns[name] for name in numbers})
        else:
            numbers = number_names(roles.schema)
            x, columns = self.encode(roles.schema, roles.others, mapped=mapped)
        if not len(x):
            raise UserError(f"{self.name} has no rows: give a file with records")
        values = {name: self._values(name, columns[name]) for name in roles.others}
        labels = [values[name] for name in names_of(roles.label)]
        several = roles.label is not None and not isinstance(roles.label, str)
        y: Array = np.stack(labels, 1) if several else labels[0] if labels else np.zeros(0, np.float32)
        for name, label in zip(names_of(roles.label), labels, strict=True):
            if label.dtype.kind == "f":
                _check_finite(self.name, label[:, None], [name])
        records = Records(x, y, numbers, tuple(names_of(roles.label)) if several else ())
        owner, person = (
            None if name is None else (name, values[name]) for name in (roles.owner, roles.person)
        )
        return records.attach(self.name, owner, person)

    def _floats(self, columns: Mapping[str, Any]) -> Floats:
        """(rows, columns) of undeclared columns, which must be numbers without gaps."""
        rows = len(next(iter(columns.values())))
        x = np.empty((rows, len(columns)), np.float32)
        if not rows:
            return x
        for name, column in columns.items():
            self._check_no_gaps(name, column)
        words = [name for name, column in columns.items() if not _is_numeric(column.type)]
        if words:
            raise UserError(
                f"{self.name} has non-numeric feature columns {', '.join(words)}: name others in data.features"
            )
        with np.errstate(
            over="ignore"
        ):  # a number too large for float32 becomes infinite and is refused by name
            for place, (name, column) in enumerate(columns.items()):
                x[:, place] = self._values(name, column)
        _check_finite(self.name, x, [*columns])
        return x

    def _values(self, name: str, column: Any) -> Array:
        """A column without gaps as an array of numbers, truth values or words."""
        import pyarrow as pa
        from pyarrow import types

        self._check_no_gaps(name, column)
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        if types.is_decimal(kind):
            kind = pa.float64()
        try:
            if not _is_numeric(kind):
                return np.asarray(column.cast(pa.string()).to_pylist(), dtype=np.str_)
            return np.asarray(column.cast(kind).to_numpy())
        except UNREADABLE:
            raise UserError(
                f"{self.name}: column {name!r} holds values of type {column.type}, give numbers or words"
            ) from None

    def _check_no_gaps(self, name: str, column: Any) -> None:
        if column.null_count:  # in how many rows is private
            raise UserError(f"{self.name}: column {name!r} has rows without a value: fill or remove them")


@dataclass(frozen=True)
class CsvTable(Table):
    path: Path
    kind: ClassVar[str] = "csv"

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.path.name

    def _arrow_schema(self) -> Any:
        from pyarrow import csv

        with csv.open_csv(self.path) as reader:
            return reader.schema

    def _arrow(self, names: Sequence[str], schema: Mapping[str, Column] | None) -> Any:
        """Words of declared columns stay as they are, also where Arrow would read a gap or a number."""
        import pyarrow as pa
        from pyarrow import compute, csv

        size = self.path.stat().st_size
        room_for(self.name, 3.0 * size)
        words = {n: pa.string() for n, c in (schema or {}).items() if not isinstance(c, Numeric)}
        convert = csv.ConvertOptions(
            strings_can_be_null=schema is None, column_types=words, include_columns=list(names)
        )
        # In one block: Arrow fixes a column's type by the first one, and fractions may follow whole numbers.
        block = csv.ReadOptions(block_size=min(max(size + 1, 1 << 20), 1 << 30))
        table = csv.read_csv(self.path, block, convert_options=convert)
        for place, name in enumerate(names):
            if schema is not None and name not in schema and pa.types.is_string(table.column(name).type):
                column = table.column(name)
                gap = compute.is_in(compute.utf8_lower(column), value_set=pa.array(NOTHING))
                column = compute.if_else(gap, pa.scalar(None, pa.string()), column)
                table = table.set_column(place, name, column)
        return table


@dataclass(frozen=True)
class ParquetTable(Table):
    path: Path
    kind: ClassVar[str] = "parquet"

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.path.name

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

    def _arrow(self, names: Sequence[str], schema: Mapping[str, Column] | None) -> Any:
        with self._opened() as file:
            facts = file.metadata
            if schema is None:
                unpacked = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
                room_for(self.name, max(8.0 * facts.num_rows * len(names), 2.0 * unpacked))
            return file.read(columns=list(names))

    def batches(self, schema: Mapping[str, Column]) -> Iterator[Mapping[str, Any]]:
        with self._opened() as file:
            for batch in file.iter_batches(BATCH, columns=list(schema)):
                yield {name: batch.column(name) for name in schema}

    def encode(
        self, schema: Mapping[str, Column], others: Sequence[str] = (), *, mapped: bool | None = False
    ) -> tuple[Floats, Mapping[str, Any]]:
        """The numbers of the declared columns; the records themselves are never all in memory."""
        self.check_declared(schema)
        out, at = zeros(self.name, (self.rows, len(number_names(schema))), mapped=mapped), 0
        for batch in self.batches(schema):
            rows = len(next(iter(batch.values())))
            encode_into(self.name, schema, batch, out[at : at + rows])
            at += rows
        return out, self.read(others, schema) if others else {}


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
        except (pa.ArrowException, TypeError, ValueError):
            raise UserError(
                f"{self.name} holds a column whose values are neither all numbers nor all words: give each one type"
            ) from None

    def _arrow_schema(self) -> Any:
        return self._table.schema

    def _arrow(self, names: Sequence[str], schema: Mapping[str, Column] | None) -> Any:
        return self._table.select(names)


def open_table(kind: str, path: Path) -> CsvTable | ParquetTable:
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
        raise UserError(f"{key} = {str(value)!r} is no file: give the path of an existing one")
    return path


def load_npz(path: Path) -> dict[str, Array]:
    with reading("npz", path.name):
        return decode.npz(path)


def array_of(name: str, value: Any) -> Array:
    """An array, a tensor or lists as a numpy array; what has no such form, or would lose something, is refused."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        raise UserError(
            f"{name} is a masked array with masked values; fill them, or leave their records out."
        )
    if hasattr(value, "toarray") or isinstance(value, Iterator):
        raise UserError(
            f"{name} is of type {type(value).__name__}; give a dense array, for example by .toarray() or list(…)."
        )
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        kind = f"a tensor {value.dtype} on {value.device}" if hasattr(value, "detach") else "no table"
        raise UserError(
            f"{name} is {kind} that numpy cannot hold; give numbers, with rows of one length."
        ) from None


def same_index(name: str, value: Any, others: str, other: Any) -> None:
    """Refuse two pandas objects with different indices: they are matched by place."""
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


def from_arrays(name: str, x: Array, y: Array, *, y_name: str = "y", several: bool = False) -> Records:
    """Records of arrays; `several`: y is (N, L), labels of yes or no."""
    if x.ndim == 0 or 0 in x.shape[1:]:
        raise UserError(f"{name}: x has shape {x.shape}, give at least one number per record")
    if several and (y.ndim != 2 or len(y) != len(x) or not y.shape[1]):
        raise UserError(
            f"{name}: {y_name} has shape {y.shape}, and data.task = 'multi-label' needs ({len(x)}, labels)"
        )
    if not several and y.shape != (len(x),):
        hint = "; for several labels of yes or no set data.task = 'multi-label'" if y.ndim == 2 else ""
        raise UserError(
            f"{name}: {y_name} has shape {y.shape} where one value per row needs ({len(x)},){hint}"
        )
    if x.ndim not in (2, 3, 4) or x.dtype.kind not in "iufb":
        raise UserError(
            f"{name}: x has shape {x.shape} and dtype {x.dtype}, give numbers as (N, p) or images"
        )
    if y.dtype.kind not in "iufbUS":
        raise UserError(f"{name}: y has dtype {y.dtype}, give numbers or words")
    if not len(x):
        raise UserError(f"{name} has no rows: give a file with records")
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


def _is_numeric(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    return any(test(kind) for test in tests)


def _check_finite(name: str, values: Array, columns: Sequence[str]) -> None:
    bad = ~np.isfinite(values.astype(np.float32, copy=False))
    if bad.any():
        column = int(bad.any(axis=0).argmax()) if len(columns) > 1 else 0
        raise UserError(
            f"{name}: column {columns[column]!r} has rows that are NaN or infinite: fill or remove them"
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
    """All labels in the order of their class numbers."""
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


def class_numbers(y: Array, known: Array, key: str, where: str) -> npt.NDArray[np.int64]:
    """The position of every label in `known`."""
    y = _class_labels(y)
    if (y.dtype.kind in "US") != (known.dtype.kind in "US"):
        y, known = y.astype(np.str_), known.astype(np.str_)
    order = np.argsort(known)
    position = np.minimum(np.searchsorted(known, y, sorter=order), len(known) - 1)
    ids: npt.NDArray[np.int64] = order[position].astype(np.int64)
    if (known[ids] != y).any():
        raise UserError(f"{key} has labels that are not among {where}")
    return ids


def _class_labels(y: Array) -> Array:
    if y.dtype.kind != "f":
        return y
    if not np.all(y == np.round(y)):
        raise UserError(
            "data.task = 'classification' needs whole numbers or words as labels: the column has fractions"
        )
    return y.astype(np.int64)
