"""Records passed in Python: arrays, tensors, a pandas or polars frame, a torch Dataset; for all nodes, or by node.

They are the user's own and private, as those in a file are, and pass the same checks. Nothing of them is written down:
the configuration says that there were such records, and resuming the run needs them passed again.
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
from gossamer.data.own import OwnRecords, join_nodes
from gossamer.data.source import datasets
from gossamer.data.tables import (
    FrameTable,
    Records,
    Roles,
    array_of,
    from_arrays,
    is_frame,
    names_of,
    same_index,
)
from gossamer.errors import UserError, short


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
    """Records to learn from, passed in Python.

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
        """The number of nodes, where each has its own records."""
        return len(self.records) if self.by_node else None

    @property
    def by_node(self) -> bool:
        return isinstance(self.records, list | dict)

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
            if not (is_frame(part) or _is_torch_dataset(part) or _is_pair(part)):
                raise _no_form("data=", part)
        if not any(map(is_frame, self._parts)):
            for name, value in (("label", self.label), ("features", self.features)):
                if value is not None:
                    raise UserError(
                        f"{name} = {short(value)} names columns, and data= has none; give a frame."
                    )
        labels = self.label if isinstance(self.label, list | tuple) else [self.label or ""]
        if not all(isinstance(name, str) for name in labels):
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
        """The table [data] of the configuration for these records."""
        declared: dict[str, Any] = {
            "classes": _plain(self.classes),
            "task": self.task if self.label is None or isinstance(self.label, str) else "multi-label",
            "records": _plain(self.count),
            "ranges": None if self.ranges is None else {k: [*map(float, v)] for k, v in self.ranges.items()},
            "columns": _plain(self.columns),
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
        table = self.table()
        for key in ("by_node", "owners", "whose", "test"):  # the partition of a resumed run must not change
            if table.get(key, False) != getattr(source, key):
                raise UserError(
                    f"data.{key} = {str(getattr(source, key)).lower()} in the configuration, and data= has it "
                    "otherwise; pass the records in the form that the run began with."
                )
        held_out = None if self.test is None else self._hold_out(source)
        if not self.by_node:
            records = self._read(source, self.records, self.owners, self.persons)
            return source.prepared(source.dataset(records, held_out), data_dir, seed)
        if self.owners is not None:
            raise UserError(
                "data= has each node's records apart, and owners besides; give one of the two, not both."
            )
        parts = {}
        for i in nodes:
            records = self._read(source, _of_node("data=", self.records, i), None, self._persons_of(i))
            parts[i] = source.dataset(records, held_out)
        return source.prepared(join_nodes(parts, "data="), data_dir, seed)

    def _persons_of(self, node: int) -> Any:
        if self.persons is None or isinstance(self.persons, str):
            return self.persons
        return _of_node("persons=", self.persons, node)

    def _hold_out(self, source: Memory) -> Records:
        """The rows of `test`; the columns of a frame are matched by name."""
        features, first = self.features, self._parts[0]
        if features is None and is_frame(first):
            named = (*names_of(self.label), *(n for n in (self.owners, self.persons) if isinstance(n, str)))
            features = [str(name) for name in first.columns if str(name) not in named]
        return replace(self, features=features)._read(source, self.test, None, None, "test=")

    def _read(self, source: Memory, given: Any, owners: Any, persons: Any, where: str = "data=") -> Records:
        frame = is_frame(given)
        arrays = [
            None
            if value is None or (frame and isinstance(value, str))
            else (name, _by_row(name, value, where, given))
            for name, value in (("owners", owners), ("persons", persons))
        ]
        if not frame:
            return self._arrays(source, given, where).attach(where, *arrays)
        if self.label is None:
            raise UserError(
                "data= is a frame; say which column is to be predicted: gossamer.Data(frame, label=…)."
            )
        if source.schema is not None and self.features is not None and where == "data=":
            raise UserError("features= is what columns= declares by name; leave out one of the two.")
        owner, person = (name if isinstance(name, str) else None for name in (owners, persons))
        roles = Roles(
            label=self.label, features=self.features, owner=owner, person=person, schema=source.schema
        )
        return FrameTable(given, where).records(roles).attach(where, *arrays)

    def _arrays(self, source: Memory, given: Any, where: str) -> Records:
        if source.schema is not None:
            raise UserError(
                "data.columns declares columns by name, and data= has none; give a frame, or leave columns= out."
            )
        pair = _pairs(given) if _is_torch_dataset(given) else given
        if not _is_pair(pair):
            raise _no_form(where, given)
        same_index("y", pair[1], "x", pair[0])
        x, y = (_array(f"{where}: {name}", value) for name, value in zip("xy", pair, strict=True))
        return from_arrays(where, x, y, several=source.multi_label)


def _of_node(key: str, parts: Any, node: int) -> Any:
    try:
        return parts[node]
    except (KeyError, IndexError, TypeError):
        raise UserError(f"{key} has no records for node {node}; give those of every node.") from None


def _by_row(name: str, value: Any, where: str, given: Any) -> Array:
    """One value for each record, in their order."""
    if isinstance(value, str):
        raise UserError(f"{name} = {value!r} names a column, and {where} has none; give an array.")
    same_index(name, value, where, given[0] if _is_pair(given) else given)
    return _array(name, value)


def _plain(value: Any) -> Any:
    """As a configuration holds it: numpy's numbers and arrays are Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


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
    """Every record once: what a dataset draws at random stays as it was drawn here."""
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
