"""The table [data]: what every data set has, and what is done to its records before a model sees them."""

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

from gossamer.data import selection, sources
from gossamer.data.columns import Column
from gossamer.data.dataset import Dataset
from gossamer.data.limits import at_most, one_of
from gossamer.data.mapped import by_block
from gossamer.data.overlap import share_rows
from gossamer.data.partition import Even, Partition, partitions
from gossamer.data.projection import fit_components, project
from gossamer.data.scaling import Floats, to_unit_ball, to_unit_sphere, with_bias
from gossamer.data.standardise import Standard, Standardise, standardisations
from gossamer.errors import UserError
from gossamer.options.registry import Registry
from gossamer.options.types import Count, Positive

SCALES = {"unit-ball": to_unit_ball, "unit-sphere": to_unit_sphere}
MOST_WIDTH = 4096  # of records whose second moment is computed: 8 million numbers a node
Label = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Facts:
    """What everyone may know of a data set without reading a record."""

    rows: tuple[int, int]  # training and hold-out
    shape: tuple[int, ...]  # of a record
    classes: int


def _known_steps(transform: list[Any]) -> list[Any]:
    if transform:  # torch comes along: not where there are none
        from gossamer.data.features.chain import named_steps

        named_steps(transform)
    return transform


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """Where records come from. A new data set is a subclass with `read`, registered in `datasets`."""

    partition: Annotated[Partition, partitions, Field(description="which node holds which records")] = field(
        default_factory=Even
    )
    records: Annotated[
        Count | list[Count] | None,
        Field(description="the declared, public number of records of a node: one for all, or a list"),
    ] = None
    train_rows: Annotated[
        Count | None, Field(description="so many training rows, after a seeded shuffle")
    ] = None
    labels: Annotated[
        Annotated[list[Label], Field(min_length=1)] | None,
        Field(description="only the records of these classes"),
    ] = None
    positive: Annotated[Label | None, Field(description="two classes: this label against the rest")] = None
    held_out: Annotated[
        Count | None,
        Field(description="so many training rows take the place of the test rows, to choose settings on"),
    ] = None
    persons: Annotated[
        Count | None,
        Field(description="made-up persons of a set that has none: row i is of person i modulo so many"),
    ] = None
    transform: Annotated[
        list[Any],
        AfterValidator(_known_steps),
        Field(description="fixed features, a list of steps: see docs/frontier.md"),
    ] = field(default_factory=list)
    pca: Annotated[Count | None, Field(description="so many principal components in place of the record")] = (
        None
    )
    pca_from: Annotated[
        str,
        Field(
            description="what they are fitted on: a public set of the same width; private, the training records with "
            "noise that privacy.preprocessing pays for; or train, the same without"
        ),
    ] = "train"
    standardise: Annotated[
        Annotated[Standardise, standardisations] | None,
        Field(
            description="every column by its middle and spread, found with noise; see docs/preprocessing.md"
        ),
    ] = None
    class_weights: Annotated[
        Annotated[list[Positive], Field(min_length=2)] | Literal["private"] | None,
        Field(
            description="by what the loss of a record of each class is multiplied: a public list, or private, from "
            "counts with noise that privacy.preprocessing pays for"
        ),
    ] = None
    most_weight: Annotated[
        float, Field(gt=1, le=1000, description="private weights lie between this and 1 over it")
    ] = 10.0
    scale: Annotated[
        Literal["none", "unit-ball", "unit-sphere"],
        Field(description="every record by itself: x / max(1, ‖x‖), or x / ‖x‖"),
    ] = "none"
    bias: Annotated[
        bool | Literal["outside"],
        Field(description="a constant feature of a scaled table: (x, 1)/√2, in the ball, or outside: (x, 1)"),
    ] = False

    kind: ClassVar[str]
    own: ClassVar[bool] = False  # the user's own records: private, and kept nowhere else
    multi_label: ClassVar[bool] = False  # several labels of yes or no a record: y is (N, L)
    shuffled: ClassVar[bool] = False  # do the set's own records, or their split, follow the seed?
    facts: ClassVar[Facts | None] = None

    @abstractmethod
    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        """The set itself, before the options that all sets have."""

    @property
    def seeded(self) -> bool:
        """Do the records that `load` gives depend on the seed?"""
        return self.shuffled or self.train_rows is not None

    @property
    def schema(self) -> Mapping[str, Column] | None:
        """What the columns of a table were declared to hold; None where its numbers are taken as they are."""
        return None

    @property
    def bytes_read(self) -> float:
        """Bytes that the records take at most while they are read, as far as the options tell; 0: files tell."""
        return 12.0 * sum(self.facts.rows) * math.prod(self.facts.shape) if self.facts else 0.0

    @property
    def file_per_node(self) -> bool:
        """Own records, a file for each node?"""
        return False

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
        from gossamer.data.features.chain import shape_after

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
            dataset = selection.only_labels(dataset, self.labels)
        if self.transform:
            dataset = self._transformed(dataset, data_dir)
        if self.held_out is not None:
            dataset = selection.hold_out(dataset, self.held_out)
        if self.train_rows is not None:
            dataset = selection.first_rows(dataset, self.train_rows, seed)
        if self.positive is not None:
            dataset = selection.one_against_rest(dataset, self.positive)
        if self.persons is not None:
            dataset = selection.made_up_persons(dataset, self.persons, own=self.own)
        if self.standardise is not None:
            self.standardise.check(self, dataset)
        # What the run is to find, and pay for, comes first: until then records are as they were.
        return dataset if self.waits else self.finished(dataset, data_dir)

    def finished(
        self,
        dataset: Dataset,
        data_dir: Path | None = None,
        components: Floats | None = None,
    ) -> Dataset:
        """The last steps: components (released, of a public set or of these records), then every record's scale."""
        if components is not None:
            dataset = _projected(dataset, components)
        elif self.pca is not None:
            dataset = _reduced(dataset, self.pca, self.pca_from, data_dir)
        elif self.pca_from != "train":
            raise UserError(f"data.pca_from = {self.pca_from!r} needs data.pca, the number of components")
        return self.scaled(dataset)

    @property
    def private_components(self) -> bool:
        """Are components of the training records to be released before the first round?"""
        return self.pca is not None and self.pca_from == "private"

    @property
    def private_steps(self) -> tuple[str, ...]:
        """The keys that ask for something to be found on the training records before the first round."""
        asked = (
            (self.class_weights == "private", "data.class_weights = 'private'"),
            (self.standardise is not None, "data.standardise"),
            (self.private_components, "data.pca_from = 'private'"),
        )
        return tuple(said for is_asked, said in asked if is_asked)

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
        return self.scaled(
            replace(dataset, x_train=dataset.x_train[:0], x_test=dataset.x_test[:0])
        ).x_train.shape[1:]

    def _transformed(self, dataset: Dataset, data_dir: Path | None) -> Dataset:
        from gossamer.data.features.pipeline import transformed

        def public(kind: str, options: dict[str, Any]) -> Dataset:
            return datasets.parse({"kind": kind, **options}).load(data_dir)

        # Of the user's own records nothing is kept, not even features.
        return transformed(dataset, self.transform, public, keep=not self.own, data_dir=data_dir)

    def scaled(self, dataset: Dataset) -> Dataset:
        train, test = dataset.x_train, dataset.x_test
        if self.scale != "none":
            train, test = by_block(train, SCALES[self.scale]), SCALES[self.scale](test)
        if self.bias:
            if self.scale == "none" or dataset.x_train.ndim != 2:
                raise UserError(
                    f"data.bias = {json.dumps(self.bias)} needs a table with data.scale = 'unit-ball' or "
                    "'unit-sphere': the constant is part of it"
                )
            outside = self.bias == "outside"
            train = by_block(train, partial(with_bias, outside=outside))
            test = with_bias(test, outside=outside)
        return replace(dataset, x_train=train, x_test=test)


datasets: Registry[Source] = Registry("data")


def standardised(dataset: Dataset, standard: Standard) -> Dataset:
    """The records with their columns by this standard."""
    train, test = by_block(dataset.x_train, standard.applied), standard.applied(dataset.x_test)
    return replace(dataset, x_train=train, x_test=test, standard=standard)


def _projected(dataset: Dataset, basis: Floats) -> Dataset:
    """The records in place of which these components of them stand."""
    none = np.zeros(basis.shape[1], np.float32)
    said = f"{len(basis)} components of the training records, with noise"
    return replace(
        dataset,
        x_train=by_block(dataset.x_train, lambda x: project(x, none, basis)),
        x_test=project(dataset.x_test, none, basis),
        provenance={**dataset.provenance, "pca": said},
        components=basis,
    )


def _reduced(dataset: Dataset, components: int, origin: str, data_dir: Path | None) -> Dataset:
    """Principal components of the training records themselves ("train": reads them), or of a public set."""
    width = math.prod(dataset.x_train.shape[1:])
    count = at_most("data.pca", components, width)
    known = [name for name, info in sources.PUBLIC.items() if math.prod(info.shape) == width]
    name = one_of("data.pca_from", origin, ["train", *known])
    fitted = dataset.x_train if name == "train" else datasets.parse({"kind": name}).load(data_dir).x_train
    if name not in ("train", dataset.name) and share_rows(
        dataset.x_train.reshape(-1, width), fitted.reshape(-1, width)
    ):
        raise UserError(
            f"data.pca_from = {name!r} has records of the training set, so it is not public to them; name another, or "
            "'train' where nothing needs to be proven"
        )
    mean, basis = fit_components(fitted, count)
    return replace(
        dataset,
        x_train=by_block(dataset.x_train, lambda x: project(x, mean, basis)),
        x_test=project(dataset.x_test, mean, basis),
        provenance={**dataset.provenance, "pca": f"{count} components of {name}"},
    )
