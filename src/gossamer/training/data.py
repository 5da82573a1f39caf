"""The one loader: every command gets its records here, under the same policy, from the same cache.

The policy: what is private about the user's own records (their number, which labels occur) is declared, never read off
them; a file per node is read only where its node is hosted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.config.checks import is_private, labels_are_declared
from gossamer.config.schema import PersonUnit, RunConfig
from gossamer.data.dataset import Dataset
from gossamer.data.own import PLACE, Data, Memory, OwnFile, load_nodes
from gossamer.data.partition import (
    Even,
    Owner,
    Sizes,
    count_persons,
    group_rows,
    held_out_rows,
    most_sites,
    rows_of_persons,
)
from gossamer.data.partition import split as deal_out
from gossamer.errors import UserError
from gossamer.options.stage import STAGES

Rows = NDArray[Any]


class DataCache:
    """Holds the data set read last: the next run that wants the same does not read it again.

    `given`: records that were handed over in Python, for `data.kind = "memory"`.
    """

    def __init__(self, given: Data | None = None) -> None:
        self._key, self._given = "", given
        self._dataset: Dataset | None = None

    def load(self, config: RunConfig, data_dir: Path | None, nodes: range | None = None) -> Dataset:
        """The configuration's records; with a file per node, those of the nodes hosted here (of all, if None)."""
        key, data = key_of(config, data_dir, nodes), config.data
        if self._dataset is not None and key == self._key:
            return self._dataset
        labels_are_declared(config)
        STAGES.info("reading the data")
        self._dataset = None  # let go of the old one first: they can be large
        hosted = range(config.nodes) if nodes is None or config.baseline == "central" else nodes
        if isinstance(data, Memory) and self._given is not None:
            dataset = self._given.dataset(data, hosted, data_dir, config.seed)
        elif isinstance(data, OwnFile) and data.file_per_node:
            dataset = load_nodes(data, hosted, data_dir=data_dir, seed=config.seed)
        else:
            dataset = data.load(data_dir, config.seed)
        self._dataset, self._key = _checked(config, dataset), key
        return self._dataset


def _checked(config: RunConfig, dataset: Dataset) -> Dataset:
    """With a hold-out that may be shown and targets that the loss is of; no sentence says what a record holds."""
    loss = config.loss
    if loss is not None and dataset.classes is None and hasattr(loss, "takes"):
        for where, y in (("the training records", dataset.y_train), ("the hold-out", dataset.y_test)):
            if not loss.takes(y):
                raise UserError(f"loss.kind = {loss.kind!r} needs {loss.targets}, and a target of {where} is none.")
    # How many rows are shared is as private as the rows are.
    if dataset.test_shares_rows and is_private(config) and config.mode == "sound":
        raise UserError(
            "data.test holds training records, so it is not public and no ε covers figures on it; take them out of "
            'one of the two files, or use mode = "paper".'
        )
    return dataset


def key_of(config: RunConfig, data_dir: Path | None, nodes: range | None = None) -> str:
    """Return what the loaded records depend on; refuse records that this run may not have."""
    data = config.data
    options = {k: v for k, v in vars(data).items() if k not in ("partition", "records", "accounts")}
    hosted, files = None, []
    if isinstance(data, OwnFile):  # a file that changed meanwhile is read again
        held = range(config.nodes) if nodes is None else nodes
        own = [data.path.replace(PLACE, str(i)) for i in held] if data.file_per_node else [data.path]
        files = [_stamp(path) for path in (*own, data.test) if path]
    if data.file_per_node:
        hosted = [config.nodes, config.baseline == "central", None if nodes is None else [*nodes]]
    seed = config.seed if data.seeded else None
    wanted = getattr(config.loss, "targets", None)  # they are looked at once
    facts = [data.kind, options, seed, str(data_dir), is_private(config), config.mode, hosted, files, wanted]
    return repr(facts)


def _stamp(path: str) -> list[int]:
    try:
        status = Path(path).stat()
    except OSError:  # not there: reading will tell
        return []
    return [status.st_mtime_ns, status.st_size]


@dataclass(frozen=True)
class Held:
    """The rows of each node; where persons or nodes are protected, person after person, with their numbers."""

    rows: list[Rows]
    persons: list[Rows] | None = None
    judged: Held | None = None  # what is kept out of training, for a private evaluation

    @property
    def units(self) -> list[int]:
        """The number of protected units of each node, which it declares and lots are drawn of."""
        return [len(own) for own in (self.rows if self.persons is None else self.persons)]

    def at(self, nodes: range, *, pooled: bool) -> Held:
        """Those of these nodes; `pooled`: of one node that has everyone's."""

        def chosen(pieces: list[Rows]) -> list[Rows]:
            if pooled:
                return [np.concatenate(pieces)]
            return pieces[nodes.start : nodes.stop] if len(pieces) > len(nodes) else pieces

        persons = None if self.persons is None else chosen(self.persons)
        judged = None if self.judged is None else self.judged.at(nodes, pooled=pooled)
        return Held(chosen(self.rows), persons, judged)


def held(config: RunConfig, dataset: Dataset) -> Held:
    """`config` as it was asked for: a baseline pools what the nodes hold."""
    rows = split(config, dataset)
    if config.evaluation.private is None:
        return _units(config, dataset, rows)
    if len(dataset.x_test):
        raise UserError(
            f"evaluation.private = {config.evaluation.private:g} takes a part of each node's records, and there is a "
            "hold-out besides, which is no node's; leave it out of the file, or name a public one in data.test."
        )
    person = dataset.person if isinstance(config.privacy.unit, PersonUnit) else None
    part, x, y = config.evaluation.part, dataset.x_train, dataset.y_train
    out = [held_out_rows(x, y, person, own, part, config.seed) for own in rows]
    judged = _units(config, dataset, [own[of] for own, of in zip(rows, out, strict=True)])
    trained = _units(config, dataset, [own[~of] for own, of in zip(rows, out, strict=True)])
    return replace(trained, judged=judged)


def _units(config: RunConfig, dataset: Dataset, rows: list[Rows]) -> Held:
    """Rows with what is protected among them."""
    unit = config.privacy.unit
    if unit == "record":
        return Held(rows)
    if isinstance(unit, PersonUnit):
        assert dataset.person is not None
        by_person = [group_rows(own, dataset.person, unit.max_records) for own in rows]
        return Held([own for own, _ in by_person], [counts for _, counts in by_person])
    return Held(rows, [np.array([len(own)] if len(own) else [], dtype=np.int64) for own in rows])


def split(config: RunConfig, dataset: Dataset) -> list[Rows]:
    """Return the rows of each node; of persons all that are dealt out together stay together."""
    unit = config.privacy.unit
    if not isinstance(unit, PersonUnit):
        return _split(config, dataset)
    if dataset.person is None:
        raise UserError(
            f"privacy.unit.column = {unit.column!r} is a column of records of your own, and data.kind = "
            f"{config.data.kind!r} says of none whose it is; set data.persons (made-up ones), or persons= in Python."
        )
    fixed = dataset.owner is not None and config.data.partition in (Even(), Owner())
    if not fixed and not isinstance(config.data.partition, Even | Sizes):
        raise UserError(
            f"data.partition.kind = {config.data.partition.kind!r} deals records out by their labels, and would take a "
            "person's apart; use 'even', 'sizes' (of persons) or 'owner'."
        )
    if not fixed:
        persons = replace(dataset, y_train=np.zeros(count_persons(dataset.person), np.int64), owner=None)
        return rows_of_persons(_split(config, persons), dataset.person)
    pieces = _split(config, dataset)
    if most_sites(pieces, dataset.person) > unit.max_sites:
        raise UserError(
            f"privacy.unit.max_sites = {unit.max_sites} is fewer nodes than one person's records lie on; declare more, "
            "or put each person's records together."
        )
    return pieces


def _split(config: RunConfig, dataset: Dataset) -> list[Rows]:
    part = config.data.partition
    if config.data.file_per_node and dataset.owner is not None:
        if part not in (Even(), Owner()):
            raise UserError(f"data.partition.kind = {part.kind!r} does not go with a file per node; leave it out.")
        return [np.flatnonzero(dataset.owner == i) for i in np.unique(dataset.owner)]
    rng = np.random.default_rng([config.seed, 0x5EED])
    part = Owner() if part == Even() and dataset.owner is not None else part
    return deal_out(part, labels=dataset.y_train, nodes=config.nodes, rng=rng, owner=dataset.owner)


@dataclass(frozen=True)
class DataFacts:
    """The facts of the records that a plan needs."""

    dataset: Dataset | None  # if it had to be loaded
    shape: tuple[int, ...]  # of a record
    classes: int | None
    several: int | None  # labels of yes or no
    records: list[int]  # of each node, declared; of persons where they are protected
    # On average, as far as they were read: for what a run takes, not for what it costs.
    records_of_unit: float = 1.0

    @property
    def outputs(self) -> int:
        """The number of outputs of a network for a record."""
        return self.classes or self.several or 1


def facts_of(config: RunConfig, data_dir: Path | None, cache: DataCache, hosted: range | None) -> DataFacts:
    """From public knowledge where that is enough, else by loading."""
    known, nodes = config.data.known, config.nodes
    unit = config.privacy.unit
    at_once = known is not None and config.data.partition == Even() and known.rows[0] >= nodes
    if known is not None and at_once and not isinstance(unit, PersonUnit):
        rows = known.rows[0]  # the even split follows from the row count alone
        sizes = [rows // nodes + (i < rows % nodes) for i in range(nodes)]
        each = max(sizes) if unit == "node" else 1.0
        return DataFacts(None, known.shape, known.classes, None, declared(config, sizes), each)
    dataset = cache.load(config, data_dir, hosted)
    if config.data.file_per_node and config.data.records is None and unit != "node":
        raise UserError("data.records is not set: no node sees how many records others hold; declare it.")
    rows_held = held(config, dataset)
    sizes = rows_held.units
    each = sum(map(len, rows_held.rows)) / max(1, sum(sizes))
    sizes += [0] * (config.nodes - len(sizes))  # of nodes hosted elsewhere: what is declared counts
    return DataFacts(
        dataset,
        config.data.shape_of(dataset),
        dataset.classes,
        dataset.several,
        declared(config, sizes),
        each,
    )


def declared(config: RunConfig, sizes: Sequence[int]) -> list[int]:
    """J_i as declared, of what is protected. Of a public data set the sizes are public; of the user's own they must be
    declared. A node that is protected as a whole is one, and its number of records stays private.
    """
    if config.privacy.unit == "node":
        return [1] * len(sizes)
    value = config.data.records
    if value is not None:
        each = value if isinstance(value, list) else [value] * len(sizes)
        # As many as training has of them on average: how many it has is as private as how many there are.
        left = 1.0 if config.evaluation.private is None else 1 - config.evaluation.part
        return [max(1, round(left * count)) for count in each]
    if is_private(config):
        rounded = [max(1, round(size, -len(str(size)) + 2)) for size in sizes]
        example = rounded[0] if len(set(rounded)) == 1 else rounded
        raise UserError(
            f"data.records is not set: how many {config.privacy.protects.kind}s a node holds is private until you "
            f"declare it; set a public number, rounded as you like, for example data.records = {example}."
        )
    return list(sizes)
