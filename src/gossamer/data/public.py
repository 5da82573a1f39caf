"""Public data sets: images and tables, read from checked copies and scaled by public constants.

Which values a column can have is what the publisher lists, not what some records hold.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter

from gossamer.data import decode
from gossamer.data.arrays import Array, Floats, at_most, to_ranges
from gossamer.data.columns import Column, Schema, encode_into, number_names
from gossamer.data.dataset import Dataset
from gossamer.data.decode import HIE_COLUMNS, HIE_MISSING, HIE_UNIT, PUBLIC_SETS, Raw
from gossamer.data.origins import check_arrays
from gossamer.data.source import Source, datasets, described
from gossamer.errors import UserError

COVERTYPE_RANGES: dict[str, list[float]] = PUBLIC_SETS["covertype"]["ranges"]
# Of adult: ln(1 + x) in place of x, as most are 0 and a few in the thousands.
SKEWED = ("capital-gain", "capital-loss")
HIE_SCHEMA: Mapping[str, Column] = TypeAdapter(Schema).validate_python(PUBLIC_SETS["rand-hie"]["columns"])
HIE_NUMBERS = tuple(number_names(HIE_SCHEMA))
FREQUENT = 3  # visits to a doctor in a year


@datasets.register("digits")
class Digits(Source):
    """The 1,797 real 8 × 8 digits that come with scikit-learn, four fifths and one fifth at fixed random."""

    facts, origin = described("digits")

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        pixels, labels = _digits_of_scikit_learn()
        # RandomState's stream is frozen for good, so the public split is the same on every machine and version.
        order = np.random.RandomState(0).permutation(len(labels))
        raw: Raw = {}
        for part, rows in zip(("train", "test"), np.split(order, [self.facts.rows[0]]), strict=True):
            raw[f"x_{part}"], raw[f"y_{part}"] = pixels[rows], labels[rows]
        try:
            arrays, sha256 = check_arrays("digits", raw)
        except ValueError as error:
            raise UserError(f"data.kind = 'digits': scikit-learn's copy is refused, {error}") from error
        return _image_set("digits", arrays, 10, {"source": "scikit-learn", "sha256": sha256}, white=16)


def _digits_of_scikit_learn() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The arrays of `load_digits`, from its file: importing it would take as long as the first rounds.

    What was read is checked by its digest, like every public set.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise UserError("data.kind = 'digits' comes with scikit-learn, which is missing; use 'mnist'.")
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    try:
        table = np.loadtxt(path, delimiter=",")
    except (OSError, ValueError) as error:
        raise UserError(f"data.kind = 'digits': scikit-learn's copy cannot be read, {error}.") from None
    return table[:, :-1].reshape(-1, 8, 8).astype(np.uint8), table[:, -1].astype(np.int64)


class _Images(Source):
    """Images of a public set, pixels in [0, 1]."""

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        assert self.facts is not None
        copy = self.published(data_dir)
        return _image_set(self.kind, copy.content, self.facts.classes, copy.provenance, white=255)


@datasets.register("mnist")
class Mnist(_Images):
    """Handwritten digits, 60,000 and 10,000 images of 28 × 28 pixels."""

    facts, origin = described("mnist")


@datasets.register("fashion-mnist")
class FashionMnist(_Images):
    """Pieces of clothing, 60,000 and 10,000 images of 28 × 28 pixels."""

    facts, origin = described("fashion-mnist")


@datasets.register("cifar10")
class Cifar10(_Images):
    """Photographs of ten sorts of things, 50,000 and 10,000 images of 32 × 32 pixels in colour."""

    facts, origin = described("cifar10")


@datasets.register("cifar100")
class Cifar100(_Images):
    """Photographs of a hundred sorts of things, 50,000 and 10,000 images of 32 × 32 pixels in colour."""

    facts, origin = described("cifar100")


@datasets.register("cifar10-part")
class Cifar10Part(_Images):
    """A class-balanced part of CIFAR-10 for trying things out, 6,000 and 1,500 images; found in a folder only."""

    facts, origin = described("cifar10-part")


@datasets.register("cifar100-part")
class Cifar100Part(_Images):
    """A class-balanced part of CIFAR-100 for trying things out, 6,000 and 1,500 images; found in a folder only."""

    facts, origin = described("cifar100-part")


@datasets.register("covertype")
class Covertype(Source):
    """581,012 places in forests and what grows there, shuffled and split by the seed; public ranges to [0, 1]."""

    test_rows: Annotated[int | None, Field(ge=0), "rows of the hold-out; a fifth if not set"] = None

    shuffled: ClassVar[bool] = True
    facts, origin = described("covertype")

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        copy = self.published(data_dir)
        x = np.concatenate([copy.content["x_train"], copy.content["x_test"]])
        y = np.concatenate([copy.content["y_train"], copy.content["y_test"]]) - 1
        order = np.random.default_rng([seed, 0]).permutation(len(y))
        if self.test_rows is None:
            train, test = order[: self.facts.rows[0]], order[len(y) - self.facts.rows[1] :]
        else:
            test_rows = at_most("data.test_rows", self.test_rows, len(y) - 1, least=0)
            train, test = np.split(order, [len(y) - test_rows])
        columns = [*COVERTYPE_RANGES, *(str(column) for column in range(len(COVERTYPE_RANGES), x.shape[1]))]
        scaled = to_ranges(x.astype(np.float32), columns, COVERTYPE_RANGES)
        notes = {**copy.provenance, "split": f"shuffled with seed {seed}"}
        parts = scaled[train], y[train], scaled[test], y[test]
        return Dataset("covertype", *parts, 7, public_test=True, provenance=notes)


def _image_set(name: str, arrays: dict[str, Array], classes: int, provenance: dict[str, str], white: int) -> Dataset:
    """Pixels / `white`, channels first."""
    x: list[Floats] = []
    for pixels in (arrays["x_train"], arrays["x_test"]):
        planes = pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)
        x.append(np.ascontiguousarray(planes, dtype=np.float32))
        x[-1] /= np.float32(white)
    y_train, y_test = arrays["y_train"], arrays["y_test"]
    return Dataset(name, x[0], y_train, x[1], y_test, classes, public_test=True, provenance=provenance)


def adult_numbers(table: Array) -> Floats:
    """Every record by itself: numbers over their largest value, a column of 0 and 1 for each word and for "?"."""
    parts: list[Array] = []
    for values, (name, allowed) in zip(table.T, decode.ADULT_COLUMNS.items(), strict=True):
        if isinstance(allowed, int):
            scaled = np.log1p(values) / math.log1p(allowed) if name in SKEWED else values / allowed
            parts.append(scaled[:, None])
        else:
            parts.append(values[:, None] == np.arange(1 + len(allowed)))
    return np.hstack(parts).astype(np.float32)


@datasets.register("adult")
class Adult(Source):
    """Census records of 1994, 32,561 and 16,281: who earns more than 50,000 dollars; public ranges to [0, 1]."""

    facts, origin = described("adult")

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        copy = self.published(data_dir)
        train, test = (adult_numbers(copy.content[part]) for part in ("x_train", "x_test"))
        y_train, y_test = copy.content["y_train"], copy.content["y_test"]
        return Dataset("adult", train, y_train, test, y_test, 2, public_test=True, provenance=copy.provenance)


@datasets.register("rand-hie")
class RandHie(Source):
    """20,190 years of 5,912 persons at six sites of the RAND Health Insurance Experiment, 1974 to 1982.

    Families were given insurance plans at random, and every visit to a doctor was counted. The table is in the public
    domain, as statsmodels says, which brings it along; a row is a year of a person.
    A fifth of the persons, at fixed random, is the hold-out. Nodes are the sites, and persons are known.
    """

    outcome: Annotated[
        Literal["frequent", "visits"], "three or more visits to a doctor in the year, or their number"
    ] = "frequent"

    facts, origin = described("rand-hie")
    known = None  # the table itself holds the owners of its rows
    schema: ClassVar[Mapping[str, Column] | None] = HIE_SCHEMA

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        import pyarrow as pa

        copy = self.published(data_dir)
        raw, visits = copy.content["x_train"], copy.content["y_train"]

        def column(name: str) -> Array:
            values: Array = raw[:, HIE_COLUMNS.index(name)]
            return values

        numbers = {name: column(name) for name in HIE_SCHEMA}
        columns = {name: pa.array(x / HIE_UNIT, mask=x == HIE_MISSING) for name, x in numbers.items()}
        x = encode_into("rand-hie", HIE_SCHEMA, columns, np.zeros((len(raw), len(HIE_NUMBERS)), np.float32))
        person, site = column("zper") // HIE_UNIT, column("site") // HIE_UNIT - 1
        everybody = np.unique(person)
        # RandomState's stream is frozen for good, so the public split is the same on every machine and version.
        held_out = np.random.RandomState(0).permutation(everybody)[: len(everybody) // 5]
        test = np.isin(person, held_out)
        classes = self.outcome == "frequent"
        y = (visits >= FREQUENT).astype(np.int64) if classes else visits.astype(np.float32)
        names = ("fewer visits", "frequent visits") if classes else ()
        whole = Dataset(
            "rand-hie", x, y, x[test], y[test], 2 if classes else None, labels=names, public_test=True,
            owner=site, person=person, columns=HIE_NUMBERS, provenance=copy.provenance,
        )  # fmt: skip
        return whole.take(~test)
