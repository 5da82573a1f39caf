"""The user's own records: in CSV, Parquet or npz files, one or one for each node, or passed in Python.

They are private, and what is private about them is declared, not read off. Of records passed in Python (arrays,
tensors, a pandas or polars frame, a torch Dataset) nothing is written down: the configuration says that there were such
records, and resuming the run needs them passed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from gossamer.data import tables
from gossamer.data.arrays import Array, is_large, joined, listed, share_rows, to_ranges
from gossamer.data.columns import Column, Columns, Interval, check_declared_once, number_names
from gossamer.data.dataset import Dataset, digest
from gossamer.data.packing import Part, is_several, layout_of, packed, refuse_undeclared_length, unnested
from gossamer.data.source import Names, Source, datasets
from gossamer.data.tables import FileTable, FrameTable, Named, ParquetTable, Records, Roles
from gossamer.errors import UserError, short
from gossamer.options.registry import Table

PLACE = "{node}"
Task = Literal["classification", "regression", "multi-label"]
Classes = Annotated[int, Field(ge=2, le=10**6)] | list[str | int | float | bool]
ReadOff = Literal["records", "classes", "targets"]


@dataclass(frozen=True, kw_only=True)
class OwnRecords(Source):
    """Records of the user's own: what is private about them is declared, not read off."""

    task: Annotated[Task | None, "if not set, fractions are targets and all else classes"] = None
    classes: Annotated[Classes | None, "public: their number, labels being 0, 1, …, or a list of all"] = None
    ranges: Annotated[dict[str, Interval] | None, "public [lo, hi] of a column, mapped to [0, 1]"] = None

    own: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_declared_once(self)

    @property
    def schema(self) -> Mapping[str, Column] | None:  # type: ignore[override]
        """The declared columns of a table, `data.columns`."""
        return getattr(self, "columns", None)

    @property
    def multi_label(self) -> bool:  # type: ignore[override]
        return self.task == "multi-label"

    @property
    def one_lot(self) -> bool:
        """Do all nodes' records come together, without their owners?"""
        return not self.file_per_node

    def dataset(self, train: Records, held_out: Records | None) -> Dataset:
        """The records with their labels as classes, targets or 0 and 1, and declared ranges as [0, 1]."""
        test = train.first(0) if held_out is None else held_out
        (x, y), (own_x, own_y) = ((part.x.shape[1:], part.y.shape[1:]) for part in (train, test))
        if (own_x, own_y) != (x, y):
            what = f"data.test holds records of shape {own_x} with labels {own_y}"
            raise UserError(f"{what}: it must be {x} with {y} as in training")
        y_train, y_test, labels, classes = self._labels(train.y, test.y)
        note = "private records: the digest stays on the node"
        if classes is not None:
            origin = "declared" if self.classes is not None else "read off the training labels"
            note += f"; classes {origin}"
        parts: dict[str, Any] = {"x_train": train.x, "y_train": y_train, "x_test": test.x, "y_test": y_test}
        if train.person is not None:  # a resumed run needs the same persons
            parts["person"] = train.person
        notes = {"source": "own file", "sha256": digest(parts), "note": note}
        if train.owner is not None:
            parts["owner"] = np.unique(train.owner, return_inverse=True)[1].astype(np.int64)
        dataset = Dataset(
            self.kind, **parts, classes=classes, labels=train.labels if train.y.ndim == 2 else labels,
            columns=tuple(train.columns), public_test=self.test_is_public,
            test_shares_rows=self.test_is_public and share_rows(train.x, test.x), provenance=notes,
        )  # fmt: skip
        ranges = self.ranges
        return dataset.map(lambda x: to_ranges(x, train.columns, ranges)) if ranges else dataset

    def _labels(self, train: Array, test: Array) -> tuple[Array, Array, tuple[Any, ...], int | None]:
        """(training labels, those of the hold-out, the names of the classes, their number)."""
        task, classes = self.task, self.classes
        if (task == "regression" or train.ndim == 2) and classes is not None:
            raise UserError(f"data.classes is set and data.task = {task or 'multi-label'!r} has none")
        if train.ndim == 2:
            return tables.yes_or_no(train, "data.label"), tables.yes_or_no(test, "data.test"), (), None
        # Declared classes are classes also where a program wrote their numbers as 0.0 and 1.0.
        if task == "regression" or (task is None and train.dtype.kind == "f" and classes is None):
            return tables.targets_of(train), tables.targets_of(test), (), None
        known = tables.known_labels(train, classes)
        where = "the training labels" if classes is None else "the declared data.classes"
        y_train = tables.class_numbers(train, known, "data.label", "the declared data.classes")
        y_test = tables.class_numbers(test, known, "data.test", where)
        return y_train, y_test, tuple(known.tolist()), len(known)


@dataclass(frozen=True, kw_only=True)
class OwnFile(OwnRecords):
    """Records of the user's own, in a file."""

    path: Annotated[str, "the file; {node} in it stands for the node's number: a file per node"]
    owner: Annotated[str | None, "the column, or array, whose values become the partition over nodes"] = None
    person: Annotated[str | None, "the column, or array, with each record's person; see privacy.unit"] = None
    test: Annotated[str | None, "a hold-out in a file of its own, declared public"] = None
    accounts: Annotated[str | None, "folder of accounts of what runs spent; the user's own if not set"] = None

    @property
    def test_is_public(self) -> bool:
        """A hold-out in a file of its own is declared public."""
        return self.test is not None

    @property
    def one_lot(self) -> bool:
        return self.owner is None and not self.file_per_node

    @property
    def file_per_node(self) -> bool:  # type: ignore[override]
        return PLACE in self.path

    def file_of(self, node: int | None, data_dir: Path | None) -> Path:
        """The file of the records, with a file per node that of `node`."""
        path = self.path if node is None else self.path.replace(PLACE, str(node))
        return tables.existing("data.path", path, data_dir).resolve()

    def public_rows(self, data_dir: Path | None) -> Records | None:
        """The public hold-out, or the columns of a record without any row; None if neither is declared."""
        return None

    def without_records(self, rows: Records, data_dir: Path | None, seed: int) -> Dataset:
        """The public hold-out as a run sees it, and no training record: to plan for other sites."""
        nobody = np.zeros(0, dtype=np.int64)
        public = self.prepared(self.dataset(rows.first(0), rows), data_dir, seed)
        return replace(public, owner=nobody, person=nobody)

    def names(self, data_dir: Path | None) -> list[str]:
        """The names of the columns that make a record; empty where its numbers have places only."""
        return []

    def with_features(self, names: Sequence[str]) -> OwnFile:
        """The same, with the columns of these names in this order."""
        return self


@dataclass(frozen=True, kw_only=True)
class _Table(OwnFile):
    """One record a line."""

    label: Annotated[str | Names, "the column to predict; a list: several labels of yes or no"]
    features: Annotated[list[str] | None, "columns to predict from; all without a role if not set"] = None
    columns: Columns = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.label, str) == (self.task == "multi-label") and self.task is not None:
            raise UserError(f"data.task = {self.task!r}: 'multi-label' alone needs a list in data.label")
        if len(set(tables.names_of(self.label))) < len(tables.names_of(self.label)):
            raise UserError(f"data.label = {self.label} names a column twice; name each once")

    @property
    def multi_label(self) -> bool:  # type: ignore[override]
        return not isinstance(self.label, str)

    @property
    def roles(self) -> Roles:
        return Roles(self.label, self.features, self.owner, self.person, self.columns)

    def _open(self, key: str, data_dir: Path | None) -> FileTable:
        return tables.open_table(self.kind, tables.existing(f"data.{key}", getattr(self, key), data_dir))

    def _features(self, table: FileTable) -> list[str]:
        if self.features is not None:
            return self.features
        return [name for name in table.names if name not in self.roles.others]

    def names(self, data_dir: Path | None) -> list[str]:
        return self._features(self._open("path", data_dir)) if self.columns is None else [*self.columns]

    def with_features(self, names: Sequence[str]) -> OwnFile:
        return self if self.columns is not None else replace(self, features=list(names))

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        mapped = self.mapped if isinstance(self, Parquet) else False
        train = self._open("path", data_dir).records(self.roles, mapped=mapped)
        return self.dataset(train, self._hold_out(data_dir, train.columns))

    def _hold_out(self, data_dir: Path | None, features: list[str] | None) -> Records | None:
        """The rows of data.test, their columns matched by name; `features`: those of training, if known."""
        if self.test is None:
            return None
        table = self._open("test", data_dir)
        features = self._features(table) if features is None else features
        used = features if self.columns is None else [*self.columns]
        absent = [name for name in (*used, *tables.names_of(self.label)) if name not in table.names]
        if absent:
            what = f"data.test = {self.test!r} has no column {listed(absent)}, which training has"
            raise UserError(f"{what}: columns are matched by name, and it has {listed(table.names)}")
        return table.records(Roles(self.label, features, schema=self.columns))

    def public_rows(self, data_dir: Path | None) -> Records | None:
        if self.test is not None:
            return self._hold_out(data_dir, None)
        known = self.features if self.columns is None else number_names(self.columns)
        if known is None:
            return None
        shape = (0, len(self.label)) if self.multi_label else (0,)
        labels = np.zeros(shape, dtype=np.float32 if self.task == "regression" else np.int64)
        return Records(np.zeros((0, len(known)), dtype=np.float32), labels, known)


@datasets.register("csv")
class Csv(_Table):
    """A CSV file of your own, one record a line, names in the first."""


@datasets.register("parquet")
@dataclass(frozen=True, kw_only=True)  # by hand for type checkers: code makes or replaces it
class Parquet(_Table):
    """A Parquet file of your own, one record a row."""

    mapped: Annotated[bool | None, "numbers in a temporary file; if memory is short if not set"] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mapped and self.columns is None:
            raise UserError("data.mapped = true needs data.columns to read a file in parts; declare them")

    def bytes_of_numbers(self, data_dir: Path | None) -> float:
        """Of all training records' declared columns; 0 where none are declared."""
        if self.columns is None:
            return 0.0
        return 4.0 * ParquetTable(self.file_of(None, data_dir)).rows * len(number_names(self.columns))


@datasets.register("npz")
class Npz(OwnFile):
    """An npz file of your own with x_train and y_train (or x and y), perhaps x_test and y_test.

    x is a table (N, p), or images (N, H, W), (N, C, H, W) or (N, H, W, C) with C = 1 or 3; uint8 images are
    divided by 255. A hold-out inside the file is used but not public; one in a file of its own (`test`) is.
    """

    def public_rows(self, data_dir: Path | None) -> Records | None:
        if self.test is None:
            return None
        path = tables.existing("data.test", self.test, data_dir)
        return self._records(path.name, tables.load_npz(path), "test")

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        path = tables.existing("data.path", self.path, data_dir)
        arrays = tables.load_npz(path)
        names = (self.owner, self.person)
        owner, person = (None if name is None else (name, _pick(path.name, arrays, name)) for name in names)
        train = self._records(path.name, arrays, "train").attach(path.name, owner, person)
        held_out = self.public_rows(data_dir)
        if held_out is None and "x_test" in arrays:
            held_out = self._records(path.name, arrays, "test")
        return self.dataset(train, held_out)

    def _records(self, name: str, arrays: Mapping[str, Array], part: str) -> Records:
        x, y = (_pick(name, arrays, f"{letter}_{part}", letter) for letter in "xy")
        return tables.from_arrays(name, x, y, y_name=f"y_{part}", several=self.multi_label)


def _pick(file: str, arrays: Mapping[str, Array], *names: str) -> Array:
    for name in names:
        if name in arrays:
            return arrays[name]
    raise UserError(f"{file} has no array {' or '.join(names)}: it has {', '.join(arrays)}")


def load_nodes(source: OwnFile, nodes: Sequence[int], *, data_dir: Path | None = None, seed: int = 0) -> Dataset:
    """The records of these nodes, one file after the other, columns matched by name; `owner` is the node."""
    if source.owner is not None:
        raise UserError(f"data.owner = {source.owner!r} does not go with a file per node; leave it out.")
    files = {i: replace(source, path=source.path.replace(PLACE, str(i))) for i in nodes}
    first = files[nodes[0]]
    names = first.names(data_dir)
    for file in files.values():
        own = file.names(data_dir)
        absent, more = [n for n in names if n not in own], [n for n in own if n not in names]
        if absent or more:
            parts = [f"lacks {listed(absent)}"] * bool(absent) + [f"has {listed(more)} besides"] * bool(more)
            what = f"other columns than {first.path!r}: it {' and '.join(parts)}"
            remedy = "give all the same names, or name those to use in data.features"
            raise UserError(f"data.path = {file.path!r} has {what}; {remedy}.")
    # Whether memory has room is decided for all files together: many small ones fill it too.
    undecided = [file for file in files.values() if isinstance(file, Parquet) and file.mapped is None]
    if is_large(sum(file.bytes_of_numbers(data_dir) for file in undecided)):
        files = {i: replace(file, mapped=True) if file in undecided else file for i, file in files.items()}
    parts_by_node = {i: file.with_features(names).load(data_dir, seed) for i, file in files.items()}
    return join_nodes(parts_by_node, "data.path")


def join_nodes(parts: Mapping[int, Dataset], key: str) -> Dataset:
    """The data sets of several nodes as one; `owner` is the node, and the same person id the same person."""
    node, first = next(iter(parts.items()))
    for i, its in parts.items():
        same = its.x_train.shape[1:] == first.x_train.shape[1:] and its.columns == first.columns
        if not same or its.labels != first.labels:  # class 0 would differ from node to node
            both = f"for node {i} than for node {node}"
            if same:
                raise UserError(f"{key} has other labels {both}; declare all in data.classes.")
            raise UserError(f"{key} has other columns {both}; give all the same.")
    every = list(parts.values())
    persons = [its.person for its in every if its.person is not None]
    sha256 = digest({"parts": np.array([its.provenance["sha256"] for its in every])})
    return replace(
        first,
        x_train=joined([its.x_train for its in every]),
        y_train=np.concatenate([its.y_train for its in every]),
        provenance={**first.provenance, "sha256": sha256},
        test_shares_rows=any(its.test_shares_rows for its in every),
        owner=np.repeat(np.array([*parts], np.int64), [len(its.y_train) for its in every]),
        person=np.concatenate(persons) if len(persons) == len(every) else None,
    )


@datasets.register("memory")
class Memory(OwnRecords):
    """Records handed over in Python: gossamer.run(..., data=(x, y)), see gossamer.Data."""

    by_node: Annotated[bool, "were each node's records handed over apart?"] = False
    owners: Annotated[bool, "did they come with a word on which node holds each?"] = False
    whose: Annotated[bool, "did they come with a word on whose each is?"] = False
    test: Annotated[bool, "was a hold-out handed over with them? It is public then"] = False
    read_off: Annotated[list[ReadOff], "read off the records: no ε covers it"] = field(default_factory=list)
    columns: Columns = None
    parts: Annotated[list[Annotated[Part, Table()]] | None, "its parts, a module's arguments"] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parts is None:
            return
        steps = "ranges", "transform", "standardise", "pca", "bias"
        scaled = self.scale != "none" and [part.type for part in self.parts] != ["float"]
        key = next((key for key in steps if getattr(self, key)), "scale" if scaled else None)
        if key is not None:
            raise UserError(f"data.{key} is for records of one part; leave it out.")

    @property
    def layout(self) -> list[Part] | None:  # type: ignore[override]
        return self.parts

    @property
    def file_per_node(self) -> bool:  # type: ignore[override]
        return self.by_node

    @property
    def one_lot(self) -> bool:
        return not (self.by_node or self.owners)

    @property
    def test_is_public(self) -> bool:
        return self.test

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        raise UserError("data.kind = 'memory' needs the records themselves; use gossamer.run(..., data=(x, y)).")


@dataclass(frozen=True)
class Data:
    """Records to learn from, passed in Python.

    records: (x, y) of arrays or tensors; a pandas or polars frame (with `label`); a torch Dataset of (x, y) pairs; or
        each node's own: a list, or a dictionary by node, of any of these. Where a module takes several arguments, x is
        a dictionary of arrays by argument, or a tuple of them in order. A dictionary by name with y in it needs
        `label`; so does a Dataset of such dictionaries. A Dataset's (a, b, y) is ((a, b), y). The x of (x, y) may be a
        frame, whose columns have their names.
    length: of sequences of different lengths, lists of arrays, and of an x that is one array: they are cut, or filled
        up with 0, and a mask, True where there is an entry, follows as one more argument ("mask"), unless x has a part
        named like that.
    sequences: x (N, L, F), if not of bytes, is L vectors a record, and no grey image (N, 1, L, F); set for a `module`
        without Conv2d.
    label: the column of a frame to predict, or a list of columns of yes or no; of arrays y is then (N, L), and task
        "multi-label".
    owners: which node holds each record: an array with one value a record, or a frame's column.
    persons: whose each record is: an array with one value a record, or a frame's column; with records by node a
        column, or a list or dictionary of arrays as the records are. For `privacy.unit = { column = … }`.
    features: the columns of a frame to learn from; all others if not set.
    test: a hold-out in the same form, declared public: figures on it may be shown.
    classes, task, count, ranges, columns: `data.classes`, `data.task`, `data.records`, `data.ranges` and `data.columns`
        of the configuration, which are public: what is private about the records is declared, not read off them.
    """

    records: Any
    label: str | Sequence[str] | None = None
    owners: Any = None
    persons: Any = None
    features: Sequence[str] | None = None
    test: Any = None
    classes: int | Sequence[Any] | None = None
    task: Task | None = None
    count: int | Sequence[int] | None = None
    ranges: Mapping[str, Sequence[float]] | None = None
    columns: Mapping[str, Any] | None = None
    length: int | None = None
    sequences: bool = False

    @classmethod
    def of(cls, value: Any) -> Data:
        return value if isinstance(value, cls) else cls(value)

    @property
    def nodes(self) -> int | None:
        """The number of nodes, where each has its own records."""
        return len(self.records) if self.by_node else None

    @property
    def by_node(self) -> bool:
        own = self.records
        return isinstance(own, list) or (isinstance(own, dict) and not _is_named(own))

    @property
    def _parts(self) -> list[Any]:
        """The records of each node, or of all nodes as one part."""
        if not self.by_node:
            return [self.records]
        return [*self.records.values()] if isinstance(self.records, dict) else self.records

    def check(self) -> None:
        """Refuse what is none of the forms above, before anything else is done with it."""
        if self.by_node and not self.records:
            raise UserError(f"data= is an empty {type(self.records).__name__}; give each node's records.")
        for part in self._parts:
            if not (tables.is_frame(part) or _is_torch_dataset(part) or _is_pair(part) or _is_named(part)):
                raise _unsupported_form("data=", part)
        if self.label is not None and any(map(_is_pair, self._parts)):
            raise UserError(f"label = {short(self.label)} names a column, and data= is (x, y); leave it out.")
        if not any(_frame_of(part) is not None for part in self._parts):
            by_name = any(_is_named(part) or _is_torch_dataset(part) for part in self._parts)
            for name, value in (("label", None if by_name else self.label), ("features", self.features)):
                if value is not None:
                    raise UserError(f"{name} = {short(value)} names columns; give a frame.")
        labels = self.label if isinstance(self.label, list | tuple) else [self.label or ""]
        if not all(isinstance(name, str) for name in labels):
            raise UserError(f"label = {short(self.label)} must be a column's name, or a list of them.")
        if isinstance(self.features, str):
            raise UserError(f"features = {self.features!r} must be a list of columns, [{self.features!r}].")

    def check_nodes(self, nodes: int) -> None:
        """A list has a part for each node; a dictionary those of nodes of the run, perhaps of this process only."""
        for name, parts in (("data=", self.records), ("persons", self.persons if self.by_node else None)):
            if isinstance(parts, list) and len(parts) != nodes:
                raise UserError(f"{name} lists {len(parts)} nodes' records, and nodes = {nodes}.")
            unknown = [i for i in parts if i not in range(nodes)] if self.by_node and isinstance(parts, dict) else []
            if unknown:
                raise UserError(f"{name} has records for node {unknown[0]!r}; nodes are 0 to {nodes - 1}.")

    def table(self) -> dict[str, Any]:
        """The table [data] of the configuration for these records."""
        declared = {
            "classes": self.classes,
            "task": self.task if self.label is None or isinstance(self.label, str) else "multi-label",
            "records": self.count,
            "ranges": self.ranges,
            "columns": self.columns,
        }
        return {
            "kind": "memory",
            "by_node": self.by_node,
            "owners": self.owners is not None,
            **({"whose": True} if self.persons is not None else {}),
            "test": self.test is not None,
            **({} if (parts := self._layout()) is None else {"parts": [asdict(part) for part in parts]}),
            **{key: _plain(value) for key, value in declared.items() if value is not None},
        }

    def dataset(self, source: Memory, nodes: Sequence[int], data_dir: Path | None, seed: int) -> Dataset:
        """The records of these nodes, or, where they came as one, of all."""
        table = self.table()
        for key in ("by_node", "owners", "whose", "test"):  # the partition of a resumed run must not change
            if table.get(key, False) != getattr(source, key) or self._layout() != source.parts:
                raise UserError(f"data.{key} is not what the run began with; pass records in the same form.")
        held_out = None if self.test is None else self._hold_out(source)
        if not self.by_node:
            records = self._read(source, self.records, self.owners, self.persons)
            return source.prepared(source.dataset(records, held_out), data_dir, seed)
        if self.owners is not None:
            raise UserError("data= has each node's records apart, and owners besides; give one of the two.")
        parts, own = {}, self._by_name()
        for i in nodes:
            column = self.persons is None or isinstance(self.persons, str)
            persons = self.persons if column else _of_node("persons=", self.persons, i)
            records = _of_node("data=", self.records, i)
            one, other = (_frame_of(part) for part in (self._parts[0], records))
            if own is not self and other is not None and {*map(str, one.columns)} != {*map(str, other.columns)}:
                raise UserError(f"data= of node {i} has columns {listed(other.columns)}; give {listed(one.columns)}.")
            parts[i] = source.dataset(own._read(source, records, None, persons, f"data= of node {i}"), held_out)
        return source.prepared(join_nodes(parts, "data="), data_dir, seed)

    def _hold_out(self, source: Memory) -> Records:
        return self._by_name()._read(source, self.test, None, None, "test=")

    def _by_name(self) -> Data:
        """The same, with the names of the first frame's features: other frames have them in orders of their own."""
        first = _frame_of(self._parts[0])
        if first is None or self.features is not None or self.columns is not None:
            return self
        roles = (self.owners, self.persons)
        named = (*tables.names_of(self.label), *(n for n in roles if isinstance(n, str)))
        return replace(self, features=[str(name) for name in first.columns if str(name) not in named])

    def _read(self, source: Memory, records: Any, owners: Any, persons: Any, where: str = "data=") -> Records:
        table = _frame_of(records)
        frame = table is not None
        columns = [value if frame and isinstance(value, str) else None for value in (owners, persons)]
        arrays = [
            None if value is None or column else _one_per_record(name, value, where, records)
            for name, value, column in zip(("owners", "persons"), (owners, persons), columns, strict=True)
        ]
        if not frame:
            return self._arrays(source, records, where).attach(where, *arrays)
        if self.label is None and table is records:
            raise UserError("data= is a frame; name the column to predict: gossamer.Data(frame, label=…).")
        if source.schema is not None and self.features is not None:
            raise UserError("features= is what columns= declares by name; leave out one of the two.")
        owner, person = columns
        roles = Roles(self.label, self.features, owner, person, source.schema)
        read = FrameTable(table, where).records(roles)
        if table is not records:
            tables.same_index("y", records[1], "x", table)
            y = _array(f"{where}: y", records[1])
            read = replace(read, y=tables.from_arrays(where, read.x, y, several=source.multi_label).y)
        return read.attach(where, *arrays)

    def _arrays(self, source: Memory, records: Any, where: str) -> Records:
        if source.schema is not None:
            raise UserError("data.columns declares columns by name, and data= has none; give a frame.")
        x, y = self._pair(records, where)
        tables.same_index("y", y, "x", x)
        refuse_undeclared_length(x, source.parts, where)
        x = packed(x, source.parts, where) if source.parts is not None else _array(f"{where}: x", x)
        return tables.from_arrays(where, x, _array(f"{where}: y", y), several=source.multi_label)

    def _pair(self, records: Any, where: str, rows: int | None = None) -> tuple[Any, Any]:
        """(x, y) of records that are no frame; `rows`: of so many of a Dataset's."""
        if _is_torch_dataset(records):
            if not hasattr(records, "__len__"):
                raise UserError("data= is a Dataset without pairs (x, y) of one shape; it must have a length.")
            if not len(records):
                raise UserError(f"{where} is a Dataset without records; give each node at least one.")
            records = _columns(records, len(records) if rows is None else rows, self.length is not None)
        if _is_named(records):
            if not isinstance(self.label, str) or self.label not in records:
                names = listed([*records])
                raise UserError(f"{where} has {names}; name the one to predict: gossamer.Data(…, label=…).")
            return {name: part for name, part in records.items() if name != self.label}, records[self.label]
        if not _is_pair(records):
            raise _unsupported_form(where, records)
        return unnested(records[0]), records[1]

    def _layout(self) -> list[Part] | None:
        """What a record consists of, where that is more than one tensor; of the first node's records."""
        if _frame_of(first := self._parts[0]) is not None:
            return None
        x, y = self._pair(first, "data=", rows=1)
        if self.length is not None or is_several(x, len(y) if hasattr(y, "__len__") else None):
            return layout_of(x, self.length)
        array = _array("data=: x", x) if self.sequences else np.zeros(0)
        return None if array.ndim != 3 or array.dtype == np.uint8 else [Part(name=0, shape=[*array.shape[1:]])]


def _of_node(key: str, parts: Any, node: int) -> Any:
    try:
        return parts[node]
    except (KeyError, IndexError, TypeError):
        raise UserError(f"{key} has no records for node {node}; give those of every node.") from None


def _one_per_record(name: str, value: Any, where: str, records: Any) -> Named:
    """One value for each record, in their order."""
    if isinstance(value, str):
        raise UserError(f"{name} = {value!r} names a column, and {where} has none; give an array.")
    tables.same_index(name, value, where, records[0] if _is_pair(records) else records)
    return name, _array(name, value)


def _plain(value: Any) -> Any:
    """As a configuration holds it: numpy's numbers and arrays are Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _frame_of(records: Any) -> Any:
    """The frame of records that are one, or (frame, y)."""
    table = records[0] if _is_pair(records) else records
    return table if tables.is_frame(table) else None


def _unsupported_form(name: str, value: Any) -> UserError:
    if _is_torch_dataset(own := getattr(value, "dataset", None)):
        return UserError(f"{name} is of type {type(value).__name__}; give its dataset, a {type(own).__name__}.")
    return UserError(
        f"{name} is of type {type(value).__name__}; give (x, y), a frame with its label, gossamer.Data(frame, "
        "label=…), a torch Dataset, or a list of these, one for each node."
    )


def _array(name: str, value: Any) -> Array:
    array = tables.array_of(name, value)
    words = array.dtype.kind == "O" and all(isinstance(item, str) for item in array.flat)
    return array.astype(np.str_) if words else array  # as pandas keeps them


def _is_torch_dataset(value: Any) -> bool:
    from torch.utils.data import Dataset as TorchDataset
    from torch.utils.data import IterableDataset

    if isinstance(value, IterableDataset):
        raise UserError("data= is an IterableDataset, whose records have no number; give one with a length.")
    return isinstance(value, TorchDataset)


def _is_named(value: Any) -> bool:
    """Is it a dictionary of columns by their names, and not of records by node?"""
    return isinstance(value, Mapping) and len(value) > 0 and all(isinstance(key, str) for key in value)


def _columns(dataset: Any, count: int, padded: bool) -> Any:
    """Every record once, (x, y) or a dictionary: what a dataset draws at random stays as it was drawn here."""
    column = partial(_column, padded=padded)
    try:
        rows = [dataset[i] for i in range(count)]
        if rows and _is_named(rows[0]):
            return column(rows)
        *parts, y = map(column, zip(*rows, strict=True))
        x = parts[0] if len(parts) == 1 else tuple(parts)
        return x, np.stack([_array("data=", one) for one in y])
    except UserError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"data= is a Dataset without pairs (x, y) of one shape: {reason}") from error


def _column(values: Sequence[Any], padded: bool) -> Any:
    """One part of all records: an array, a list of sequences that are to be padded, or such by name or by place."""
    first = values[0]
    if isinstance(first, Mapping):
        return {name: _column([value[name] for value in values], padded) for name in first}
    if isinstance(first, tuple):
        return tuple(_column(part, padded) for part in zip(*values, strict=True))
    arrays = [_array("data=", one) for one in values]
    whole = len({array.shape for array in arrays}) == 1 and not (padded and arrays[0].ndim)
    return np.stack(arrays) if whole else arrays
