"""The user's own records in files: CSV, Parquet or npz, one file or one for each node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from gossamer.data.arrays import Array, is_large, joined, listed, share_rows, to_ranges
from gossamer.data.columns import Column, Columns, number_names, refuse_said_twice
from gossamer.data.dataset import Dataset, digest
from gossamer.data.partition import Numbers
from gossamer.data.source import Source, datasets
from gossamer.data.tables import (
    Records,
    class_numbers,
    column_names,
    existing,
    from_arrays,
    known_labels,
    load_npz,
    names_of,
    read_table,
    rows_in,
    targets_of,
    yes_or_no,
)
from gossamer.errors import UserError

PLACE = "{node}"
BUDGET = "budget.jsonl"


@dataclass(frozen=True, kw_only=True)
class OwnRecords(Source):
    """Records of the user's own, wherever they lie: what is private about them is declared."""

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
        refuse_said_twice(self)

    @property
    def multi_label(self) -> bool:  # type: ignore[override]
        return self.task == "multi-label"

    @property
    def one_lot(self) -> bool:
        """Do all nodes' records come as one, without a word on who holds which?"""
        return not self.file_per_node

    def dataset(self, train: Records, held_out: Records | None) -> Dataset:
        return _assemble(
            self.kind,
            train,
            held_out,
            task=self.task,
            classes=self.classes,
            ranges=self.ranges,
            public_test=self.test_is_public,
        )


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
        """Was a hold-out given apart from the records, and so declared public?"""
        return self.test is not None

    @property
    def one_lot(self) -> bool:
        return self.owner is None and not self.file_per_node

    @property
    def file_per_node(self) -> bool:
        return PLACE in self.path

    def file_of(self, node: int | None, data_dir: Path | None) -> Path:
        """Where the records lie, with a file per node those of `node`."""
        path = self.path if node is None else self.path.replace(PLACE, str(node))
        return existing("data.path", path, data_dir).resolve()

    def budget_of(self, node: int | None, file: Path) -> Path:
        """Where what is spent on them is kept: beside them if not said otherwise."""
        if self.budget is None:
            return file.parent / BUDGET
        named = Path(self.budget if node is None else self.budget.replace(PLACE, str(node))).expanduser()
        return named.parent.resolve() / named.name

    def public_rows(self, data_dir: Path | None) -> Records | None:
        """What may be known without the records: the public hold-out alone, or its columns; None if neither is said."""
        return None

    def without_records(self, rows: Records, data_dir: Path | None, seed: int) -> Dataset:
        """The public hold-out as a run sees it, and no training record: for whoever plans for others."""
        none = replace(rows, x=rows.x[:0], y=rows.y[:0], owner=None, person=None)
        nobody = np.zeros(0, dtype=np.int64)
        return replace(self.prepared(self.dataset(none, rows), data_dir, seed), owner=nobody, person=nobody)

    def names(self, data_dir: Path | None) -> list[str]:
        """The names of what a record holds; empty where its numbers have places only."""
        return []

    def reading(self, names: Sequence[str]) -> OwnFile:
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

    def names(self, data_dir: Path | None) -> list[str]:
        if self.columns is not None:
            return [*self.columns]
        if self.features is not None:
            return self.features
        there = column_names(self.kind, existing("data.path", self.path, data_dir))
        return [name for name in there if name not in self._beside]

    def reading(self, names: Sequence[str]) -> OwnFile:
        return self if self.columns is not None else replace(self, features=list(names))

    def public_rows(self, data_dir: Path | None) -> Records | None:
        if self.test is not None:
            public = existing("data.test", self.test, data_dir)
            features = self._public_features(public)
            return read_table(self.kind, public, self.label, features, None, schema=self.columns)
        known = self.features if self.columns is None else number_names(self.columns)
        if known is None:
            return None
        shape = (0, len(self.label)) if self.multi_label else (0,)
        labels = np.zeros(shape, dtype=np.float32 if self.task == "regression" else np.int64)
        return Records(np.zeros((0, len(known)), dtype=np.float32), labels, None, known)

    @property
    def _mapped(self) -> bool | None:
        """Are the numbers of training records to lie in a file, in place of memory? None: where memory is short."""
        return False

    @property
    def _beside(self) -> tuple[str | None, ...]:
        """Columns that are no features."""
        return (*names_of(self.label), self.owner, self.person)

    def _public_features(self, public: Path) -> list[str] | None:
        """A hold-out may have the column of persons too."""
        if self.columns is not None or self.features is not None or self.person is None:
            return self.features
        return [n for n in column_names(self.kind, public) if n not in self._beside]

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        path = existing("data.path", self.path, data_dir)
        train = read_table(
            self.kind,
            path,
            self.label,
            self.features,
            self.owner,
            self.person,
            self.columns,
            mapped=self._mapped,
        )
        held_out = None
        if self.test is not None:
            public = existing("data.test", self.test, data_dir)
            there = column_names(self.kind, public)
            used = train.columns if self.columns is None else [*self.columns]
            lacking = [name for name in (*used, *names_of(self.label)) if name not in there]
            if lacking:
                raise UserError(
                    f"data.test = {self.test!r} has no column {listed(lacking)}, which training has: columns are "
                    f"matched by name, and it has {listed(there)}"
                )
            features = None if self.columns is not None else train.columns
            held_out = read_table(self.kind, public, self.label, features, None, schema=self.columns)
        return self.dataset(train, held_out)


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

    @property
    def _mapped(self) -> bool | None:
        return self.mapped

    def bytes_of_numbers(self, data_dir: Path | None) -> float:
        """Of all training records' declared columns; 0 where none are declared."""
        if self.columns is None:
            return 0.0
        rows = rows_in(existing("data.path", self.path, data_dir))
        return 4.0 * rows * len(number_names(self.columns))


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
        public = existing("data.test", self.test, data_dir)
        return from_arrays(
            public, load_npz(public), ("x_test", "x"), ("y_test", "y"), None, several=self.multi_label
        )

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        file = existing("data.path", self.path, data_dir)
        raw = load_npz(file)
        train = from_arrays(
            file, raw, ("x_train", "x"), ("y_train", "y"), self.owner, self.person, several=self.multi_label
        )
        held_out = None
        if self.test is not None:
            held_out = self.public_rows(data_dir)
        elif "x_test" in raw:
            held_out = from_arrays(file, raw, ("x_test",), ("y_test",), None, several=self.multi_label)
        return self.dataset(train, held_out)


def _assemble(
    name: str,
    train: Records,
    held_out: Records | None,
    *,
    task: str | None,
    classes: int | list[Any] | None,
    ranges: dict[str, list[float]] | None,
    public_test: bool,
) -> Dataset:
    if held_out is None:
        held_out = replace(train, x=train.x[:0], y=train.y[:0], owner=None, person=None)
    if held_out.x.shape[1:] != train.x.shape[1:]:
        raise UserError(
            f"data.test holds records of shape {held_out.x.shape[1:]}: it must be {train.x.shape[1:]} as in "
            "training"
        )
    if held_out.y.shape[1:] != train.y.shape[1:]:
        raise UserError(
            f"data.test has {held_out.y.shape[1:]} labels a record: it must be {train.y.shape[1:]}"
        )
    if (task == "regression" or train.y.ndim == 2) and classes is not None:
        said = task or "multi-label"
        raise UserError(
            f"data.classes is set and data.task = {said!r} has none: leave out the one that is not meant"
        )
    # Who declares classes has classes, also where a program wrote their numbers as 0.0 and 1.0.
    targets = train.y.dtype.kind == "f" and classes is None
    kind = task or ("regression" if targets else "classification")
    y: dict[str, Array] = {}
    count: int | None = None
    names: tuple[Any, ...] = ()
    note = "private records: the digest stays on the node"
    if train.y.ndim == 2:
        y = {"y_train": yes_or_no(train.y, "data.label"), "y_test": yes_or_no(held_out.y, "data.test")}
        names = train.labels
    elif kind == "regression":
        y = {"y_train": targets_of(train.y), "y_test": targets_of(held_out.y)}
    else:
        known = known_labels(train.y, classes)
        y["y_train"] = class_numbers(train.y, known, "data.label", "the declared data.classes")
        where = "the training labels" if classes is None else "the declared data.classes"
        y["y_test"] = class_numbers(held_out.y, known, "data.test", where)
        count, names = len(known), tuple(known.tolist())
        note += "; classes declared" if classes is not None else "; classes read off the training labels"
    owner = None if train.owner is None else np.unique(train.owner, return_inverse=True)[1].astype(np.int64)
    parts = {
        "x_train": train.x,
        "y_train": y["y_train"],
        "x_test": held_out.x,
        "y_test": y["y_test"],
    }
    if train.person is not None:  # a run that goes on knows whose its records were
        parts["person"] = train.person
    scaled = [train.x, held_out.x]
    if ranges:
        scaled = [to_ranges(x, train.columns, ranges) for x in scaled]
    return Dataset(
        name=name,
        x_train=scaled[0],
        y_train=y["y_train"],
        x_test=scaled[1],
        y_test=y["y_test"],
        classes=count,
        public_test=public_test,
        owner=owner,
        person=train.person,
        columns=tuple(train.columns),
        labels=names,
        test_shares_rows=public_test and share_rows(train.x, held_out.x),
        provenance={"source": "own file", "sha256": digest(parts), "note": note},
    )


def load_nodes(
    source: OwnFile, nodes: Sequence[int], *, data_dir: Path | None = None, seed: int = 0
) -> Dataset:
    """The records of these nodes, one file after the other; `owner` holds the nodes' numbers."""
    if source.owner is not None:
        raise UserError(f"data.owner = {source.owner!r} does not go with a file per node: leave it out.")
    files = {i: source.path.replace(PLACE, str(i)) for i in nodes}
    sources = _same_columns({i: replace(source, path=path) for i, path in files.items()}, data_dir)
    found = {i: its.load(data_dir, seed) for i, its in _with_room(sources, data_dir).items()}
    first = found[nodes[0]]
    for i, dataset in found.items():
        if dataset.x_train.shape[1:] != first.x_train.shape[1:] or dataset.labels != first.labels:
            raise UserError(
                f"data.path = {files[i]!r} has other columns or classes than {files[nodes[0]]!r}; "
                "name them in data.features and data.classes."
            )
    return replace(
        first,
        x_train=joined([dataset.x_train for dataset in found.values()]),
        y_train=np.concatenate([dataset.y_train for dataset in found.values()]),
        provenance=joined_provenance(found.values()),
        test_shares_rows=any(dataset.test_shares_rows for dataset in found.values()),
        owner=np.concatenate([np.full(len(d.y_train), i, dtype=np.int64) for i, d in found.items()]),
        person=joined_persons(found.values()),
    )


def _with_room(sources: Mapping[int, OwnFile], data_dir: Path | None) -> Mapping[int, OwnFile]:
    """Whether memory has room for the records is asked of all files together: many small ones fill it too."""
    asked = {i: its for i, its in sources.items() if isinstance(its, Parquet) and its.mapped is None}
    if not is_large(sum(its.bytes_of_numbers(data_dir) for its in asked.values())):
        return sources
    return {**sources, **{i: replace(its, mapped=True) for i, its in asked.items()}}


def joined_persons(found: Iterable[Dataset]) -> Numbers | None:
    """Whose the rows are, one data set after the other: the same id is the same person in all of them."""
    parts = [dataset.person for dataset in found]
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if known and len(known) == len(parts) else None


def joined_provenance(found: Iterable[Dataset]) -> dict[str, Any]:
    """That of the first, with a digest of all."""
    said = [dataset.provenance for dataset in found]
    return {**said[0], "sha256": digest({"parts": np.array([its["sha256"] for its in said])})}


def _same_columns(sources: Mapping[int, OwnFile], data_dir: Path | None) -> dict[int, OwnFile]:
    """The files as they are to be read: every one in the order of the first, columns matched by name."""
    first = next(iter(sources.values()))
    names = first.names(data_dir)
    for its in sources.values():
        there = its.names(data_dir)
        lacking, more = _apart(names, there), _apart(there, names)
        if lacking or more:
            said = [f"lacks {listed(lacking)}"] * bool(lacking) + [f"has {listed(more)} besides"] * bool(more)
            raise UserError(
                f"data.path = {its.path!r} has other columns than {first.path!r}: it {' and '.join(said)}; "
                "give all files the same names, or name those to use in data.features."
            )
    return {i: its.reading(names) for i, its in sources.items()}


def _apart(names: Sequence[str], others: Sequence[str]) -> list[str]:
    known = set(others)
    return [name for name in names if name not in known]
