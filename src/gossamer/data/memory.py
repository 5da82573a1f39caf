"""Records handed over in Python: arrays, tensors, a pandas or polars frame, a torch Dataset; for all nodes, or by node.

They are the user's own and private, as those in a file are, and pass the same checks. Nothing of them is written down:
the configuration says that there were such records, and who goes on with the run hands them over again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from gossamer.data.arrays import Array
from gossamer.data.columns import Column, Columns
from gossamer.data.dataset import Dataset
from gossamer.data.own import OwnRecords, joined_persons, joined_provenance
from gossamer.data.partition import numbers_of
from gossamer.data.source import datasets
from gossamer.data.tables import (
    Records,
    array_of,
    columns_of,
    from_arrays,
    from_columns,
    is_frame,
    names_of,
    no_value_missing,
    of_frame,
    refuse_too_many,
    same_index,
)
from gossamer.errors import UserError
from gossamer.options.sentences import short

_HERE = Path("data=")  # how messages speak of what was handed over


@datasets.register("memory")
@dataclass(frozen=True, kw_only=True)
class Memory(OwnRecords):
    """Records handed over in Python: gossamer.run(..., data=(x, y)), see gossamer.Data."""

    by_node: Annotated[bool, Field(description="were each node's records handed over apart?")] = False
    owners: Annotated[bool, Field(description="did they come with a word on which node holds each?")] = False
    whose: Annotated[bool, Field(description="did they come with a word on whose each is?")] = False
    test: Annotated[bool, Field(description="was a hold-out handed over with them? It is public then")] = (
        False
    )
    read_off: Annotated[
        list[Literal["records", "classes", "targets"]],
        Field(
            description="what was read off the records instead of declared: no ε covers it, the certificate says so"
        ),
    ] = field(default_factory=list)
    columns: Columns = None

    @property
    def schema(self) -> Mapping[str, Column] | None:
        return self.columns

    @property
    def file_per_node(self) -> bool:
        return self.by_node

    @property
    def one_lot(self) -> bool:
        return not (self.by_node or self.owners)

    @property
    def test_is_public(self) -> bool:
        return self.test

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        raise UserError(
            "data.kind = 'memory' needs the records themselves: gossamer.run(..., data=(x, y)) from Python."
        )


@dataclass(frozen=True)
class Data:
    """What a run is to learn from, as Python has it.

    records: (x, y) of arrays or tensors; a pandas or polars frame (with `label`); a torch Dataset of (x, y) pairs; or
        each node's own: a list, or a dictionary by node, of any of these.
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
    task: Literal["classification", "regression", "multi-label"] | None = None
    count: int | Sequence[int] | None = None
    ranges: Mapping[str, Sequence[float]] | None = None
    columns: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, value: Any) -> Data:
        return value if isinstance(value, cls) else cls(value)

    @property
    def nodes(self) -> int | None:
        """How many there are, where each has its own records."""
        return len(self.records) if self.by_node else None

    @property
    def by_node(self) -> bool:
        return isinstance(self.records, list | dict)

    def check(self) -> None:
        """Refuse what is none of the forms above, before anything else is said of it."""
        if self.by_node and not self.records:
            raise UserError(f"data= is an empty {type(self.records).__name__}; give each node's records.")
        its = self.records.values() if isinstance(self.records, dict) else self.records
        parts = [*its] if self.by_node else [self.records]
        for part in parts:
            if not (
                is_frame(part) or _is_torch_dataset(part) or (isinstance(part, tuple) and len(part) == 2)
            ):
                raise _no_form("data=", part)
        if not any(map(is_frame, parts)):
            for name, value in (("label", self.label), ("features", self.features)):
                if value is not None:
                    raise UserError(
                        f"{name} = {short(value)} names columns, and data= has none; give a frame."
                    )
        several = [*(self.label if isinstance(self.label, list | tuple) else [self.label or ""])]
        if not all(isinstance(name, str) for name in several):
            raise UserError(
                f"label = {short(self.label)} must be a column's name, as text, or a list of them."
            )
        if isinstance(self.features, str):
            raise UserError(f"features = {self.features!r} must be a list of columns, [{self.features!r}].")
        for name, mapping in (("ranges", self.ranges), ("columns", self.columns)):
            if not isinstance(mapping or {}, Mapping):
                raise UserError(f"{name} = {short(mapping)} must be a dictionary by column.")
        for pair in (self.ranges or {}).values():
            if np.shape(pair) != (2,) or np.asarray(pair).dtype.kind not in "iuf":
                raise UserError(
                    f"ranges = {short(self.ranges)} must have two numbers, [lo, hi], for a column."
                )

    def check_nodes(self, nodes: int) -> None:
        """A list has a part for each node; a dictionary those of nodes of the run, perhaps of this process only."""
        for name, parts in (("data=", self.records), ("persons", self.persons if self.by_node else None)):
            if isinstance(parts, list) and len(parts) != nodes:
                raise UserError(
                    f"{name} lists {len(parts)} nodes' records, and nodes = {nodes}; give one for each."
                )
            unknown = [key for key in parts if key not in range(nodes)] if isinstance(parts, dict) else []
            if unknown:
                raise UserError(
                    f"{name} has records for node {unknown[0]!r}, and nodes = {nodes}: they are 0 to {nodes - 1}."
                )

    def table(self) -> dict[str, Any]:
        """What the configuration says of them."""
        declared: dict[str, Any] = {
            "classes": _plain(self.classes),
            "task": self.task if self.label is None or isinstance(self.label, str) else "multi-label",
            "records": _plain(self.count),
            "ranges": None if self.ranges is None else {k: [*map(float, v)] for k, v in self.ranges.items()},
            "columns": None if self.columns is None else {k: _plain(v) for k, v in self.columns.items()},
        }
        return {
            "kind": "memory",
            "by_node": self.by_node,
            "owners": self.owners is not None,
            **({"whose": True} if self.persons is not None else {}),
            "test": self.test is not None,
            **{key: value for key, value in declared.items() if value is not None},
        }

    def dataset(self, source: Memory, nodes: Sequence[int], data_dir: Path | None, seed: int) -> Dataset:
        """The records of these nodes, or, where they came as one, of all."""
        self._check_is(source)
        column = isinstance(self.persons, str) and self.persons in getattr(self.test, "columns", ())
        held_out = None if self.test is None else self._test(source, self.persons if column else None)
        if not self.by_node:
            return source.prepared(
                source.dataset(self._read(source, self.records, self.owners, self.persons), held_out),
                data_dir,
                seed,
            )
        if self.owners is not None:
            raise UserError(
                "data= has each node's records apart, and owners besides; give one of the two, not both."
            )
        found = {
            i: source.dataset(self._read(source, self._of(i), None, self._persons_of(i)), held_out)
            for i in nodes
        }
        first = found[nodes[0]]
        for i, its in found.items():
            if its.x_train.shape[1:] != first.x_train.shape[1:] or its.columns != first.columns:
                raise UserError(
                    f"data= has other columns for node {i} than for node {nodes[0]}; give all nodes the same."
                )
            if its.labels != first.labels:  # a class would be one thing on this node and another on that
                raise UserError(
                    f"data= has other labels for node {i} than for node {nodes[0]}; declare all in classes=."
                )
        together = replace(
            first,
            x_train=np.concatenate([its.x_train for its in found.values()]),
            y_train=np.concatenate([its.y_train for its in found.values()]),
            provenance=joined_provenance(found.values()),
            test_shares_rows=any(its.test_shares_rows for its in found.values()),
            owner=np.concatenate([np.full(len(its.y_train), i, np.int64) for i, its in found.items()]),
            person=joined_persons(found.values()),
        )
        return source.prepared(together, data_dir, seed)

    def _test(self, source: Memory, persons: Any) -> Records:
        """Its columns are matched by name."""
        first = self._of(min(self.records)) if isinstance(self.records, dict) else self.records
        first = first[0] if isinstance(first, list) else first
        try:
            if not is_frame(first) or not is_frame(self.test):
                return self._read(source, self.test, None, persons)
            if source.schema is not None:
                return self._table(source.schema, self.test, None, persons)
            beside = {
                *names_of(self.label),
                self.owners if isinstance(self.owners, str) else None,
                persons,
                self.persons if isinstance(self.persons, str) else None,
            }
            features = self.features or [str(name) for name in first.columns if str(name) not in beside]
            return replace(self, features=features)._table(None, self.test, None, persons)
        except UserError as error:
            raise UserError(
                str(error).replace("data.features", "test=: features").replace("data=", "test=")
            ) from None

    def _check_is(self, source: Memory) -> None:
        """What goes on with a run is handed over as it was: who holds which record must not change."""
        here = self.table()
        for key in ("by_node", "owners", "whose", "test"):
            if here.get(key, False) != getattr(source, key):
                raise UserError(
                    f"data.{key} = {str(getattr(source, key)).lower()} in the configuration, and data= has it "
                    "otherwise; hand the records over in the form that the run began with."
                )

    def _of(self, node: int) -> Any:
        try:
            return self.records[node]
        except (KeyError, IndexError):
            raise UserError(f"data= has no records for node {node}; hand over those of every node.") from None

    def _persons_of(self, node: int) -> Any:
        if self.persons is None or isinstance(self.persons, str):
            return self.persons
        try:
            return self.persons[node]
        except (KeyError, IndexError, TypeError):
            raise UserError(
                f"persons= has nothing for node {node}; give a list or dictionary of arrays, as the records are."
            ) from None

    def _read(self, source: Memory, given: Any, owners: Any, persons: Any = None) -> Records:
        if is_frame(given):
            return self._table(source.schema, given, owners, persons)
        if source.schema is not None:
            raise UserError(
                "data.columns declares columns by name, and data= has none; give a frame, or leave columns= out."
            )
        if _is_torch_dataset(given):
            given = _pairs(given)
        if not isinstance(given, tuple) or len(given) != 2:
            raise _no_form("data=", given)
        arrays = {"x": _array("data=: x", given[0]), "y": _array("data=: y", given[1])}
        for name, value in (("y", given[1]), ("owners", owners), ("persons", persons)):
            same_index(name, value, "x", given[0])
        if isinstance(owners, str):
            raise UserError(f"owners = {owners!r} names a column, and data= has none; give an array.")
        owner = None if owners is None else "owners"
        if owner is not None:
            arrays["owners"] = _array("owners", owners)
            no_value_missing("owners", arrays["owners"])
        if isinstance(persons, str):
            raise UserError(f"persons = {persons!r} names a column, and data= has none; give an array.")
        person = None if persons is None else "persons"
        if person is not None:
            arrays["persons"] = _array("persons", persons)
        return from_arrays(_HERE, arrays, ["x"], ["y"], owner, person, several=source.multi_label)

    def _table(
        self, schema: Mapping[str, Column] | None, frame: Any, owners: Any, persons: Any = None
    ) -> Records:
        if self.label is None:
            raise UserError(
                "data= is a frame; say which column is to be predicted: gossamer.Data(frame, label=…)."
            )
        owner = owners if isinstance(owners, str) else None
        columns = columns_of(_HERE, of_frame(frame, "data="))
        refuse_too_many(_HERE, [*columns])
        person = persons if isinstance(persons, str) else None
        if schema is not None and self.features is not None:
            raise UserError("features= is what columns= declares by name; leave out one of the two.")
        read = from_columns(_HERE, columns, self.label, self.features, owner, person, schema=schema)
        if owner is None and owners is not None:
            by_row = _array("owners", owners)
            no_value_missing("owners", by_row)
            same_index("owners", owners, "data=", frame)
            if by_row.shape != (len(read.y),):
                raise UserError(
                    f"owners has shape {by_row.shape}, and there are {len(read.y)} records; give one value for each."
                )
            read = replace(read, owner=by_row)
        if person is None and persons is not None:
            ids = _array("persons", persons)
            same_index("persons", persons, "data=", frame)
            if ids.shape != (len(read.y),):
                raise UserError(
                    f"persons has shape {ids.shape}, and there are {len(read.y)} records; give one value for each."
                )
            read = replace(read, person=numbers_of(ids, "persons", "data="))
        return read


def _plain(value: Any) -> Any:
    """As a configuration holds it: numpy's numbers and arrays are Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _no_form(name: str, value: Any) -> UserError:
    return UserError(
        f"{name} is of type {type(value).__name__}; give (x, y), a frame with its label, gossamer.Data(frame, "
        "label=…), a torch Dataset, or a list of these, one for each node."
    )


def _array(name: str, value: Any) -> Array:
    array = array_of(name, value)
    words = array.dtype.kind == "O" and all(isinstance(item, str) for item in array.flat)
    return array.astype(np.str_) if words else array  # as pandas keeps them


def _is_torch_dataset(value: Any) -> bool:
    import torch.utils.data

    if isinstance(value, torch.utils.data.IterableDataset):
        raise UserError("data= is an IterableDataset, whose records have no number; give one with a length.")
    return isinstance(value, torch.utils.data.Dataset)


def _pairs(dataset: Any) -> tuple[Array, Array]:
    """Every record once: what a dataset draws anew at each visit stays as it was drawn here."""
    if not hasattr(dataset, "__len__"):
        raise UserError("data= is a Dataset without a length; give one with __len__.")
    try:
        pairs = [dataset[i] for i in range(len(dataset))]
    except Exception as error:
        raise UserError(f"data= is a Dataset that stops with {type(error).__name__}: {error}") from error
    if not pairs or any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in pairs):
        raise UserError("data= is a Dataset; its items must be pairs (x, y), and there must be at least one.")
    stacked = []
    for name, its in zip("xy", zip(*pairs, strict=True), strict=True):
        parts = [_array(f"data=: {name}", one) for one in its]
        if len({part.shape for part in parts}) > 1:
            raise UserError(
                f"data= is a Dataset whose {name} have different shapes; give all records the same."
            )
        stacked.append(np.stack(parts))
    return stacked[0], stacked[1]
