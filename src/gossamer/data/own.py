"""The user's own records in files: CSV, Parquet or npz, one file or one for each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from gossamer.data.arrays import Array, is_large, joined, listed, share_rows, to_ranges
from gossamer.data.columns import Column, Columns, check_declared_once, number_names
from gossamer.data.dataset import Dataset, digest
from gossamer.data.source import Source, datasets
from gossamer.data.tables import (
    CsvTable,
    ParquetTable,
    Records,
    Roles,
    class_numbers,
    existing,
    from_arrays,
    known_labels,
    load_npz,
    names_of,
    open_table,
    targets_of,
    yes_or_no,
)
from gossamer.errors import UserError

PLACE = "{node}"
BUDGET = "budget.jsonl"


@dataclass(frozen=True, kw_only=True)
class OwnRecords(Source):
    """Records of the user's own: what is private about them is declared, not read off."""

    task: Annotated[
        Literal["classification", "regression", "multi-label"] | None,
        Field(
            description="if not set: whole numbers, words and truth values are classes, other numbers targets; "
            "multi-label: several labels of yes or no a record"
        ),
    ] = None
    classes: Annotated[
        Annotated[int, Field(ge=2, le=10**6)] | list[str | int | float | bool] | None,
        Field(description="their number, labels being 0, 1, …, or the list of all labels; public"),
    ] = None
    ranges: Annotated[
        dict[str, list[float]] | None, Field(description="public [lo, hi] of a column, mapped to [0, 1]")
    ] = None

    own: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_declared_once(self)

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
        if test.x.shape[1:] != train.x.shape[1:]:
            raise UserError(
                f"data.test holds records of shape {test.x.shape[1:]}: it must be {train.x.shape[1:]} as in training"
            )
        if test.y.shape[1:] != train.y.shape[1:]:
            raise UserError(
                f"data.test has {test.y.shape[1:]} labels a record: it must be {train.y.shape[1:]}"
            )
        y_train, y_test, labels, classes = self._labels(train.y, test.y)
        note = "private records: the digest stays on the node"
        if classes is not None:
            note += "; classes " + (
                "declared" if self.classes is not None else "read off the training labels"
            )
        parts = {"x_train": train.x, "y_train": y_train, "x_test": test.x, "y_test": y_test}
        if train.person is not None:  # a resumed run needs the same persons
            parts["person"] = train.person
        x_train, x_test = (
            to_ranges(x, train.columns, self.ranges) if self.ranges else x for x in (train.x, test.x)
        )
        return Dataset(
            name=self.kind,
            x_train=x_train,
            y_train=y_train,
            x_test=x_test,
            y_test=y_test,
            classes=classes,
            public_test=self.test_is_public,
            owner=None
            if train.owner is None
            else np.unique(train.owner, return_inverse=True)[1].astype(np.int64),
            person=train.person,
            columns=tuple(train.columns),
            labels=train.labels if train.y.ndim == 2 else labels,
            test_shares_rows=self.test_is_public and share_rows(train.x, test.x),
            provenance={"source": "own file", "sha256": digest(parts), "note": note},
        )

    def _labels(self, train: Array, test: Array) -> tuple[Array, Array, tuple[Any, ...], int | None]:
        """(training labels, those of the hold-out, the names of the classes, their number)."""
        task, classes = self.task, self.classes
        if (task == "regression" or train.ndim == 2) and classes is not None:
            raise UserError(
                f"data.classes is set and data.task = {task or 'multi-label'!r} has none: leave out the one that is "
                "not meant"
            )
        if train.ndim == 2:
            return yes_or_no(train, "data.label"), yes_or_no(test, "data.test"), (), None
        # Declared classes are classes also where a program wrote their numbers as 0.0 and 1.0.
        if task == "regression" or (task is None and train.dtype.kind == "f" and classes is None):
            return targets_of(train), targets_of(test), (), None
        known = known_labels(train, classes)
        where = "the training labels" if classes is None else "the declared data.classes"
        y_train = class_numbers(train, known, "data.label", "the declared data.classes")
        return y_train, class_numbers(test, known, "data.test", where), tuple(known.tolist()), len(known)


@dataclass(frozen=True, kw_only=True)
class OwnFile(OwnRecords):
    """Records of the user's own, in a file."""

    path: Annotated[
        str, Field(description="the file; {node} in it stands for the node's number: a file per node")
    ]
    owner: Annotated[
        str | None, Field(description="the column, or array, whose values become the partition over nodes")
    ] = None
    person: Annotated[
        str | None,
        Field(
            description="the column, or array, that says whose a record is, and no feature; see privacy.unit"
        ),
    ] = None
    test: Annotated[str | None, Field(description="a hold-out in a file of its own, declared public")] = None
    budget: Annotated[
        str | None,
        Field(
            description="where all runs on these records keep what they spend; budget.jsonl beside them if not set"
        ),
    ] = None

    @property
    def test_is_public(self) -> bool:
        """A hold-out in a file of its own is declared public."""
        return self.test is not None

    @property
    def one_lot(self) -> bool:
        return self.owner is None and not self.file_per_node

    @property
    def file_per_node(self) -> bool:
        return PLACE in self.path

    def file_of(self, node: int | None, data_dir: Path | None) -> Path:
        """The file of the records, with a file per node that of `node`."""
        path = self.path if node is None else self.path.replace(PLACE, str(node))
        return existing("data.path", path, data_dir).resolve()

    def budget_of(self, node: int | None, file: Path) -> Path:
        """The file that records what was spent on them: in their folder if not declared."""
        if self.budget is None:
            return file.parent / BUDGET
        named = Path(self.budget if node is None else self.budget.replace(PLACE, str(node))).expanduser()
        return named.parent.resolve() / named.name

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

    label: Annotated[
        str | Annotated[list[str], Field(min_length=1)],
        Field(
            description="the column to predict; a list: several of yes or no, which are 0 or 1, or true or false"
        ),
    ]
    features: Annotated[
        list[str] | None,
        Field(description="the columns to predict from; all but label, owner and person if not set"),
    ] = None
    columns: Columns = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.label, str) and self.task == "multi-label":
            raise UserError("data.task = 'multi-label' needs a list of columns in data.label")
        if not isinstance(self.label, str) and self.task not in (None, "multi-label"):
            raise UserError(
                f"data.label lists columns, which is data.task = 'multi-label', not {self.task!r}"
            )
        if len(set(names_of(self.label))) < len(names_of(self.label)):
            raise UserError(f"data.label = {self.label} names a column twice")

    @property
    def multi_label(self) -> bool:  # type: ignore[override]
        return not isinstance(self.label, str)

    @property
    def schema(self) -> Mapping[str, Column] | None:
        return self.columns

    @property
    def roles(self) -> Roles:
        return Roles(
            label=self.label,
            features=self.features,
            owner=self.owner,
            person=self.person,
            schema=self.columns,
        )

    def _open(self, key: str, data_dir: Path | None) -> CsvTable | ParquetTable:
        return open_table(self.kind, existing(f"data.{key}", getattr(self, key), data_dir))

    def _features(self, table: CsvTable | ParquetTable) -> list[str]:
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
        absent = [name for name in (*used, *names_of(self.label)) if name not in table.names]
        if absent:
            raise UserError(
                f"data.test = {self.test!r} has no column {listed(absent)}, which training has: columns are matched by "
                f"name, and it has {listed(table.names)}"
            )
        return table.records(Roles(label=self.label, features=features, schema=self.columns))

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
@dataclass(frozen=True, kw_only=True)
class Csv(_Table):
    """A CSV file of your own, one record a line, names in the first."""


@datasets.register("parquet")
@dataclass(frozen=True, kw_only=True)
class Parquet(_Table):
    """A Parquet file of your own, one record a row."""

    mapped: Annotated[
        bool | None,
        Field(
            description="with columns: keep the numbers in a temporary file in place of memory; where memory is short "
            "if not set"
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mapped and self.columns is None:
            raise UserError("data.mapped = true needs data.columns, by which a file is read in parts")

    def bytes_of_numbers(self, data_dir: Path | None) -> float:
        """Of all training records' declared columns; 0 where none are declared."""
        if self.columns is None:
            return 0.0
        return 4.0 * ParquetTable(self.file_of(None, data_dir)).rows * len(number_names(self.columns))


@datasets.register("npz")
@dataclass(frozen=True, kw_only=True)
class Npz(OwnFile):
    """An npz file of your own with x_train and y_train (or x and y), perhaps x_test and y_test.

    x is a table (N, p), or images (N, H, W), (N, C, H, W) or (N, H, W, C) with C = 1 or 3; uint8 images are
    divided by 255. A hold-out inside the file is used but not public; one in a file of its own (`test`) is.
    """

    def public_rows(self, data_dir: Path | None) -> Records | None:
        if self.test is None:
            return None
        path = existing("data.test", self.test, data_dir)
        return self._records(path.name, load_npz(path), "test")

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        path = existing("data.path", self.path, data_dir)
        arrays = load_npz(path)
        owner, person = (
            None if name is None else (name, _pick(path.name, arrays, name))
            for name in (self.owner, self.person)
        )
        train = self._records(path.name, arrays, "train").attach(path.name, owner, person)
        held_out = self.public_rows(data_dir)
        if held_out is None and "x_test" in arrays:
            held_out = self._records(path.name, arrays, "test")
        return self.dataset(train, held_out)

    def _records(self, name: str, arrays: Mapping[str, Array], part: str) -> Records:
        x, y = (_pick(name, arrays, f"{letter}_{part}", letter) for letter in "xy")
        return from_arrays(name, x, y, y_name=f"y_{part}", several=self.multi_label)


def _pick(file: str, arrays: Mapping[str, Array], *names: str) -> Array:
    for name in names:
        if name in arrays:
            return arrays[name]
    raise UserError(f"{file} has no array {' or '.join(names)}: it has {', '.join(arrays)}")


def load_nodes(
    source: OwnFile, nodes: Sequence[int], *, data_dir: Path | None = None, seed: int = 0
) -> Dataset:
    """The records of these nodes, one file after the other, columns matched by name; `owner` is the node."""
    if source.owner is not None:
        raise UserError(f"data.owner = {source.owner!r} does not go with a file per node: leave it out.")
    files = {i: replace(source, path=source.path.replace(PLACE, str(i))) for i in nodes}
    first = files[nodes[0]]
    names = first.names(data_dir)
    for file in files.values():
        own = file.names(data_dir)
        absent, more = [n for n in names if n not in own], [n for n in own if n not in names]
        if absent or more:
            parts = [f"lacks {listed(absent)}"] * bool(absent) + [f"has {listed(more)} besides"] * bool(more)
            raise UserError(
                f"data.path = {file.path!r} has other columns than {first.path!r}: it {' and '.join(parts)}; "
                "give all files the same names, or name those to use in data.features."
            )
    # Whether memory has room is decided for all files together: many small ones fill it too.
    undecided = [file for file in files.values() if isinstance(file, Parquet) and file.mapped is None]
    if is_large(sum(file.bytes_of_numbers(data_dir) for file in undecided)):
        files = {i: replace(file, mapped=True) if file in undecided else file for i, file in files.items()}
    return join_nodes(
        {i: file.with_features(names).load(data_dir, seed) for i, file in files.items()}, "data.path"
    )


def join_nodes(parts: Mapping[int, Dataset], key: str) -> Dataset:
    """The data sets of several nodes as one; `owner` is the node, and the same person id the same person."""
    node, first = next(iter(parts.items()))
    for i, its in parts.items():
        if its.x_train.shape[1:] != first.x_train.shape[1:] or its.columns != first.columns:
            raise UserError(
                f"{key} has other columns for node {i} than for node {node}; give all nodes the same."
            )
        if its.labels != first.labels:  # class 0 would differ from node to node
            raise UserError(
                f"{key} has other labels for node {i} than for node {node}; declare all in data.classes."
            )
    every = list(parts.values())
    persons = [its.person for its in every if its.person is not None]
    return replace(
        first,
        x_train=joined([its.x_train for its in every]),
        y_train=np.concatenate([its.y_train for its in every]),
        provenance={
            **first.provenance,
            "sha256": digest({"parts": np.array([its.provenance["sha256"] for its in every])}),
        },
        test_shares_rows=any(its.test_shares_rows for its in every),
        owner=np.repeat(np.array([*parts], np.int64), [len(its.y_train) for its in every]),
        person=np.concatenate(persons) if len(persons) == len(every) else None,
    )
