"""The kind minilm: a public encoder with a new head, frozen but for adapters, through the engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support.refusals import expect_refusal
from tests.support.weights import small_minilm

import gossamer
from gossamer.data.features.minilm import MiniLM
from gossamer.models.networks import build
from gossamer.training.plan import notes_of

WORDS = ["free money", "money you", "meeting at noon", "at noon"]
RECIPE = {
    "rounds": 3,
    "topology": {"kind": "complete"},
    "model": {"kind": "minilm"},
    "lora": {"rank": 2, "targets": ["query", "value"], "train": ["head"]},
    "algorithm": {"kind": "dyn-d2p", "lr": 0.5},
    "privacy": {"epsilon": 4.0, "delta": 1e-3, "sampling": {"kind": "poisson", "rate": 0.5}},
}


@pytest.fixture(autouse=True)
def weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, torch.Tensor]:
    return small_minilm(monkeypatch, tmp_path)


def nodes() -> gossamer.Data:
    x = gossamer.tokens(WORDS * 4, length=8)
    y = np.tile([1, 1, 0, 0], 4)
    return gossamer.Data([(x, y), (x[::-1], y[::-1])], classes=2, count=16, test=(x[:4], y[:4]))


def test_the_first_model_is_the_public_encoder_with_a_head_of_zeros(weights: dict[str, torch.Tensor]) -> None:
    network = build("minilm", input_shape=(8,), outputs=2)
    tokens = torch.from_numpy(gossamer.tokens(WORDS, length=8))
    with torch.no_grad():
        assert torch.equal(network(tokens), torch.zeros(4, 2))
        assert torch.equal(network.encoder(tokens), MiniLM(weights, 8)(tokens))
    with expect_refusal(key="model.kind", value="minilm"):
        build("minilm", input_shape=(1, 8, 8), outputs=2)


def test_adapters_and_head_move_and_the_encoder_stays(weights: dict[str, torch.Tensor]) -> None:
    plan = gossamer.plan(RECIPE, data=nodes())
    assert plan.stack.dim == 2 * 2 * 2 * (384 + 384) + 2 * 385
    assert any("minilm-l6" in note for note in notes_of(plan.config))
    outcome = gossamer.run(RECIPE, data=nodes())
    tuned, before = outcome.module(), build("minilm", input_shape=(8,), outputs=2)
    state = dict(tuned.named_parameters())
    moved = {name for name in state if "lora_B" in name or name.startswith("head")}
    for name in moved:
        assert state[name].abs().sum() > 0, name
    whole = dict(gossamer.merge_lora(tuned).named_parameters())
    for name, value in before.named_parameters():
        touched = name.startswith("head") or ".query.weight" in name or ".value.weight" in name
        assert touched != torch.equal(whole[name], value), name


def test_adapters_on_states_that_were_computed_once() -> None:
    upper = {
        "data": {"transform": [{"kind": "minilm", "trunk": 1}]},
        "model": {"kind": "minilm", "trunk": 1},
        "lora": {"rank": 2, "targets": ["layers.1.query", "layers.1.value"], "train": ["head"]},
    }
    outcome = gossamer.run(RECIPE | upper, data=nodes())
    names = [name for name, own in outcome.module().named_parameters() if own.requires_grad]
    assert all(name.startswith(("encoder.layers.1.", "head.")) for name in names)
    assert outcome.predict(gossamer.tokens(WORDS, length=8)).shape == (4,)
    with expect_refusal(names=["trunk = 1"]):
        gossamer.plan(RECIPE | upper | {"data": {}}, data=nodes())
    with expect_refusal("model.kind", "minilm", names="tokens"):
        gossamer.plan(RECIPE | {"data": upper["data"]}, data=nodes())
