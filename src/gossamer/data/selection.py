"""Which training records count, and what their labels are: options that every set has, by public rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gossamer.data.dataset import Dataset
from gossamer.data.limits import at_most
from gossamer.data.mapped import gathered
from gossamer.errors import UserError


def only_labels(dataset: Dataset, labels: list[int]) -> Dataset:
    if dataset.classes is None:
        raise UserError(f"data.labels = {labels!r} needs a set with classes")
    for label in labels:
        at_most("data.labels", label, dataset.classes - 1, least=0)
    train, test = np.isin(dataset.y_train, labels), np.isin(dataset.y_test, labels)
    return replace(
        dataset,
        x_train=gathered(dataset.x_train, train),
        y_train=dataset.y_train[train],
        x_test=dataset.x_test[test],
        y_test=dataset.y_test[test],
        owner=None if dataset.owner is None else dataset.owner[train],
        person=None if dataset.person is None else dataset.person[train],
        provenance={**dataset.provenance, "labels": f"only {labels}"},
    )


def hold_out(dataset: Dataset, held_out: int) -> Dataset:
    available = len(dataset.y_train)
    rows = at_most("data.held_out", held_out, available - 1)
    out, kept = np.split(np.random.default_rng([0x401D]).permutation(available), [rows])
    return replace(
        dataset,
        x_train=gathered(dataset.x_train, kept),
        y_train=dataset.y_train[kept],
        x_test=gathered(dataset.x_train, out),
        y_test=dataset.y_train[out],
        owner=None if dataset.owner is None else dataset.owner[kept],
        person=None if dataset.person is None else dataset.person[kept],
        public_test=False,  # training records: what they show is not private
        provenance={**dataset.provenance, "held_out": f"{rows} training rows in place of the test rows"},
    )


def first_rows(dataset: Dataset, train_rows: int, seed: int) -> Dataset:
    available = len(dataset.y_train)
    rows = at_most("data.train_rows", train_rows, available)
    chosen = np.random.default_rng([seed, 1]).permutation(available)[:rows]
    return replace(
        dataset,
        x_train=gathered(dataset.x_train, chosen),
        y_train=dataset.y_train[chosen],
        owner=None if dataset.owner is None else dataset.owner[chosen],
        person=None if dataset.person is None else dataset.person[chosen],
        provenance={**dataset.provenance, "train_rows": f"{rows} of {available}, drawn with seed {seed}"},
    )


def made_up_persons(dataset: Dataset, persons: int, *, own: bool) -> Dataset:
    """By a public rule; whose records of the user's own are is never made up."""
    if own:
        raise UserError(
            f"data.persons = {persons} makes persons up, and your own records have real ones; name their column in "
            "privacy.unit.column"
        )
    at_most("data.persons", persons, len(dataset.y_train))
    return replace(dataset, person=np.arange(len(dataset.y_train)) % persons)


def one_against_rest(dataset: Dataset, positive: int) -> Dataset:
    """Two classes: this label is 1, all others are 0."""
    if dataset.classes is None:
        raise UserError(f"data.positive = {positive!r} needs labels of classes; these data have numbers")
    label = at_most("data.positive", positive, dataset.classes - 1, least=0)
    y_train, y_test = ((y == label).astype(np.int64) for y in (dataset.y_train, dataset.y_test))
    name = dataset.labels[label] if dataset.labels else label
    return replace(dataset, y_train=y_train, y_test=y_test, classes=2, labels=(f"not {name}", str(name)))
