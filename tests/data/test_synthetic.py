"""Made-up data hold the truth they were made from."""

import numpy as np
import pytest
from tests.support.refusals import expect_refusal

from gossamer.data.load import load


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
        key, value = list(wrong.items())[-1]
        with expect_refusal(f"data.{key}", value):
            load("dirac", **wrong)


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
    assert np.array_equal(load("synthetic-regression", seed=1).x_train, load("synthetic-regression", seed=1).x_train)
    first, second = load("synthetic-regression", seed=1), load("synthetic-regression", seed=2)
    assert first.provenance["sha256"] != second.provenance["sha256"]


def test_synthetic_logistic_labels_have_the_probability_of_their_score():
    data = load("synthetic-logistic", n=40_000, features=4, test=0)
    score = data.x_train @ data.truth
    for low, high in ((-2.0, -1.0), (-0.5, 0.5), (1.0, 2.0)):
        inside = (score > low) & (score < high)
        expected = (1 / (1 + np.exp(-score[inside]))).mean()
        assert abs(data.y_train[inside].mean() - expected) < 5 * np.sqrt(0.25 / inside.sum())


def test_synthetic_counts_and_labels_follow_their_scores():
    counts = load("synthetic-counts", n=40_000, features=4, test=0)
    mean = np.exp(counts.x_train @ counts.truth)
    for low, high in ((0.0, 0.5), (0.5, 1.5), (1.5, 5.0)):
        inside = (mean > low) & (mean < high)
        error = np.sqrt(mean[inside].sum()) / inside.sum()
        assert abs(counts.y_train[inside].mean() - mean[inside].mean()) < 5 * error
    labels = load("synthetic-labels", n=40_000, features=4, test=0, several=3)
    chances = 1 / (1 + np.exp(-labels.x_train @ labels.truth.T))
    assert labels.y_train.shape == (40_000, 3)
    for low in (0.1, 0.4, 0.8):
        inside = (chances > low) & (chances < low + 0.1)
        assert abs(labels.y_train[inside].mean() - chances[inside].mean()) < 5 * np.sqrt(0.25 / inside.sum())
