"""Own records in a file per node, `clinic-{node}.csv`: a process opens those of the nodes it hosts and no others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.data.dataset import Dataset
from gossamer.data.digest import digest
from gossamer.data.limits import listed
from gossamer.data.mapped import is_large, joined
from gossamer.data.own import PLACE, OwnFile, Parquet
from gossamer.data.persons import Numbers
from gossamer.errors import UserError


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
