"""What a run keeps of its models is what its method releases, whatever its state is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tests.support.refusals import expect_refusal
from tests.support.trained import trained
from tests.support.without_replacement import DIGITS
from torch import nn

import gossamer
from gossamer.data.load import datasets
from gossamer.training.data import DataCache


def test_predictions_on_the_hold_out_give_the_printed_accuracy_exactly(tmp_path: Path) -> None:
    outcome = trained(tmp_path)
    dataset, loaded = (
        DataCache().load(gossamer.load(outcome.directory).config, None),
        gossamer.load(outcome.directory),
    )
    for node, printed in [
        ("average", outcome.result["accuracy_average_model"]),
        *enumerate(outcome.result["accuracy_by_node"]),
    ]:
        assert float((loaded.predict(dataset.x_test, node) == dataset.y_test).mean()) == printed


def test_push_sum_is_divided_and_checkpoints_say_that_they_are_not(tmp_path: Path) -> None:
    outcome = trained(tmp_path, {"algorithm.kind": "constd2p", "privacy.claim": "none", "topology.kind": "star"})
    (file,) = (outcome.directory / "checkpoints").iterdir()
    state = load_file(file)
    assert not torch.equal(state["w"], torch.ones(3, 1))
    stored = load_file(outcome.directory / "models.safetensors")
    flat = torch.cat([stored[name].flatten(1) for name in ("1.weight", "1.bias")], 1)
    torch.testing.assert_close(flat, state["x"] / state["w"], rtol=0, atol=0)
    with safe_open(file, "pt") as opened:
        layout = json.loads(opened.metadata()["gossamer"])["layout"]
    assert layout["parameters"] == [["1.weight", [2, 2]], ["1.bias", [2]]]
    assert "a node's model is x / w" in layout["state"]


def test_a_mean_that_is_subtracted_first_is_part_of_the_model(tmp_path: Path) -> None:
    outcome = trained(tmp_path, {"privacy.centre": 0.3})
    loaded = gossamer.load(outcome.directory)
    assert loaded.models.description.centre
    rows = np.random.default_rng(1).normal(size=(12, 2))
    np.testing.assert_array_equal(loaded.predict_proba(rows), outcome.predict_proba(rows))
    assert "centre" in dict(loaded.module(0).named_parameters())


def test_of_a_method_with_a_shared_model_that_one_alone_is_kept(tmp_path: Path) -> None:
    outcome = gossamer.run(DIGITS, {"rounds": 4, "evaluation.every": 4}, out=tmp_path / "r")
    loaded = gossamer.load(tmp_path / "r")
    with safe_open(tmp_path / "r" / "models.safetensors", "pt") as file:
        assert file.get_tensor("1.weight").shape == (1, 10, 64)
    digits = datasets.parse({"kind": "digits"}).load()  # not scaled: that is done to new rows, as to training rows
    right = float((loaded.predict(digits.x_test, 3) == digits.y_test).mean())
    assert right == outcome.result["accuracy_by_node"][3] == outcome.result["accuracy_average_model"]
    assert loaded.models.description.probabilities == "sigmoid"


@pytest.mark.slow
def test_a_regression_of_dp_dkm_predicts_numbers(tmp_path: Path) -> None:
    outcome = gossamer.run("dp-dkm/lasso", {"rounds": 3, "evaluation.every": 100}, out=tmp_path / "r")
    loaded = gossamer.load(tmp_path / "r")
    dataset = DataCache().load(loaded.config, None)
    error = np.sqrt(np.square(loaded.predict(dataset.x_test).astype(float) - dataset.y_test).mean())
    assert error == pytest.approx(outcome.result["rmse_average_model"], rel=1e-6)
    assert loaded.models.description.task == "regression"


def test_a_module_of_ones_own_is_asked_for_and_its_names_are_checked(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    outcome = trained(tmp_path, module=net)
    rows = np.random.default_rng(2).normal(size=(7, 2))
    with expect_refusal(key="run", names="code", remedy=True):
        gossamer.load(outcome.directory).module()
    found = gossamer.load(outcome.directory, module=net)
    np.testing.assert_array_equal(found.predict(rows, 1), outcome.predict(rows, 1))
    with expect_refusal(key="module", names="trained", remedy=True):
        gossamer.load(outcome.directory, module=nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 2))).module()


def test_one_class_against_the_rest_is_named(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"data.classes": ["0", "1"], "data.positive": 1}
    assert trained(tmp_path, changes).models.description.names == ["not 1", "1"]
