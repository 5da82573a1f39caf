"""The one loader: every command gets its records here, under the same policy, from the same cache.

The policy: what is private about the user's own records (their number, which labels occur) is declared, never read off
them; a file per node is read only where its node is hosted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.config.checks import is_private, labels_are_declared
from gossamer.config.schema import RunConfig
from gossamer.data import load as data_load
from gossamer.data.by_node import has_file_per_node, load_nodes
from gossamer.data.dataset import Dataset
from gossamer.data.partition import partition
from gossamer.errors import UserError

Rows = NDArray[Any]
OWN = ("csv", "parquet", "npz")
# Sets that come shuffled by the seed even without options.
_SEEDED = (
    "covertype", "synthetic-regression", "synthetic-classification", "synthetic-logistic", *OWN,
)  # fmt: skip
# Options that do what they do whatever the seed.
_NOT_SEEDED = {"transform", "held_out", "scale", "bias"}


class DataCache:
    """Holds the data set read last: the next run that wants the same does not read it again."""

    def __init__(self) -> None:
        self._key = ""
        self._dataset: Dataset | None = None

    def load(self, config: RunConfig, data_dir: Path | None, nodes: range | None = None) -> Dataset:
        key = _key(config, data_dir, nodes)
        if self._dataset is None or key != self._key:
            self._dataset = None  # let go of the old one first: they can be large
            self._dataset, self._key = load(config, data_dir, nodes), key
        return self._dataset


def load(config: RunConfig, data_dir: Path | None, nodes: range | None = None) -> Dataset:
    """The configuration's records; with a file per node, those of the nodes hosted here (of all, if None)."""
    labels_are_declared(config)
    if reads_file_per_node(config):
        hosted = range(config.nodes) if nodes is None or config.baseline == "central" else nodes
        return load_nodes(
            config.data.kind, hosted, data_dir=data_dir, seed=config.seed, **config.data.options
        )
    return data_load.load(config.data.kind, data_dir=data_dir, seed=config.seed, **config.data.options)


def _key(config: RunConfig, data_dir: Path | None, nodes: range | None) -> str:
    kind, options = config.data.kind, config.data.options
    seeded = set(options) - _NOT_SEEDED or kind in _SEEDED
    hosted = None
    if reads_file_per_node(config):
        hosted = [config.nodes, config.baseline == "central", None if nodes is None else [*nodes]]
    checked = [is_private(config), hosted]  # what is refused for one run may be allowed for another
    return json.dumps(
        [kind, options, config.seed if seeded else None, str(data_dir), checked], sort_keys=True
    )


def reads_file_per_node(config: RunConfig) -> bool:
    return config.data.kind in OWN and has_file_per_node(config.data.options)


def split(config: RunConfig, dataset: Dataset) -> list[Rows]:
    """Which rows each node holds."""
    asked = config.data.partition
    if reads_file_per_node(config) and dataset.owner is not None:
        if asked.kind not in ("even", "owner") or asked.options:
            raise UserError(
                f"data.partition.kind = {asked.kind!r} does not go with a file per node, which is the partition; "
                "leave it out."
            )
        return [np.flatnonzero(dataset.owner == i) for i in np.unique(dataset.owner)]
    rng = np.random.default_rng([config.seed, 0x5EED])
    kind = "owner" if asked.kind == "even" and dataset.owner is not None and not asked.options else asked.kind
    return partition(
        kind, labels=dataset.y_train, nodes=config.nodes, rng=rng, owner=dataset.owner, **asked.options
    )


@dataclass(frozen=True)
class DataFacts:
    """What a plan needs to know of the records."""

    dataset: Dataset | None  # if it had to be loaded
    shape: tuple[int, ...]  # of a record
    classes: int | None
    records: list[int]  # of each node, declared


def facts_of(
    config: RunConfig, data_dir: Path | None, cache: DataCache | None, hosted: range | None
) -> DataFacts:
    """From public knowledge where that is enough, else by loading."""
    info = next((entry for entry in data_load.catalogue() if entry.name == config.data.kind), None)
    asked = config.data.partition
    plain = set(config.data.options) <= {"transform"} and asked == type(asked)()
    if info is not None and info.rows and info.shape and plain and info.rows[0] >= config.nodes:
        rows, nodes = info.rows[0], config.nodes
        sizes = [rows // nodes + (i < rows % nodes) for i in range(nodes)]  # the even split
        shape = data_load.shape_after(config.data.options.get("transform", []), info.shape)
        return DataFacts(None, shape, info.classes, declared(config, sizes))
    dataset = cache.load(config, data_dir, hosted) if cache else load(config, data_dir, hosted)
    if reads_file_per_node(config) and config.data.records is None:
        raise UserError(
            "data.records is not set: with a file per node nobody sees how many records the others hold; declare it."
        )
    sizes = [len(piece) for piece in split(config, dataset)]
    sizes += [0] * (config.nodes - len(sizes))  # of nodes hosted elsewhere: what is declared counts
    return DataFacts(dataset, dataset.x_train.shape[1:], dataset.classes, declared(config, sizes))


def declared(config: RunConfig, sizes: Sequence[int]) -> list[int]:
    """J_i as declared. Of a public data set the sizes are public; of the user's own they must be declared."""
    value = config.data.records
    if value is not None:
        return value if isinstance(value, list) else [value] * len(sizes)
    if is_private(config):
        rounded = [max(1, round(size, -len(str(size)) + 2)) for size in sizes]
        example = rounded[0] if len(set(rounded)) == 1 else rounded
        raise UserError(
            "data.records is not set: how many records a node holds is private until you declare it; "
            f"set a public number, rounded as you like, for example data.records = {example}."
        )
    return list(sizes)
