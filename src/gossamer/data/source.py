"""The table [data]: the options of every data set, and the preparation of its records."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, Field

from gossamer.data.arrays import Floats, at_most, fit_components, listed, project, scale_records, share_rows
from gossamer.data.columns import Column, Interval, Numeric
from gossamer.data.dataset import Dataset, Standard
from gossamer.data.decode import PUBLIC_SETS
from gossamer.data.origins import CheckedCopy, Origin
from gossamer.data.packing import Part
from gossamer.data.partition import Even, Partition, partitions
from gossamer.errors import UserError
from gossamer.options.registry import Registry
from gossamer.options.types import Count, Positive

Names = Annotated[list[str], Field(min_length=1)]
MOST_WIDTH = 4096  # of records whose columns, or second moment, are released


def _check_ends(ends: list[float]) -> list[float]:
    if max(map(abs, ends)) > 1e12:
        raise ValueError("must have ends of at most 1e12")
    return ends


Within = Annotated[Interval, AfterValidator(_check_ends)]


@dataclass(frozen=True, kw_only=True)
class Standardise:
    """Options of all kinds."""

    columns: Annotated[Names | None, "their names; all with a range if not set. Fewer need less noise"] = None
    within: Annotated[Within | None, "public [lo, hi] of all of them; [0, 1] if not set"] = None

    kind: ClassVar[str]

    @property
    def bounds(self) -> tuple[float, float]:
        low, high = self.within or (0.0, 1.0)
        return low, high

    def places(self, source: Source, dataset: Dataset) -> tuple[int, ...]:
        """Return their places in a record; of a table with declared columns, those with a range of numbers."""
        names = self.columns
        if source.schema is not None:
            ranged = [n for n, c in source.schema.items() if isinstance(c, Numeric) and c.range is not None]
            names = names or ranged
            others = [name for name in names if name not in ranged]
            if others or not ranged:
                wrong = f"{listed(others)} is none of them" if others else "there is none; declare one"
                raise UserError(f"data.standardise is for numeric columns with a range, and {wrong}")
        elif names is None:
            return tuple(range(math.prod(dataset.x_train.shape[1:])))
        unknown = [name for name in names if name not in dataset.columns]
        if unknown or dataset.x_train.ndim != 2 or dataset.x_train.shape[1] != len(dataset.columns):
            there = listed(dataset.columns) or "none with names"
            what = f"{listed(unknown or names)}, which is no column of the records as they are then"
            raise UserError(f"data.standardise.columns names {what}; there are {there}.")
        return tuple(dataset.columns.index(name) for name in names)

    def check(self, source: Source, dataset: Dataset) -> None:
        """Refuse what cannot be standardised, before anything is released."""
        if dataset.x_train.ndim < 2:
            raise UserError(f"data.standardise is for records with columns, not data.kind = {source.kind!r}.")
        if source.pca is not None and not source.private_components:
            what = f"data.pca_from = {source.pca_from!r}, whose components are of columns as they were"
            raise UserError(f"data.standardise does not go with {what}; use pca_from = 'private'.")
        places = self.places(source, dataset)
        if len(places) > MOST_WIDTH:
            what = f"at most {MOST_WIDTH:,} columns, and these records have {len(places):,}"
            raise UserError(f"data.standardise is for {what}; name those meant in data.standardise.columns.")
        if source.own and self.within is None and source.schema is None and not source.transform:
            declared = getattr(source, "ranges", None) or {}
            names = [dataset.columns[i] if dataset.columns else str(i) for i in places]
            open_ended = [name for name in names if name not in declared]
            if open_ended:
                what = f"data.standardise needs a public range of column {listed(open_ended)}"
                raise UserError(f"{what}; set data.ranges for it, however wide, or data.standardise.within.")


standardisations: Registry[Standardise] = Registry("data.standardise")


@standardisations.register("quantiles")
class Quantiles(Standardise):
    """By the median and the width of the middle 90%, from a histogram with noise: for ranges that are too wide."""


@standardisations.register("moments")
class Moments(Standardise):
    """By mean and deviation, from sums with noise: for many columns whose ranges are about right."""


def only_labels(dataset: Dataset, labels: list[int]) -> Dataset:
    if dataset.classes is None:
        raise UserError(f"data.labels = {labels!r} needs a set with classes; leave it out")
    for label in labels:
        at_most("data.labels", label, dataset.classes - 1, least=0)
    train, test = np.isin(dataset.y_train, labels), np.isin(dataset.y_test, labels)
    chosen = replace(dataset.take(train), x_test=dataset.x_test[test], y_test=dataset.y_test[test])
    return chosen.noted(labels=f"only {labels}")


def hold_out(dataset: Dataset, held_out: int) -> Dataset:
    available = len(dataset.y_train)
    rows = at_most("data.held_out", held_out, available - 1)
    draw = np.random.default_rng([0x401D])
    order = draw.permutation(available)
    if dataset.person is not None:  # all of a person's rows are on one side, and each person is as likely as another
        own = np.unique(dataset.person, return_inverse=True)[1]
        rank = draw.permutation(own.max() + 1)[own]
        order, ends = rank.argsort(kind="stable"), np.bincount(rank).cumsum()
        rows = int(ends[max(0, int(np.searchsorted(ends, rows, side="right")) - 1)])
    out, rest = np.split(order, [rows])
    test = dataset.take(out)
    # Training records: figures on them are not private.
    chosen = replace(dataset.take(rest), x_test=test.x_train, y_test=test.y_train, public_test=False)
    return chosen.noted(held_out=f"{rows} training rows in place of the test rows")


def first_rows(dataset: Dataset, train_rows: int, seed: int) -> Dataset:
    available = len(dataset.y_train)
    rows = at_most("data.train_rows", train_rows, available)
    chosen = np.random.default_rng([seed, 1]).permutation(available)[:rows]
    return dataset.take(chosen).noted(train_rows=f"{rows} of {available}, drawn with seed {seed}")


def synthetic_persons(dataset: Dataset, persons: int, *, own: bool) -> Dataset:
    """Persons by a public rule; the user's own records have real ones."""
    if own:
        raise UserError(f"data.persons = {persons} makes persons up; name your own in privacy.unit.column")
    at_most("data.persons", persons, len(dataset.y_train))
    return replace(dataset, person=np.arange(len(dataset.y_train)) % persons)


def one_against_rest(dataset: Dataset, positive: int) -> Dataset:
    """Two classes: this label is 1, all others are 0."""
    if dataset.classes is None:
        raise UserError(f"data.positive = {positive!r} needs a set with classes; leave it out")
    label = at_most("data.positive", positive, dataset.classes - 1, least=0)
    y_train, y_test = ((y == label).astype(np.int64) for y in (dataset.y_train, dataset.y_test))
    name = dataset.labels[label] if dataset.labels else label
    return replace(dataset, y_train=y_train, y_test=y_test, classes=2, labels=(f"not {name}", str(name)))


Label = Annotated[int, Field(ge=0)]
Scale = Literal["none", "unit-ball", "unit-sphere"]


@dataclass(frozen=True)
class Facts:
    """Public facts of a data set, known without reading a record."""

    rows: tuple[int, int]  # training and hold-out
    shape: tuple[int, ...]  # of a record
    classes: int


def described(name: str) -> tuple[Facts, Origin | None]:
    """A public set, as public.toml describes it; without an origin it comes with a library."""
    table = PUBLIC_SETS[name]
    origin = Origin.of(name, table) if "file" in table else None
    return Facts(tuple(table["rows"]), tuple(table["shape"]), table["classes"]), origin


def _known_steps(transform: list[Any]) -> list[Any]:
    if transform:  # torch comes along: not where there are none
        from gossamer.data.features.pipeline import named_steps

        named_steps(transform)
    return transform


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """A source of records. A new data set is a subclass with `read`, registered in `datasets`."""

    partition: Annotated[Partition, partitions, "which node holds which records"] = field(default_factory=Even)
    records: Annotated[Count | list[Count] | None, "declared, public: one for all nodes, or a list"] = None
    train_rows: Annotated[Count | None, "so many training rows, after a seeded shuffle"] = None
    labels: Annotated[list[Label] | None, Field(min_length=1), "only records of these classes"] = None
    positive: Annotated[Label | None, "two classes: this label against the rest"] = None
    held_out: Annotated[Count | None, "so many training rows replace the test rows, for tuning"] = None
    persons: Annotated[Count | None, "made-up persons: row i is of person i modulo so many"] = None
    transform: Annotated[
        list[Any], AfterValidator(_known_steps), "fixed features, a list of steps: see docs/frontier.md"
    ] = field(default_factory=list)
    pca: Annotated[Count | None, "so many principal components in place of the record"] = None
    pca_from: Annotated[str, "fitted on a public set; train: these records; private: with noise"] = "train"
    standardise: Annotated[
        Annotated[Standardise, standardisations] | None,
        "columns by middle and spread, with noise; see docs/preprocessing.md",
    ] = None
    class_weights: Annotated[
        Annotated[list[Positive], Field(min_length=2)] | Literal["private"] | None,
        "factors of each class's loss: a public list, or private, from counts with noise",
    ] = None
    most_weight: Annotated[float, Field(gt=1, le=1000), "private weights lie between it and 1 over it"] = 10.0
    scale: Annotated[Scale, "every record by itself: x / max(1, ‖x‖), or x / ‖x‖"] = "none"
    bias: Annotated[bool | Literal["outside"], "a constant feature: (x, 1)/√2, or outside: (x, 1)"] = False

    kind: ClassVar[str]
    own: ClassVar[bool] = False  # the user's own records: private, and kept nowhere else
    multi_label: ClassVar[bool] = False  # several labels of yes or no a record: y is (N, L)
    shuffled: ClassVar[bool] = False  # do the set's own records, or their split, follow the seed?
    facts: ClassVar[Facts | None] = None
    origin: ClassVar[Origin | None] = None  # of a public set's files
    file_per_node: ClassVar[bool] = False  # own records, a file for each node?
    # What the columns of a table were declared to hold; None where its numbers are taken as they are.
    schema: ClassVar[Mapping[str, Column] | None] = None
    # The parts of a record that a module takes as arguments of their own; None where it takes one tensor.
    layout: ClassVar[list[Part] | None] = None

    @abstractmethod
    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        """The set itself, before the options that all sets have."""

    def published(self, data_dir: Path | None) -> CheckedCopy:
        """The checked arrays of a public set."""
        assert self.origin is not None
        return self.origin.find(data_dir)

    @property
    def seeded(self) -> bool:
        """Do the records that `load` gives depend on the seed?"""
        return self.shuffled or self.train_rows is not None

    @property
    def bytes_read(self) -> float:
        """Bytes that the records take at most while they are read, as far as the options tell; 0: files tell."""
        return 12.0 * sum(self.facts.rows) * math.prod(self.facts.shape) if self.facts else 0.0

    @property
    def test_is_public(self) -> bool:
        """May figures on the hold-out be shown?"""
        return not self.own

    @property
    def known(self) -> Facts | None:
        """Rows, shape and classes as `load` will give them, where they follow without reading a record."""
        if self.facts is None or replace(self, transform=[], records=None, partition=Even()) != type(self)():
            return None
        if not self.transform:
            return self.facts
        from gossamer.data.features.pipeline import shape_after

        return replace(self.facts, shape=shape_after(self.transform, self.facts.shape))

    def load(self, data_dir: Path | None = None, seed: int = 0) -> Dataset:
        """The records, checked, scaled and ready for a model.

        data_dir: the folder to look in first; else the environment variable GOSSAMER_DATA.
        seed: for shuffles and synthetic sets.
        """
        if seed < 0:
            raise UserError(f"seed = {seed} must be a whole number at least 0")
        return self.prepared(self.read(data_dir, seed), data_dir, seed)

    def prepared(self, dataset: Dataset, data_dir: Path | None, seed: int) -> Dataset:
        """The set as it was read, with the options that all sets have."""
        dataset = replace(dataset, raw_shape=dataset.x_train.shape[1:])
        if self.labels is not None:
            dataset = only_labels(dataset, self.labels)
        if self.transform:
            from gossamer.data.features.pipeline import transformed

            # Of the user's own records nothing is cached, not even features.
            public = partial(load_public, data_dir=data_dir)
            dataset = transformed(dataset, self.transform, public, keep=not self.own, data_dir=data_dir)
        if self.held_out is not None:
            dataset = hold_out(dataset, self.held_out)
        if self.train_rows is not None:
            dataset = first_rows(dataset, self.train_rows, seed)
        if self.positive is not None:
            dataset = one_against_rest(dataset, self.positive)
        if self.persons is not None:
            dataset = synthetic_persons(dataset, self.persons, own=self.own)
        if self.standardise is not None:
            self.standardise.check(self, dataset)
        # What the run is to find, and pay for, comes first: until then records are as they were.
        return dataset if self.waits else self.finished(dataset, data_dir)

    def finished(self, dataset: Dataset, data_dir: Path | None = None, components: Floats | None = None) -> Dataset:
        """The last steps: components (released, of a public set or of these records), then every record's scale."""
        if components is not None:
            origin = np.zeros(components.shape[1], np.float32)
            dataset = replace(dataset.map(lambda x: project(x, origin, components)), components=components)
            dataset = dataset.noted(pca=f"{len(components)} components of the training records, with noise")
        elif self.pca is not None:
            dataset = self._reduced(dataset, data_dir)
        elif self.pca_from != "train":
            raise UserError(f"data.pca_from = {self.pca_from!r} needs data.pca; set the number of components")
        return self.scaled(dataset)

    @property
    def private_components(self) -> bool:
        """Are components of the training records to be released before the first round?"""
        return self.pca is not None and self.pca_from == "private"

    @property
    def private_steps(self) -> tuple[str, ...]:
        """The keys of steps that release something of the training records before the first round."""
        steps = {
            "data.class_weights = 'private'": self.class_weights == "private",
            "data.standardise": self.standardise is not None,
            "data.pca_from = 'private'": self.private_components,
        }
        return tuple(key for key, wanted in steps.items() if wanted)

    @property
    def waits(self) -> bool:
        """Do the last steps need what is released before the first round?"""
        return self.private_components or self.standardise is not None

    def shape_of(self, dataset: Dataset) -> tuple[int, ...]:
        """Of a record as a model sees it."""
        if not self.waits:
            return dataset.x_train.shape[1:]
        if self.private_components:
            assert self.pca is not None
            at_most("data.pca", self.pca, min(MOST_WIDTH, math.prod(dataset.x_train.shape[1:])))
            return (self.pca + bool(self.bias),)
        empty = replace(dataset, x_train=dataset.x_train[:0], x_test=dataset.x_test[:0])
        return self.scaled(empty).x_train.shape[1:]

    def scaled(self, dataset: Dataset) -> Dataset:
        if self.bias and (self.scale == "none" or dataset.x_train.ndim != 2):
            what = "a table with data.scale = 'unit-ball' or 'unit-sphere': the constant is part of it"
            raise UserError(f"data.bias = {json.dumps(self.bias)} needs {what}")
        if self.scale == "none":
            return dataset
        return dataset.map(lambda x: scale_records(x, self.scale, self.bias))

    def _reduced(self, dataset: Dataset, data_dir: Path | None) -> Dataset:
        """Principal components of the training records themselves ("train": reads them), or of a public set."""
        width = math.prod(dataset.x_train.shape[1:])
        count = at_most("data.pca", self.pca or 0, width)
        facts = {name: kind.facts for name, kind in datasets.kinds.items() if kind.facts is not None}
        known = ["train", *(name for name, its in facts.items() if math.prod(its.shape) == width)]
        if (name := self.pca_from) not in known:
            raise UserError(f"data.pca_from = {name!r} must be one of {', '.join(known)}")
        own = dataset.x_train.reshape(-1, width)
        fitted = own if name == "train" else load_public(name, {}, data_dir).x_train.reshape(-1, width)
        if name not in ("train", dataset.name) and share_rows(own, fitted):
            raise UserError(f"data.pca_from = {name!r} has records of the training set; name another")
        mean, basis = fit_components(fitted, count)
        return dataset.map(lambda x: project(x, mean, basis)).noted(pca=f"{count} components of {name}")


datasets: Registry[Source] = Registry("data")


def load_public(kind: str, options: Mapping[str, Any], data_dir: Path | None) -> Dataset:
    """A public set that features or components are fitted on."""
    return datasets.parse({**options, "kind": kind}).load(data_dir)


def standardised(dataset: Dataset, standard: Standard) -> Dataset:
    """The records with their columns by this standard."""
    return replace(dataset.map(standard.applied), standard=standard)
