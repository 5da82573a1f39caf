"""Modules and predictions of given weights: classes by name, probabilities by the loss, sentences for the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.support.refusals import expect_refusal
from tests.support.trained import description

from gossamer.kernels.stack import ParameterStack
from gossamer.results.trained import HeldWeights, Models

ROWS = np.array([[2.0, 0.0], [0.0, 1.0]])


def models(**changes: Any) -> Models:
    """Nodes 1 and 2 of three; the network of node i gives i·x."""
    said = description(**changes)
    stack = ParameterStack(said.network())
    points = torch.stack([node * torch.tensor([1.0, 0, 0, 1, 0, 0]) for node in (1, 2)])
    held = HeldWeights(stack, range(1, 3), points[:, : stack.dim], points.mean(0)[: stack.dim])
    return Models(said, held, said.network)


def test_a_module_is_ready_and_of_its_own() -> None:
    made = models()
    one, two = made.module(1), made.module(2)
    assert not one.training
    assert one(torch.ones(1, 2)).tolist() == [[1.0, 1.0]]
    assert two(torch.ones(1, 2)).tolist() == [[2.0, 2.0]]
    assert made.module()(torch.ones(1, 2)).tolist() == [[1.5, 1.5]]
    assert made.nodes == [1, 2]


def test_classes_have_their_names_and_probabilities_follow_from_the_loss() -> None:
    assert models().predict(ROWS, 1).tolist() == ["no", "yes"]
    assert models(labels=()).predict(ROWS, 1).tolist() == [0, 1]
    chances = models().predict_proba(ROWS, 1)
    np.testing.assert_allclose(chances, torch.tensor(ROWS).softmax(1), rtol=1e-6)
    each = 1 / (1 + np.exp(-ROWS))
    np.testing.assert_allclose(
        models(probabilities="sigmoid").predict_proba(ROWS, 1), each / each.sum(1, keepdims=True), rtol=1e-6
    )
    with expect_refusal(key="model", names="probabilities"):
        models(probabilities=None).predict_proba(ROWS, 1)


def test_one_output_decides_between_two_classes_or_is_the_number() -> None:
    from gossamer.results.trained import Parameter

    one: dict[str, Any] = {
        "model": {"kind": "linear"}, "outputs": 1, "parameters": (Parameter(name="1.weight", shape=(1, 2)),),
    }  # fmt: skip
    two = models(**one, probabilities="sigmoid")
    assert two.predict(ROWS - 1, 1).tolist() == ["yes", "no"]
    np.testing.assert_allclose(two.predict_proba(ROWS, 1)[0], [1 - 1 / (1 + np.exp(-2)), 1 / (1 + np.exp(-2))], 1e-5)
    number = models(**one, probabilities=None, task="regression", classes=None, labels=())
    assert number.predict(ROWS, 2).tolist() == [4.0, 0.0]
    with expect_refusal(key="model", names="regression"):
        number.predict_proba(ROWS)


def test_no_rows_no_predictions() -> None:
    assert models().predict(np.zeros((0, 2))).tolist() == []


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (
            0,
            "model node 0 1 2",
        ),
        (3, "node 3 0 2 average"),
        (-1, "node -1"),
        ("mean", "node mean"),
    ],
)
def test_a_model_that_is_not_here_is_a_sentence(node: Any, words: str) -> None:
    with expect_refusal(names=words):
        models().module(node)


def test_steps_that_lead_elsewhere_than_to_the_networks_size_are_a_sentence() -> None:
    from gossamer.data.inputs import Inputs

    with expect_refusal(key="records", names="3 2"):
        models(inputs=Inputs(shape=(2,), scale="unit-ball", bias=True)).predict(ROWS)
