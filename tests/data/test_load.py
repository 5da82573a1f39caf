import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gossamer.data import sources
from gossamer.data.load import datasets, load
from gossamer.data.public import COVERTYPE_RANGES
from gossamer.data.scaling import to_ranges, to_unit_ball, with_bias
from gossamer.errors import UserError
from gossamer.options.registry import options_of


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
    assert ours_sorted == sorted(
        map(tuple, np.column_stack([theirs.data, theirs.target]).astype(int).tolist())
    )


def test_the_digits_split_does_not_follow_the_seed():
    assert np.array_equal(load("digits", seed=1).x_test, load("digits", seed=2).x_test)


def test_only_some_labels():
    data = load("digits", labels=[0, 2])
    assert set(data.y_train) == set(data.y_test) == {0, 2}
    assert data.classes == 10
    for wrong in ([], [12], 3, ["a"]):
        with pytest.raises(UserError, match=r"data\.labels"):
            load("digits", labels=wrong)
    with pytest.raises(UserError, match="classes"):
        load("synthetic-regression", labels=[0])


def test_dirac_records_have_orthogonal_gradients_along_their_places():
    data = load("dirac", holders=3, per_holder=4, size=50.0)
    assert data.x_train.tolist() == [0, 1, 2, 3] * 3
    assert data.owner.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert set(data.y_train.tolist()) == {-50.0}
    rows = load("dirac", holders=2, per_holder=3, dense=True)
    assert rows.x_train.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]] * 2
    assert load("dirac", holders=2, per_holder=1, dense=True).x_train.tolist() == [[1], [1]]
    for wrong in (
        {"holders": 0},
        {"per_holder": 1},
        {"size": 0},
        {"dense": 1},
        {"dense": True, "per_holder": 0},
    ):
        with pytest.raises(UserError, match="data"):
            load("dirac", **wrong)


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


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("digit", {}, "data.kind = 'digit' is not known; it can be "),
        ("digits", {"train_rows": 1438}, "data.train_rows = 1438 must be a whole number from 1 to 1437"),
        ("digits", {"train_rows": 0}, "data.train_rows = 0"),
        (
            "digits",
            {"whiten": 5},
            "data.whiten is not a key of kind 'digits'; the keys here are partition, records, train_rows",
        ),
        ("digits", {"scale": "ball"}, "data.scale = 'ball' must be 'none', 'unit-ball' or 'unit-sphere'."),
        ("digits", {"scale": "unit-ball", "bias": True}, "data.bias = true needs a table"),
        (
            "synthetic-regression",
            {"bias": True},
            "data.bias = true needs a table with data.scale = 'unit-ball'",
        ),
        ("synthetic-regression", {"bias": 1}, "data.bias = 1 must be true or false or 'outside'."),
        ("synthetic-regression", {"n": 0}, "data.n = 0"),
        ("synthetic-regression", {"n": 1.5}, "data.n = 1.5"),
        ("synthetic-regression", {"noise": -1}, "data.noise = -1 must be at least 0."),
        ("synthetic-regression", {"sparsity": 2}, "data.sparsity = 2 must be at most 1."),
        ("synthetic-classification", {"classes": 1}, "data.classes = 1"),
        ("csv", {"label": "y"}, "data.path is missing"),
        ("csv", {"path": "nowhere.csv", "label": "y"}, "data.path = 'nowhere.csv' is no file"),
    ],
)
def test_mistakes_end_in_one_sentence(kind, options, message):
    with pytest.raises(UserError, match=re.escape(message)):
        load(kind, **options)


def test_seed_must_be_a_number():
    with pytest.raises(UserError, match="seed = -1"):
        load("digits", seed=-1)


def test_synthetic_regression_returns_its_truth():
    data = load("synthetic-regression", n=4000, features=12, noise=0.5, test=1000, sparsity=0.75, seed=7)
    assert data.x_train.shape == (4000, 12)
    assert data.y_test.shape == (1000,)
    assert data.y_train.dtype == np.float32
    assert data.classes is None
    assert data.truth is not None
    assert (data.truth == 0).sum() == 9
    fitted, *_ = np.linalg.lstsq(data.x_train, data.y_train, rcond=None)
    assert np.abs(fitted - data.truth).max() < 5 * 0.5 / np.sqrt(4000)
    assert np.std(data.y_test - data.x_test @ data.truth) == pytest.approx(0.5, rel=0.1)


def test_synthetic_classification_returns_its_truth():
    data = load("synthetic-classification", n=500, features=5, classes=4, noise=0, seed=1)
    assert data.truth is not None
    assert data.truth.shape == (4, 5)
    assert np.array_equal((data.x_train @ data.truth.T).argmax(1), data.y_train)
    noisy = load("synthetic-classification", n=20_000, features=1, classes=2, noise=0.8, seed=2)
    assert noisy.truth is not None
    # Gumbel noise of scale τ is softmax at temperature τ
    gap = (noisy.x_train @ (noisy.truth[1] - noisy.truth[0])) / 0.8
    expected = (1 / (1 + np.exp(-gap))).mean()
    assert noisy.y_train.mean() == pytest.approx(expected, abs=0.015)
    assert np.corrcoef(noisy.y_train, 1 / (1 + np.exp(-gap)))[0, 1] > 0.1


def test_synthetic_follows_the_seed():
    assert np.array_equal(
        load("synthetic-regression", seed=1).x_train, load("synthetic-regression", seed=1).x_train
    )
    first, second = load("synthetic-regression", seed=1), load("synthetic-regression", seed=2)
    assert first.provenance["sha256"] != second.provenance["sha256"]


tables = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=st.floats(-1e6, 1e6, width=32)
)


@settings(deadline=None, max_examples=200)
@given(tables)
def test_unit_ball_in_float32_and_in_float64(x):
    ball = to_unit_ball(x)
    biased = with_bias(ball)
    for scaled in (ball, biased):
        assert scaled.dtype == np.float32
        assert (np.linalg.norm(scaled.astype(np.float64), axis=1) <= 1).all()
        assert (np.linalg.norm(scaled, axis=1) <= 1).all()
    norms = np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    assert np.allclose(ball, x / np.maximum(1, norms), rtol=1e-6, atol=1e-7)
    assert np.allclose(biased[:, -1], 2**-0.5)


def test_unit_ball_treats_every_record_by_itself():
    x = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    alone = np.concatenate([to_unit_ball(row[None]) for row in x])
    assert np.array_equal(to_unit_ball(x), alone)


def test_unit_ball_option_for_tables_and_images():
    table = load("synthetic-regression", scale="unit-ball", bias=True)
    assert table.x_train.shape == (1000, 21)
    assert np.linalg.norm(table.x_train, axis=1).max() <= 1
    images = load("digits", scale="unit-ball", train_rows=20)
    assert np.allclose(np.linalg.norm(images.x_train.reshape(20, -1), axis=1), 1)


def test_ranges():
    x = np.array([[10, 5], [20, 7]], np.float32)
    assert to_ranges(x, ["a", "b"], {"a": [0, 20]}).tolist() == [[0.5, 5], [1, 7]]
    for bad in ([1, 1], [2, 1], [0], [0, float("inf")], [float("nan"), 1]):
        with pytest.raises(UserError, match=r"data\.ranges\.a = .* must be \[lo, hi\]"):
            to_ranges(x, ["a", "b"], {"a": bad})


def test_covertype_ranges_name_ten_columns():
    assert len(COVERTYPE_RANGES) == 10
    assert all(lo < hi for lo, hi in COVERTYPE_RANGES.values())


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
    with pytest.raises(UserError, match=r"data\.held_out = 1437"):
        load("digits", held_out=1437)


def test_records_follow_the_seed_where_the_set_says_so():
    """Every set that can be had here: `seeded` is whether two seeds give different records."""
    small = {"n": 30, "features": 3, "test": 5}
    options = {
        "digits": {},
        "synthetic-regression": small,
        "synthetic-classification": small,
        "synthetic-logistic": small,
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


def test_facts_are_those_of_the_published_files():
    for name, entry in sources.PUBLIC.items():
        facts = datasets[name].facts
        assert (facts.shape, facts.classes) == (entry.shape, entry.classes)
        assert facts.rows == entry.rows or name == "covertype"  # which is split anew
    assert [name for name in datasets if datasets[name].own] == ["csv", "parquet", "npz"]


def test_every_option_has_a_meaning():
    for kind in datasets.kinds.values():
        assert kind.__doc__
        assert all(option.meaning for option in options_of(kind)), kind
