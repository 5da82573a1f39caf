"""scikit-learn's estimators: its own checks, what is declared and what is read off, whose rows are whose."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from tests.support.refusals import expect_refusal

from gossamer.estimators import PrivacyLeakWarning, PrivateClassifier, PrivateRegressor

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (400, 5))
TARGET = X @ [1.0, 2.0, -1.0, 0.5, 0.0] + 1 + 0.1 * RNG.normal(size=400)
LABEL = np.where(TARGET > 1, "above", "below")
FAST: dict[str, Any] = {"rounds": 20, "bounds": (-1, 1), "nodes": 4, "records": 100, "random_state": 0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PrivateClassifier, PrivateRegressor])
def test_scikit_learn_finds_nothing(kind: Any) -> None:
    """All of its checks: at an ε without effect, since they ask for accuracy, and seeded, since they ask for it twice."""
    model = kind(1000.0, nodes=2, rounds=60, seeded_noise=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(model, on_fail=None, on_skip=None)
    assert len(found) > 50
    failed = [(check["check_name"], str(check["exception"])) for check in found if check["status"] == "failed"]
    assert failed == []


def test_a_classifier_learns_and_its_figures_are_those_of_a_run() -> None:
    model = PrivateClassifier(4.0, classes=["below", "above"], **FAST).fit(X, LABEL)
    assert model.score(X, LABEL) > 0.8
    assert model.classes_.tolist() == ["above", "below"]
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-5)
    certificate = model.certificate_
    assert 3.99 < certificate["epsilon_proven"] <= 4.0
    assert (certificate["delta"], certificate["stamp"]) == (1e-5, None)
    assert not any("read off" in note for note in certificate["notes"])


def test_a_regressor_finds_the_coefficients_and_keeps_within_no_range() -> None:
    model = PrivateRegressor(20.0, target_range=(-4, 6), **{**FAST, "rounds": 100}).fit(X, TARGET)
    assert model.score(X, TARGET) > 0.95
    assert clone(model).get_params()["target_range"] == (-4, 6)
    with expect_refusal("target_range", (6, -4), remedy=True, error=ValueError):
        PrivateRegressor(target_range=(6, -4), **FAST).fit(X, TARGET)


def test_own_modules_losses_and_several_labels() -> None:
    layers = [torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, n)) for n in (2, 1)]
    model = PrivateClassifier(8.0, classes=["below", "above"], module=layers[0], **FAST).fit(X, LABEL)
    assert clone(model).fit(X, LABEL).score(X, LABEL) > 0.8
    options = {**FAST, "rounds": 60}
    model = PrivateRegressor(20.0, target_range=(-4, 6), module=layers[1], loss="huber", **options).fit(X, TARGET)
    assert model.predict(X).shape == (400,)
    several = np.stack([TARGET > 1, X[:, 0] > 0], 1).astype(int)
    assert (PrivateClassifier(8.0, **FAST).fit(X, several).predict(X) == several).mean() > 0.8


def test_what_is_not_declared_is_read_off_and_said() -> None:
    with pytest.warns(PrivacyLeakWarning, match=r"labels \(classes=\).* no ε covers that"):
        model = PrivateClassifier(**{**FAST, "records": None}).fit(X, LABEL)
    notes = " ".join(model.certificate_["notes"])
    assert "number of records of each node was read off" in notes
    assert "Which labels there are was read off" in notes
    with pytest.warns(PrivacyLeakWarning, match="range of the targets"):
        PrivateRegressor(**FAST).fit(X, TARGET)


def test_owners_come_as_a_column_or_an_array() -> None:
    pandas = pytest.importorskip("pandas")
    sites = RNG.choice(["north", "south", "west"], 400)
    frame = pandas.DataFrame(X, columns=list("abcde")).assign(site=sites)
    declared = {**FAST, "records": 130, "classes": ["above", "below"], "seeded_noise": True}
    by_name = PrivateClassifier(4.0, owners="site", **declared).fit(frame, LABEL)
    by_array = PrivateClassifier(4.0, **declared).fit(X, LABEL, owners=sites)
    assert len(by_name.certificate_["epsilon_by_node"]) == 3
    np.testing.assert_array_equal(by_name.predict(frame), by_array.predict(X))
    np.testing.assert_array_equal(by_name.predict(frame.drop(columns="site")), by_array.predict(X))
    assert by_name.certificate_["stamp"] is not None  # seeded: no privacy
    by_number = PrivateClassifier(4.0, owners=0, **declared)
    numbered = np.column_stack([np.unique(sites, return_inverse=True)[1], X])
    np.testing.assert_array_equal(by_number.fit(numbered, LABEL).predict(numbered), by_array.predict(X))


def ward_frame(library: str) -> Any:
    """A frame with words, dates, truth values and a site; the label is that of X."""
    days = np.datetime64("2020-01-01") + np.arange(400)
    table = {"ward": np.where(X[:, 1] > 0, "A", "B"), "age": 50 + 50 * X[:, 0], "day": days, "old": X[:, 0] > 0}
    return pytest.importorskip(library).DataFrame({**table, "site": np.arange(400) % 4})


WARD = {"ward": ["A", "B"], "age": [0, 100], "day": ["2020-01-01", "2021-12-31"], "old": "boolean"}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_declared_columns_of_a_frame_and_nothing_is_read_off(library: str) -> None:
    frame = ward_frame(library)
    declared = {**FAST, "bounds": None, "columns": WARD, "owners": "site"}
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        model = clone(PrivateClassifier(4.0, classes=["below", "above"], **declared)).fit(frame, LABEL)
        assert PrivateRegressor(20.0, target_range=(-4, 6), **declared).fit(frame, TARGET).score(frame, TARGET) > 0.5
    assert model.score(frame, LABEL) > 0.8
    shuffled = frame[["day", "age", "old", "ward"]]  # by name, and a site is no feature
    np.testing.assert_array_equal(model.predict(shuffled), model.predict(frame))
    assert not any("read off" in note for note in model.certificate_["notes"])


@pytest.mark.parametrize(
    ("options", "table", "words"),
    [
        ({}, ward_frame, "ward, day"),
        ({"columns": WARD}, lambda _: X, "columns"),
        ({"columns": WARD, "bounds": (0, 1)}, ward_frame, "bounds"),
        ({"columns": {"bed": [0, 1]}}, ward_frame, "bed"),
        ({"columns": {"ward": 3}}, ward_frame, r"data\.columns\.ward"),
    ],
)
def test_columns_that_do_not_fit_are_refused(options: dict[str, Any], table: Any, words: str) -> None:
    model = PrivateClassifier(4.0, **{**FAST, "bounds": None, "classes": ["above", "below"], **options})
    with pytest.raises(ValueError, match=words):
        model.fit(table("pandas"), LABEL)


def test_it_stands_in_a_pipeline_and_keeps_its_run_where_it_is_told(tmp_path: Path) -> None:
    x, y = load_digits(return_X_y=True)
    declared = {"classes": range(10), "records": 220, "rounds": 10, "directory": tmp_path / "run"}
    pipeline = make_pipeline(FunctionTransformer(lambda x: x / 16), PrivateClassifier(8.0, **declared))
    assert pipeline.fit(x, y).score(x, y) > 0.5
    assert (tmp_path / "run" / "certificate.json").is_file()


@pytest.mark.parametrize(
    ("options", "owners", "names"),
    [
        ({"nodes": 500}, None, "nodes 500 400"),
        ({"owners": "site"}, None, "owners site number"),
        ({"owners": 0}, np.zeros(400), "owners 0"),
        ({"method": "nothing"}, None, "algorithm.kind nothing"),
        ({"classes": ["above"]}, None, "2"),
        ({"classes": ["above", "beside"]}, None, "below"),
    ],
)
def test_a_mistake_is_a_value_error_of_one_sentence(options: dict[str, Any], owners: Any, names: str) -> None:
    model = PrivateClassifier(4.0, **{**FAST, "classes": ["above", "below"], **options})
    with expect_refusal(names=names, error=ValueError):
        model.fit(X, LABEL, owners=owners)
