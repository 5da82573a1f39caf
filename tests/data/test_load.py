"""One door to every data set: what is there, and mistakes as one sentence."""

from pathlib import Path

import numpy as np
import pytest
from tests.support.refusals import expect_refusal

from gossamer.data.load import catalogue, datasets, get, load


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("digit", {}, "data.kind digit"),
        ("digits", {"train_rows": 1438}, "data.train_rows 1438 1 1437"),
        ("digits", {"train_rows": 0}, "data.train_rows 0"),
        (
            "digits",
            {"whiten": 5},
            "data.whiten kind digits train_rows",
        ),
        ("digits", {"scale": "ball"}, "data.scale ball none unit-ball unit-sphere"),
        ("digits", {"scale": "unit-ball", "bias": True}, "data.bias true"),
        (
            "synthetic-regression",
            {"bias": True},
            "data.bias true data.scale unit-ball",
        ),
        ("synthetic-regression", {"bias": 1}, "data.bias 1 outside"),
        ("synthetic-regression", {"n": 0}, "data.n 0"),
        ("synthetic-regression", {"n": 1.5}, "data.n 1.5"),
        ("synthetic-regression", {"noise": -1}, "data.noise -1 1 0"),
        ("synthetic-regression", {"sparsity": 2}, "data.sparsity 2 1"),
        ("synthetic-classification", {"classes": 1}, "data.classes 1"),
        ("csv", {"label": "y"}, "data.path missing"),
        ("csv", {"path": "nowhere.csv", "label": "y"}, "data.path nowhere.csv"),
    ],
)
def test_mistakes_end_in_one_sentence(kind, options, message):
    with expect_refusal(names=message):
        load(kind, **options)


def test_catalogue_tells_what_is_here_without_reading(tmp_path):
    (tmp_path / "mnist.npz").write_bytes(b"not read")
    lines = {line.name: line for line in catalogue(data_dir=tmp_path)}
    assert lines["mnist"].available
    assert not lines["cifar100"].available
    assert lines["digits"].available
    assert lines["covertype"].rows == (464_809, 116_202)
    assert set(lines) >= {name for name, kind in datasets.kinds.items() if kind.origin}


def test_a_tampered_public_set_stops_load(tmp_path):
    parts = {"x_train": (6, 28, 28), "y_train": 6, "x_test": (2, 28, 28), "y_test": 2}
    np.savez(tmp_path / "mnist.npz", **{name: np.zeros(shape, np.uint8) for name, shape in parts.items()})
    with expect_refusal(key="mnist", names="mnist.npz"):
        load("mnist", data_dir=Path(tmp_path))


def test_positive_makes_two_classes():
    digits = load("digits", positive=3)
    assert digits.classes == 2
    assert 0.05 < digits.y_train.mean() < 0.15
    np.testing.assert_array_equal(digits.y_train == 1, load("digits").y_train == 3)


def test_records_on_the_sphere_have_their_bias_inside_it_or_outside():
    made = load("digits", pca=20, scale="unit-sphere", bias=True)
    assert made.x_train.shape == (1437, 21)
    norms = np.linalg.norm(made.x_train, axis=1)
    assert norms.max() <= 1.0
    assert norms.min() > 1 - 1e-5
    outside = load("digits", pca=20, scale="unit-sphere", bias="outside")
    assert np.linalg.norm(outside.x_train, axis=1).max() == pytest.approx(2**0.5, rel=1e-5)
    assert set(outside.x_train[:, -1]) == {1.0}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "digits",
            "digits data.kind",
        ),
        ("csv", "csv file"),
        ("mnst", "mnst mnist"),
    ],
)
def test_what_cannot_be_fetched_is_said_as_the_list_says_it(name, says):
    with expect_refusal(names=says):
        get(name)
