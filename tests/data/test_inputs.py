"""New rows get exactly what training rows got."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from tests.support.own_records import write_table
from tests.support.refusals import expect_refusal

from gossamer.data.inputs import Inputs, inputs_of
from gossamer.data.load import datasets
from gossamer.data.tables import CsvTable, Roles


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ranges": {"b": [-3.0, 5.0]}},
        {"ranges": {"a": [-2.0, 2.0]}, "scale": "unit-ball", "bias": True},
        {"scale": "unit-sphere", "bias": "outside"},
        {"transform": ["unit-norm", {"kind": "random-fourier", "dimensions": 7}], "scale": "unit-ball"},
    ],
)
def test_a_new_row_becomes_what_a_row_of_the_hold_out_became(tmp_path: Path, options: dict[str, Any]) -> None:
    train, test = write_table(tmp_path / "t.csv"), write_table(tmp_path / "new.csv", rows=20, seed=1)
    table = {
        "kind": "csv",
        "path": str(train),
        "test": str(test),
        "label": "y",
        "owner": "site",
        "classes": 2,
    }
    source = datasets.parse({**table, **options})
    dataset = source.load()
    inputs = inputs_of(source, dataset)
    assert (inputs.shape, inputs.columns, inputs.label, inputs.owner) == ((2,), ("a", "b"), "y", "site")
    raw = CsvTable(test).records(Roles(features=inputs.columns)).x
    found = inputs.prepared(inputs.records(raw))
    np.testing.assert_allclose(found, dataset.x_test, rtol=0, atol=0 if "transform" not in options else 1e-6)


def test_steps_that_are_fitted_are_fitted_on_the_same_public_set(tmp_path: Path) -> None:
    images = {
        "kind": "digits",
        "transform": [{"kind": "projection", "public": _public(tmp_path), "dimensions": 5}],
    }
    source = datasets.parse(images)
    dataset = source.load()
    inputs = inputs_of(source, dataset)
    assert inputs.shape == (1, 8, 8)
    raw = datasets.parse({"kind": "digits"}).load().x_test[:30]
    np.testing.assert_allclose(inputs.prepared(raw), dataset.x_test[:30], atol=1e-5)


def _public(folder: Path) -> dict[str, str]:
    rng = np.random.default_rng(0)
    np.savez(folder / "public.npz", x=rng.random((40, 8, 8)), y=rng.integers(0, 2, 40))
    return {"kind": "npz", "path": str(folder / "public.npz")}


def test_components_of_the_training_records_are_not_kept() -> None:
    inputs = Inputs(shape=(3,), pca=2)
    with expect_refusal(key="data.pca_from", value="train"):
        inputs.prepared(np.zeros((1, 3), np.float32))


def test_components_of_other_records_are_refused() -> None:
    with expect_refusal(key="data.pca_from", value="digits", names="3"):
        Inputs(shape=(3,), pca=2, pca_from="digits").prepared(np.zeros((1, 3), np.float32))


def test_rows_come_as_arrays_tensors_or_frames_whose_columns_have_names() -> None:
    inputs = Inputs(shape=(2,), columns=("a", "b"))
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(inputs.records(rows), rows)
    np.testing.assert_array_equal(inputs.records(torch.tensor(rows)), rows)
    pandas = pytest.importorskip("pandas", reason="frames are optional")
    frame = pandas.DataFrame({"b": [2.0, 4.0], "more": [0, 0], "a": [1.0, 3.0]})
    np.testing.assert_array_equal(inputs.records(frame), rows)
    with expect_refusal(key="x", names="b"):
        inputs.records(frame[["a"]])


def test_images_of_bytes_become_shares_of_one() -> None:
    found = Inputs(shape=(1, 2, 2)).records(np.full((3, 2, 2), 255, np.uint8))
    np.testing.assert_array_equal(found, np.ones((3, 1, 2, 2), np.float32))


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.zeros(2), "2"),
        (np.zeros((2, 3)), "2 3"),
        (np.array([["a", "b"]]), "numbers"),
        (np.array([[1.0, np.nan]]), "infinite"),
        (np.zeros(()), "shape"),
    ],
)
def test_rows_that_do_not_fit_are_a_sentence(x: Any, words: str) -> None:
    with expect_refusal(key="x", names=words):
        Inputs(shape=(2,)).records(x)


def test_the_steps_in_words() -> None:
    inputs = Inputs(shape=(1,), columns=("a",), ranges={"a": [0.0, 5.0]}, scale="unit-ball", bias=True)
    assert inputs.steps() == ["column a: [0, 5] becomes [0, 1]", "x / max(1, ‖x‖)", "(x, 1)/√2"]


def test_declared_columns_of_new_rows_follow_the_same_rules(tmp_path: Path) -> None:
    """Out of a file, out of a frame, and after a description was written and read again."""
    pandas = pytest.importorskip("pandas")
    (tmp_path / "t.csv").write_text("y,ward,age\n0,a,10\n1,b,\n")
    (tmp_path / "new.csv").write_text("age,ward,y\n200,new,1\n,a,0\n5,b,0\n")
    columns = {"age": {"range": [0, 50], "missing": True}, "ward": ["a", "b"]}
    table = {"kind": "csv", "path": str(tmp_path / "t.csv"), "test": str(tmp_path / "new.csv"), "label": "y"}
    source = datasets.parse({**table, "classes": 2, "columns": columns, "scale": "unit-ball", "bias": True})
    dataset = source.load()
    form = TypeAdapter(Inputs)
    inputs = form.validate_json(form.dump_json(inputs_of(source, dataset)))
    assert (inputs.shape, inputs.columns) == ((4,), ("age", "ward"))
    raw = CsvTable(tmp_path / "new.csv").records(Roles(schema=inputs.schema)).x
    frame = pandas.DataFrame({"ward": ["new", "a", "b"], "age": [200.0, np.nan, 5.0], "more": [1, 2, 3]})
    for rows in (raw, frame):
        np.testing.assert_array_equal(inputs.prepared(inputs.records(rows)), dataset.x_test)
    assert inputs.steps()[0] == "column age, numeric: missing = True, range = [0.0, 50.0]"
    with expect_refusal(key="x", names="age"):
        inputs.records(frame.drop(columns="age"))
    with expect_refusal(key="x", names="columns", remedy=True):
        inputs.records(np.array([["a", "b"]]))
