"""A table of mistakes and what the sentences that people get for them name: the key first."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.support.refusals import assert_names

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
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"rouds": 5}, "rouds rounds"),
    ({"checkpoints.often": 1}, "checkpoints.often every"),
    ({"epsilon": 1.0}, "epsilon privacy.epsilon"),
    ({"sampling.rate": 1.0}, "sampling privacy.sampling"),
    ({"nodes": "4"}, "nodes 4 number"),
    ({"nodes": 2.5}, "nodes 2.5 number"),
    ({"nodes": True}, "nodes true number"),
    ({"nodes": 0}, "nodes 0 1"),
    ({"mode": "fast"}, "mode fast sound paper"),
    (
        {"device": "tpu"},
        "device tpu 0 1",
    ),
    ({"evaluation.diagnostics": "yes"}, "evaluation.diagnostics yes true"),
    ({"privacy.epsilon": "one"}, "privacy.epsilon one number"),
    ({"privacy.epsilon": -1}, "privacy.epsilon -1 0"),
    ({"privacy.epsilon": [1.0, 2.0]}, "privacy.epsilon 2 4"),
    ({"privacy.epsilon": [1.0, 2.0, -1.0, 1.0]}, "privacy.epsilon[2] -1.0"),
    ({"data.kind": "digit"}, "data.kind digit"),
    ({"data": "digits"}, "data digits data.kind table"),
    ({"data.pcaa": 3}, "data.pcaa digits"),
    ({"data.train_rows": "all"}, "data.train_rows all number"),
    ({"data.records": [1, 2]}, "data.records 2 4"),
    ({"data.records": "few"}, "data.records few number"),
    ({"data.labels": []}, "data.labels [] 1"),
    ({"data.labels": [1, "x"]}, "data.labels[1] x number"),
    ({"data.transform": "log"}, "data.transform log list"),
    ({"data.transform": ["wavelets"]}, "data.transform.kind wavelets"),
    (
        {"data.transform": [{"kind": "log", "floor": "a"}]},
        "data.transform.floor a number",
    ),
    (
        {"data.transform": [{"kind": "log", "flor": 1.0}]},
        "data.transform.flor kind log data.transform.floor",
    ),
    ({"data.partition.kind": "odd"}, "data.partition.kind odd even"),
    (
        {"data.partition": {"kind": "label-split"}},
        "data.partition.t kind label-split missing",
    ),
    (
        {"data.partition": "even"},
        "data.partition even data.partition.kind table",
    ),
    ({"model.kind": "mlp", "model.hidden": 3}, "model.hidden 3 list"),
    ({"model.bias": 1}, "model.bias 1 true"),
    ({"loss.kind": "hing"}, "loss.kind hing least-squares"),
    ({"loss.kind": "quantile", "loss.tau": 1.0}, "loss.tau 1.0"),
    ({"topology.kind": "rign"}, "topology.kind rign ring"),
    ({"topology.p": 0.5}, "topology.p ring mixing"),
    ({"topology.slow": {"share": 0.5, "every": 1}}, "topology.slow.every 1 2"),
    ({"algorithm.kind": "sgdp"}, "algorithm.kind sgdp"),
    ({"algorithm.lr": 0}, "algorithm.lr 0"),
    (
        {"algorithm.lr": {"start": 1.0, "dacay": 2.0}},
        "algorithm.lr.dacay algorithm.lr.decay",
    ),
    ({"algorithm.lr": {"decay": 2.0}}, "algorithm.lr.start missing"),
    (
        {"algorithm.weights": "column"},
        "algorithm.weights dyn-d2p lr",
    ),
    ({"algorithm.draws": 2}, "algorithm.draws dyn-d2p lr"),
    ({"algorithm.rounds": 2}, "algorithm.rounds dyn-d2p lr"),
    ({"algorithm.rho": 2}, "algorithm.rho dyn-d2p lr"),
    ({"algorithm.kind": "dp-dinno", "algorithm.rho": "0.1"}, "algorithm.rho 0.1 number"),
    ({"algorithm.kind": "dp-dinno", "algorithm.steps": 0}, "algorithm.steps 0 1"),
    (
        {**KM, "algorithm.operator": "sideways"},
        "algorithm.operator sideways forward",
    ),
    (
        {**KM, "algorithm.penalty": {"kind": "l3"}},
        "algorithm.penalty.kind l3 none",
    ),
    (
        {**KM, "algorithm.penalty": {"kind": "box", "low": 1.0, "high": 0.0}},
        "penalty.low 1.0 penalty.high 0.0",
    ),
    ({**KM, "algorithm.penalty": {"kind": "l1"}}, "algorithm.penalty.weight kind l1 missing"),
    (
        {**KM, "algorithm.penalty": {"kind": "l1", "weight": "1"}},
        "algorithm.penalty.weight 1 number",
    ),
]


@pytest.mark.parametrize(("changes", "names"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_is_one_sentence_for_people(changes: dict[str, Any], names: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(BASE, changes)
    message = str(caught.value)
    assert_names(caught.value, names.split(maxsplit=1)[0], names=names, remedy=True)
    assert "\n" not in message
    for word in ("Input", "valid", "pydantic", "collections", "pattern", "NoneType", "instance"):
        assert word not in message


@pytest.mark.parametrize(
    ("changes", "meant"),
    [
        ({"data.kind": "digit"}, "digits"),
        ({"topology.kind": "rign"}, "ring"),
        ({"algorithm.kind": "dyn-d2"}, "dyn-d2p"),
        ({"data.ranges": "yes", "data.kind": "csv", "data.path": "a", "data.label": "y"}, "table"),
    ],
)
def test_a_kind_that_is_nearly_one_is_asked_back(changes: dict[str, Any], meant: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(BASE, changes)
    assert meant in re.findall(r"[\w-]+", caught.value.remedy or "")[-3:]
