"""A table of mistakes and the sentences that people get for them."""

from __future__ import annotations

from typing import Any

import pytest

from gossamer.config.layers import resolve
from gossamer.errors import UserError

BASE: dict[str, Any] = {
    "nodes": 4,
    "rounds": 10,
    "data": {"kind": "digits"},
    "model": {"kind": "softmax"},
    "topology": {"kind": "ring"},
    "algorithm": {"kind": "dyn-d2p", "lr": 0.1},
    "privacy": {"epsilon": 1.0},
}
KM = {"algorithm.kind": "dp-dkm"}
SENTENCES: list[tuple[dict[str, Any], str]] = [
    ({"rouds": 5}, "rouds is not a key I know; did you mean rounds?"),
    ({"checkpoints.often": 1}, "checkpoints.often is not a key I know; the keys here are every."),
    ({"epsilon": 1.0}, "epsilon is not a key I know; did you mean privacy.epsilon?"),
    ({"sampling.rate": 1.0}, "sampling is not a key I know; did you mean privacy.sampling?"),
    ({"nodes": "4"}, "nodes = '4' must be a whole number."),
    ({"nodes": 2.5}, "nodes = 2.5 must be a whole number."),
    ({"nodes": True}, "nodes = true must be a whole number."),
    ({"nodes": 0}, "nodes = 0 must be at least 1."),
    ({"mode": "fast"}, "mode = 'fast' must be 'sound' or 'paper'."),
    (
        {"device": "tpu"},
        "device = 'tpu' does not fit; use cpu, cuda or, of several, cuda:0, cuda:1 and so on.",
    ),
    ({"evaluation.diagnostics": "yes"}, "evaluation.diagnostics = 'yes' must be true or false."),
    ({"privacy.epsilon": "one"}, "privacy.epsilon = 'one' must be a number or a list."),
    ({"privacy.epsilon": -1}, "privacy.epsilon = -1 must be greater than 0 or a list."),
    ({"privacy.epsilon": [1.0, 2.0]}, "privacy.epsilon lists 2 values but nodes = 4; give one per node."),
    ({"privacy.epsilon": [1.0, 2.0, -1.0, 1.0]}, "privacy.epsilon[2] = -1.0 must be greater than 0."),
    ({"data.kind": "digit"}, "data.kind = 'digit' is not known; it can be "),
    ({"data": "digits"}, "data = 'digits' must be a table, for example data.kind = "),
    ({"data.pcaa": 3}, "data.pcaa is not a key of kind 'digits'; did you mean data.pca?"),
    ({"data.train_rows": "all"}, "data.train_rows = 'all' must be a whole number."),
    ({"data.records": [1, 2]}, "data.records lists 2 values but nodes = 4; give one per node."),
    ({"data.records": "few"}, "data.records = 'few' must be a whole number or a list."),
    ({"data.labels": []}, "data.labels = [] must have at least 1 entry."),
    ({"data.labels": [1, "x"]}, "data.labels[1] = 'x' must be a whole number."),
    ({"data.transform": "log"}, "data.transform = 'log' must be a list."),
    ({"data.transform": ["wavelets"]}, "data.transform.kind = 'wavelets' is not known; it can be "),
    (
        {"data.transform": [{"kind": "log", "floor": "a"}]},
        "data.transform.floor = 'a' must be a number.",
    ),
    (
        {"data.transform": [{"kind": "log", "flor": 1.0}]},
        "data.transform.flor is not a key of kind 'log'; did you mean data.transform.floor?",
    ),
    ({"data.partition.kind": "odd"}, "data.partition.kind = 'odd' is not known; it can be even, "),
    (
        {"data.partition": {"kind": "label-split"}},
        "data.partition.t is missing; kind 'label-split' needs it.",
    ),
    (
        {"data.partition": "even"},
        "data.partition = 'even' must be a table, for example data.partition.kind = \"even\".",
    ),
    ({"model.kind": "mlp", "model.hidden": 3}, "model.hidden = 3 must be a list."),
    ({"model.bias": 1}, "model.bias = 1 must be true or false."),
    ({"loss.kind": "hing"}, "loss.kind = 'hing' is not known; it can be least-squares, "),
    ({"loss.kind": "quantile", "loss.tau": 1.0}, "loss.tau = 1.0 must be less than 1."),
    ({"topology.kind": "rign"}, "topology.kind = 'rign' is not known; it can be ring, "),
    ({"topology.p": 0.5}, "topology.p is not a key of kind 'ring'; the keys here are mixing, dropout, slow."),
    ({"topology.slow": {"share": 0.5, "every": 1}}, "topology.slow.every = 1 must be at least 2."),
    ({"algorithm.kind": "sgdp"}, "algorithm.kind = 'sgdp' is not a method I know; the methods are "),
    ({"algorithm.lr": 0}, "algorithm.lr = 0 must be greater than 0 or a table."),
    (
        {"algorithm.lr": {"start": 1.0, "dacay": 2.0}},
        "algorithm.lr.dacay is not a key I know; did you mean algorithm.lr.decay?",
    ),
    ({"algorithm.lr": {"decay": 2.0}}, "algorithm.lr.start is missing; it must be set."),
    (
        {"algorithm.weights": "column"},
        "algorithm.weights is not a key of kind 'dyn-d2p'; the keys here are lr, ",
    ),
    ({"algorithm.draws": 2}, "algorithm.draws is not a key of kind 'dyn-d2p'; the keys here are lr, "),
    ({"algorithm.rounds": 2}, "algorithm.rounds is not a key of kind 'dyn-d2p'; the keys here are lr, "),
    ({"algorithm.rho": 2}, "algorithm.rho is not a key of kind 'dyn-d2p'; the keys here are lr, "),
    ({"algorithm.kind": "dp-dinno", "algorithm.rho": "0.1"}, "algorithm.rho = '0.1' must be a number."),
    ({"algorithm.kind": "dp-dinno", "algorithm.steps": 0}, "algorithm.steps = 0 must be at least 1."),
    (
        {**KM, "algorithm.operator": "sideways"},
        "algorithm.operator = 'sideways' does not fit; the operators are forward, ",
    ),
    (
        {**KM, "algorithm.penalty": {"kind": "l3"}},
        "algorithm.penalty.kind = 'l3' is not known; it can be none, l1, ",
    ),
    (
        {**KM, "algorithm.penalty": {"kind": "box", "low": 1.0, "high": 0.0}},
        "penalty.low = 1.0 must not exceed penalty.high = 0.0.",
    ),
    ({**KM, "algorithm.penalty": {"kind": "l1"}}, "algorithm.penalty.weight is missing; kind 'l1' needs it."),
    (
        {**KM, "algorithm.penalty": {"kind": "l1", "weight": "1"}},
        "algorithm.penalty.weight = '1' must be a number.",
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), SENTENCES, ids=lambda value: str(value)[:40])
def test_a_mistake_is_one_sentence_for_people(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(BASE, changes)
    message = str(caught.value)
    assert message.startswith(sentence)
    assert message == sentence or sentence.endswith(" ")
    assert message.endswith((".", "?"))
    assert "\n" not in message
    for word in ("Input", "valid", "pydantic", "collections", "pattern", "NoneType", "instance"):
        assert word not in message


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"data.kind": "digit"}, "; did you mean digits?"),
        ({"topology.kind": "rign"}, "; did you mean ring?"),
        ({"algorithm.kind": "dyn-d2"}, "; did you mean dyn-d2p?"),
        ({"data.ranges": "yes", "data.kind": "csv", "data.path": "a", "data.label": "y"}, "must be a table."),
    ],
)
def test_a_kind_that_is_nearly_one_is_asked_back(changes: dict[str, Any], end: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(BASE, changes)
    assert str(caught.value).endswith(end)
