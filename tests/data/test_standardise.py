"""What [data.standardise] may ask for, and what it refuses before anything is released."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.refusals import expect_refusal

from gossamer.data.load import datasets
from gossamer.data.source import Moments, Quantiles


@pytest.fixture
def table(tmp_path: Path) -> dict[str, Any]:
    rows = "\n".join(f"{i},{i * 1000},{i % 2}" for i in range(20))
    (tmp_path / "t.csv").write_text(f"age,income,y\n{rows}\n", encoding="utf-8")
    return {"kind": "csv", "path": str(tmp_path / "t.csv"), "label": "y", "classes": 2}


def test_a_table_names_its_columns(table: dict[str, Any]) -> None:
    ranges = {"age": [0.0, 120.0], "income": [0.0, 1e6]}
    source = datasets.parse({**table, "ranges": ranges, "standardise": {"kind": "quantiles"}})
    dataset = source.load()
    assert source.standardise == Quantiles()
    assert source.standardise.places(source, dataset) == (0, 1)
    assert source.standardise.bounds == (0.0, 1.0)
    assert source.waits
    assert source.private_steps == ("data.standardise",)
    assert source.shape_of(dataset) == (2,)
    assert dataset.x_train[:, 1] == pytest.approx(np.arange(20) / 1000)  # as declared: nothing was released yet
    one = datasets.parse({**table, "standardise": {"kind": "moments", "columns": ["income"], "within": [0.0, 5e4]}})
    assert one.standardise == Moments(columns=["income"], within=[0.0, 5e4])
    assert one.standardise.places(one, one.load()) == (1,)


def test_the_shape_that_a_model_sees_has_the_constant(table: dict[str, Any]) -> None:
    asked = {"standardise": {"kind": "moments", "within": [0.0, 1e6]}, "scale": "unit-ball", "bias": True}
    source = datasets.parse({**table, **asked})
    assert source.shape_of(source.load()) == (3,)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"standardise": {"kind": "quantiles"}},
            "data.standardise data.ranges",
        ),
        ({"standardise": {"kind": "quantiles", "columns": ["height"]}}, "data.standardise.columns height"),
        ({"standardise": {"kind": "quantiles", "within": [1.0, 1.0]}}, "data.standardise.within"),
        ({"standardise": {"kind": "median"}}, "data.standardise.kind median"),
        (
            {"standardise": {"kind": "moments", "within": [0.0, 9.0]}, "pca": 1},
            "data.standardise columns pca_from",
        ),
        ({"class_weights": "yes"}, "class_weights"),
        ({"class_weights": [1.0, -1.0]}, "class_weights"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(table: dict[str, Any], changes: dict[str, Any], says: str) -> None:
    with expect_refusal(names=says):
        datasets.parse({**table, **changes}).load()


def test_of_declared_columns_those_with_a_range_are_meant(table: dict[str, Any]) -> None:
    age = {"kind": "numeric", "mean": 40.0, "scale": 20.0}
    income = {"kind": "numeric", "range": [0.0, 1e7], "missing": True}
    declared = {**table, "columns": {"age": age, "income": income}}
    source = datasets.parse({**declared, "standardise": {"kind": "quantiles"}})
    dataset = source.load()
    assert dataset.columns == ("age", "income", "income missing")
    assert source.standardise is not None
    assert source.standardise.places(source, dataset) == (1,)
    with expect_refusal(key="data.standardise", names="age"):
        datasets.parse({**declared, "standardise": {"kind": "quantiles", "columns": ["age"]}}).load()
    none = {**table, "columns": {"age": age}}
    with expect_refusal(key="data.standardise", names="declare", remedy=True):
        datasets.parse({**none, "standardise": {"kind": "quantiles"}}).load()


def test_places_in_a_table_have_no_columns() -> None:
    source = datasets.parse({"kind": "dirac", "dense": False, "standardise": {"kind": "moments"}})
    with expect_refusal(key="data.standardise", names="columns"):
        source.load()
