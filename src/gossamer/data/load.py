"""One door to every data set."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.data import own, sources, synthetic
from gossamer.data.dataset import Array, Dataset
from gossamer.data.digest import MismatchError, check_arrays
from gossamer.data.fetch import cache_dir
from gossamer.data.projection import fit_components, project
from gossamer.data.scaling import Floats, to_ranges, to_unit_ball, to_unit_sphere, with_bias
from gossamer.data.values import flag, one_of, refuse_unknown, whole
from gossamer.errors import UserError

DIGITS_TRAIN_ROWS = 1437
COMMON_OPTIONS = {
    "train_rows", "labels", "held_out", "transform", "pca", "pca_from", "scale", "bias", "positive",
}  # fmt: skip
SCALES = {"unit-ball": to_unit_ball, "unit-sphere": to_unit_sphere}
OWN_KINDS = ("csv", "parquet", "npz")

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


@dataclass(frozen=True)
class SetInfo:
    """One line of `gossamer data list`."""

    name: str
    rows: tuple[int, int] | None  # training and hold-out; None: as many as asked for
    shape: tuple[int, ...] | None
    classes: int | None
    origins: tuple[str, ...]
    available: bool  # offline, now; a file is there, its content is checked when it is loaded


def load(kind: str, *, data_dir: Path | None = None, seed: int = 0, **options: Any) -> Dataset:
    """Load a data set, checked, scaled and ready for a model.

    Args:
        kind: a public set's name, or csv, parquet or npz for the user's own records.
        data_dir: the folder to look in first; else the environment variable GOSSAMER_DATA.
        seed: for shuffles and synthetic sets.
        options: of the set, and for all: `labels` (only records of these classes), `train_rows` (that many
            after a seeded shuffle), `positive` (this label against the rest), `pca` (so many principal
            components of `pca_from`, a public set, or "train"), `transform` (fixed features, see
            docs/frontier.md), `scale = "unit-ball"` (every record by itself:
            x / max(1, ‖x‖)) or `"unit-sphere"` (x / ‖x‖), and for tables in it `bias`: true is (x, 1)/√2, inside
            the ball, "outside" is (x, 1), of norm √2.
            `held_out`: so many training rows, whatever the seed the same ones, take the place of the test rows:
            settings are to be chosen on them.
    """
    loader = LOADERS[one_of("data.kind", kind, LOADERS)]
    refuse_unknown("data", loader, options, COMMON_OPTIONS)
    given = {"seed": whole("seed", seed, at_least=0), "data_dir": data_dir, **options}
    accepted = inspect.signature(loader).parameters
    dataset = loader(**{name: value for name, value in given.items() if name in accepted})
    if options.get("labels") is not None:
        dataset = _only_labels(dataset, options["labels"])
    if options.get("transform"):
        from gossamer.data.features.pipeline import transformed

        def public(kind: str, its: dict[str, Any]) -> Dataset:
            return load(kind, data_dir=data_dir, **its)

        # Records of the user's own are copied nowhere, not even as features.
        dataset = transformed(dataset, options["transform"], public, keep=kind not in OWN_KINDS)
    if options.get("held_out") is not None:
        dataset = _hold_out(dataset, options["held_out"])
    if options.get("train_rows") is not None:
        dataset = _first_rows(dataset, options["train_rows"], seed)
    if options.get("pca") is not None:
        dataset = _reduced(dataset, options["pca"], options.get("pca_from", "train"), data_dir)
    elif "pca_from" in options:
        raise UserError(f"data.pca_from = {options['pca_from']!r} needs data.pca, the number of components")
    if options.get("positive") is not None:
        dataset = _one_against_rest(dataset, options["positive"])
    return _scaled(dataset, options.get("scale", "none"), options.get("bias", False))


def shape_after(transform: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a record after `data.transform`, without reading any."""
    if not transform:
        return shape
    from gossamer.data.features.chain import shape_after as after

    return after(transform, shape)


def catalogue(*, data_dir: Path | None = None) -> list[SetInfo]:
    """Every named set and whether it is here now; looks for files without reading them."""
    folder = sources.user_folder(data_dir)
    lines = [
        SetInfo(
            "digits", (DIGITS_TRAIN_ROWS, 1797 - DIGITS_TRAIN_ROWS), (1, 8, 8), 10, ("scikit-learn",), True
        )
    ]
    for entry in sources.PUBLIC.values():
        places = [cache_dir(), *([folder] if folder else [])]
        here = any(True for place in places for _ in sources.local_files(entry, place))
        origins = (
            "folder",
            *(["Debian package"] if entry.system else []),
            *(remote.name for remote in entry.remotes),
        )
        available = here or bool(sources.system_folders(entry))
        rows = (COVERTYPE_TRAIN_ROWS, COVERTYPE_TEST_ROWS) if entry.name == "covertype" else entry.rows
        lines.append(SetInfo(entry.name, rows, entry.shape, entry.classes, origins, available))
    made = (*(f"synthetic-{task}" for task in (*own.TASKS, "logistic")), "dirac")
    lines += [SetInfo(name, None, None, None, ("generated",), True) for name in made]
    return lines


def get(name: str, *, data_dir: Path | None = None) -> Path:
    """Bring a public set into the cache and return the file's path there."""
    entry = sources.PUBLIC[one_of("data set", name, sources.PUBLIC)]
    found = sources.find(name, data_dir)
    if found.path is not None and found.path.parent == cache_dir():
        return found.path
    try:
        return sources.store(entry, found.arrays, found.path)
    except OSError as error:
        raise UserError(
            f"{name} could not be kept in the cache folder {cache_dir()}: {error.strerror}"
        ) from error


def _digits() -> Dataset:
    """The 1,797 real 8 x 8 digits that come with scikit-learn, four fifths and one fifth at fixed random."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    # RandomState's stream is frozen for good, so the public split is the same on every machine and version.
    order = np.random.RandomState(0).permutation(len(bunch.target))
    train, test = np.split(order, [DIGITS_TRAIN_ROWS])
    pixels = bunch.images.astype(np.uint8)
    raw = {
        "x_train": pixels[train],
        "y_train": bunch.target[train],
        "x_test": pixels[test],
        "y_test": bunch.target[test],
    }
    try:
        arrays, sha256 = check_arrays("digits", raw)
    except MismatchError as error:
        raise UserError(f"data.kind = 'digits': scikit-learn's copy is refused, {error}") from error
    return _image_set("digits", arrays, 10, {"source": "scikit-learn", "sha256": sha256}, white=16)


def _images(name: str, *, data_dir: Path | None) -> Dataset:
    found = sources.find(name, data_dir)
    return _image_set(name, found.arrays, sources.PUBLIC[name].classes, _provenance(found), white=255)


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
        **x,
        y_train=arrays["y_train"],
        y_test=arrays["y_test"],
        classes=classes,
        public_test=True,
        owner=None,
        provenance=provenance,
    )


def _covertype(*, seed: int, data_dir: Path | None, test_rows: int | None = None) -> Dataset:
    """All 581,012 rows shuffled and split anew; the ten numeric columns scaled by public ranges."""
    found = sources.find("covertype", data_dir)
    x = np.concatenate([found.arrays["x_train"], found.arrays["x_test"]])
    y = np.concatenate([found.arrays["y_train"], found.arrays["y_test"]]) - 1
    order = np.random.default_rng([seed, 0]).permutation(len(y))
    if test_rows is None:
        train, test = order[:COVERTYPE_TRAIN_ROWS], order[len(y) - COVERTYPE_TEST_ROWS :]
    else:
        train, test = np.split(
            order, [len(y) - whole("data.test_rows", test_rows, at_least=0, at_most=len(y) - 1)]
        )
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
        owner=None,
        provenance={**_provenance(found), "split": f"shuffled with seed {seed}"},
    )


def _provenance(found: sources.Found) -> dict[str, str]:
    note = {"note": found.note} if found.note else {}
    return {"source": found.source, "sha256": found.sha256, **note}


def _only_labels(dataset: Dataset, labels: Any) -> Dataset:
    if dataset.classes is None:
        raise UserError(f"data.labels = {labels!r} needs a set with classes")
    if not isinstance(labels, list) or not labels:
        raise UserError(f"data.labels = {labels!r} must be a list of classes, for example [0, 1, 2]")
    wanted = [whole("data.labels", label, at_least=0, at_most=dataset.classes - 1) for label in labels]
    train, test = np.isin(dataset.y_train, wanted), np.isin(dataset.y_test, wanted)
    return replace(
        dataset,
        x_train=dataset.x_train[train],
        y_train=dataset.y_train[train],
        x_test=dataset.x_test[test],
        y_test=dataset.y_test[test],
        owner=None if dataset.owner is None else dataset.owner[train],
        provenance={**dataset.provenance, "labels": f"only {wanted}"},
    )


def _hold_out(dataset: Dataset, held_out: int) -> Dataset:
    available = len(dataset.y_train)
    rows = whole("data.held_out", held_out, at_least=1, at_most=available - 1)
    out, kept = np.split(np.random.default_rng([0x401D]).permutation(available), [rows])
    return replace(
        dataset,
        x_train=dataset.x_train[kept],
        y_train=dataset.y_train[kept],
        x_test=dataset.x_train[out],
        y_test=dataset.y_train[out],
        owner=None if dataset.owner is None else dataset.owner[kept],
        public_test=False,  # training records: what they show is not private
        provenance={**dataset.provenance, "held_out": f"{rows} training rows in place of the test rows"},
    )


def _first_rows(dataset: Dataset, train_rows: int, seed: int) -> Dataset:
    available = len(dataset.y_train)
    rows = whole("data.train_rows", train_rows, at_least=1, at_most=available)
    chosen = np.random.default_rng([seed, 1]).permutation(available)[:rows]
    return replace(
        dataset,
        x_train=dataset.x_train[chosen],
        y_train=dataset.y_train[chosen],
        owner=None if dataset.owner is None else dataset.owner[chosen],
        provenance={**dataset.provenance, "train_rows": f"{rows} of {available}, drawn with seed {seed}"},
    )


def _reduced(dataset: Dataset, components: object, origin: object, data_dir: Path | None) -> Dataset:
    """Principal components of the training records themselves ("train": reads them), or of a public set."""
    width = math.prod(dataset.x_train.shape[1:])
    count = whole("data.pca", components, at_least=1, at_most=width)
    known = [name for name, info in sources.PUBLIC.items() if math.prod(info.shape) == width]
    name = one_of("data.pca_from", origin, ["train", *known])
    fitted = dataset.x_train if name == "train" else load(name, data_dir=data_dir).x_train
    mean, basis = fit_components(fitted, count)
    return replace(
        dataset,
        x_train=project(dataset.x_train, mean, basis),
        x_test=project(dataset.x_test, mean, basis),
        provenance={**dataset.provenance, "pca": f"{count} components of {name}"},
    )


def _one_against_rest(dataset: Dataset, positive: int) -> Dataset:
    """Two classes: this label is 1, all others are 0."""
    if dataset.classes is None:
        raise UserError(f"data.positive = {positive!r} needs labels of classes; these data have numbers")
    label = whole("data.positive", positive, at_least=0, at_most=dataset.classes - 1)
    y_train, y_test = ((y == label).astype(np.int64) for y in (dataset.y_train, dataset.y_test))
    return replace(dataset, y_train=y_train, y_test=y_test, classes=2)


def _scaled(dataset: Dataset, scale: object, bias: object) -> Dataset:
    train, test = dataset.x_train, dataset.x_test
    chosen = one_of("data.scale", scale, ("none", *SCALES))
    if chosen in SCALES:
        train, test = SCALES[chosen](train), SCALES[chosen](test)
    outside = bias == "outside"
    if outside or flag("data.bias", bias):
        if chosen == "none" or dataset.x_train.ndim != 2:
            raise UserError(
                f"data.bias = {json.dumps(bias)} needs a table with data.scale = 'unit-ball' or 'unit-sphere': "
                "the constant is part of it"
            )
        train, test = with_bias(train, outside=outside), with_bias(test, outside=outside)
    return replace(dataset, x_train=train, x_test=test)


LOADERS: dict[str, Callable[..., Dataset]] = {
    "digits": _digits,
    **{name: partial(_images, name) for name in sources.PUBLIC},
    "covertype": _covertype,
    "synthetic-regression": synthetic.regression,
    "synthetic-classification": synthetic.classification,
    "dirac": synthetic.dirac,
    "synthetic-logistic": synthetic.logistic,
    "csv": partial(own.table, "csv"),
    "parquet": partial(own.table, "parquet"),
    "npz": own.arrays,
}
