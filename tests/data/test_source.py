"""What every data set can do: choose rows and labels, hold out, scale, and say what is known without reading."""

import numpy as np
from tests.support.refusals import expect_refusal

from gossamer.data.load import datasets, load
from gossamer.options.registry import options_of


def test_only_some_labels():
    data = load("digits", labels=[0, 2])
    assert set(data.y_train) == set(data.y_test) == {0, 2}
    assert data.classes == 10
    for wrong in ([], [12], 3, ["a"]):
        with expect_refusal(names="data.labels"):
            load("digits", labels=wrong)
    with expect_refusal(key="data.labels", value="[0]"):
        load("synthetic-regression", labels=[0])


def test_train_rows():
    whole, few, again = (
        load("digits"),
        load("digits", train_rows=50, seed=3),
        load("digits", train_rows=50, seed=3),
    )
    assert few.x_train.shape == (50, 1, 8, 8)
    assert np.array_equal(few.x_train, again.x_train)
    assert not np.array_equal(few.x_train, load("digits", train_rows=50, seed=4).x_train)
    assert len(few.x_test) == len(whole.x_test)
    rows = {row.tobytes(): label for row, label in zip(whole.x_train, whole.y_train, strict=True)}
    assert all(rows[row.tobytes()] == label for row, label in zip(few.x_train, few.y_train, strict=True))


def test_seed_must_be_a_number():
    with expect_refusal(key="seed", value="-1"):
        load("digits", seed=-1)


def test_unit_ball_option_for_tables_and_images():
    table = load("synthetic-regression", scale="unit-ball", bias=True)
    assert table.x_train.shape == (1000, 21)
    assert np.linalg.norm(table.x_train, axis=1).max() <= 1
    images = load("digits", scale="unit-ball", train_rows=20)
    assert np.allclose(np.linalg.norm(images.x_train.reshape(20, -1), axis=1), 1)


def test_held_out_rows_are_training_rows_the_same_for_every_seed_and_never_trained_on():
    whole, tuned, again = load("digits"), load("digits", held_out=137), load("digits", held_out=137, seed=5)
    np.testing.assert_array_equal(tuned.x_test, again.x_test)
    rows = {row.tobytes() for row in whole.x_train}
    assert len(rows) == 1437  # no two alike, so a set tells them apart
    held, kept = ({row.tobytes() for row in part} for part in (tuned.x_test, tuned.x_train))
    assert held | kept == rows
    assert len(held) == 137
    assert not held & kept
    assert not tuned.public_test


def test_more_rows_held_out_than_there_are():
    with expect_refusal(key="data.held_out", value="1437"):
        load("digits", held_out=1437)


def test_records_follow_the_seed_where_the_set_says_so():
    """Every set that can be had here: `seeded` is whether two seeds give different records."""
    small = {"n": 30, "features": 3, "test": 5}
    options = {
        "digits": {},
        "synthetic-regression": small,
        "synthetic-classification": small,
        "synthetic-logistic": small,
        "synthetic-counts": small,
        "synthetic-labels": small,
        "dirac": {"holders": 2, "per_holder": 3},
    }
    for kind, its in options.items():
        for more in ({}, {"train_rows": 5}, {"held_out": 2}):
            source = datasets.parse({"kind": kind, **its, **more})
            first, second = (source.load(seed=seed).x_train for seed in (1, 2))
            if kind == "dirac" and more.get("train_rows"):
                continue  # shuffled equal rows
            assert source.seeded == (not np.array_equal(first, second)), (kind, more)
    assert datasets["covertype"].shuffled


def test_what_is_known_without_reading_is_what_comes_out():
    for more in ({}, {"records": 7}, {"transform": ["unit-norm"]}):
        source = datasets.parse({"kind": "digits", **more})
        data = source.load()
        assert source.known is not None
        assert source.known.shape == data.x_train.shape[1:]
        assert source.known.rows == (len(data.x_train), len(data.x_test))
        assert source.known.classes == data.classes
    for more in ({"train_rows": 5}, {"pca": 3}, {"scale": "unit-ball"}, {"labels": [1, 2]}):
        assert datasets.parse({"kind": "digits", **more}).known is None
    assert datasets.parse({"kind": "synthetic-regression"}).known is None


def test_every_option_has_a_meaning():
    for kind in datasets.kinds.values():
        assert kind.__doc__
        assert all(option.meaning for option in options_of(kind)), kind


def test_components_of_a_set_that_holds_training_records_are_refused(tmp_path):
    """A table of one's own among which a public picture is: fitted components would see it."""
    digits = datasets.parse({"kind": "digits"}).load()
    rng = np.random.default_rng(0)
    own = rng.uniform(size=(30, 64)).astype(np.float32)
    for copies in (0, 2):
        own[:copies] = digits.x_train[:copies].reshape(copies, 64)
        np.savez(tmp_path / "own.npz", x=own, y=np.arange(30) % 2)
        table = datasets.parse({"kind": "npz", "path": str(tmp_path / "own.npz"), "pca": 3, "pca_from": "digits"})
        if copies:
            with expect_refusal(key="data.pca_from", value="digits"):
                table.load()
        else:
            assert table.load().x_train.shape == (30, 3)
