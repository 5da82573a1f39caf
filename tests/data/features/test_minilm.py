"""MiniLM as plain torch: the numbers of another implementation, each text by itself, kept on disk by content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from tests.support.refusals import expect_refusal
from tests.support.weights import minilm_weights, small_minilm
from torch import Tensor

from gossamer.data.features.minilm import FEATURES, HEAD_WIDTH, MiniLM, encoder
from gossamer.data.features.pipeline import applied, statements
from gossamer.data.origins import WEIGHTS


def reference(weights: Mapping[str, Tensor], tokens: Tensor) -> Tensor:
    """The last layer (texts, tokens, width) by ONNX runtime's own operators for BERT."""
    constants: dict[str, np.ndarray] = {}
    nodes = []

    def constant(name: str, value: Tensor) -> str:
        constants[name] = value.contiguous().numpy()
        return name

    def own(*names: str) -> list[str]:
        return [constant(name, weights[name]) for name in names]

    def operator(kind: str, inputs: list[str], output: str, **attributes: float) -> str:
        domain = "" if kind in ("MatMul", "Gelu", "Add") else "com.microsoft"
        outputs = [output, "lengths"] if kind == "EmbedLayerNormalization" else [output]
        nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **attributes))
        return output

    def norm(name: str) -> list[str]:
        return own(f"{name}.weight", f"{name}.bias")

    tables = own(*(f"embeddings.{name}_embeddings.weight" for name in ("word", "position", "token_type")))
    embedded = ["tokens", "types", *tables, *norm("embeddings.LayerNorm")]
    x = operator("EmbedLayerNormalization", embedded, "x", epsilon=1e-12)
    for k in range(len([name for name in weights if name.endswith("attention.self.query.weight")])):
        name = f"encoder.layer.{k}"
        heads = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        together = constant(f"{k} heads", torch.cat([weights[f"{head}.weight"] for head in heads]).T)
        biases = constant(f"{k} biases", torch.cat([weights[f"{head}.bias"] for head in heads]))
        y = operator("Attention", [x, together, biases, "mask"], f"{k} attention", num_heads=FEATURES // HEAD_WIDTH)

        def linear(value: str, layer: str, result: str) -> str:
            matrix = constant(f"{layer}.matrix", weights[f"{layer}.weight"].T)
            return operator("MatMul", [value, matrix], result)

        def added(old: str, new: str, layer: str, norm_name: str, result: str) -> str:
            inputs = [new, old, *norm(norm_name), *own(f"{layer}.bias")]
            return operator("SkipLayerNormalization", inputs, result, epsilon=1e-12)

        layer = f"{name}.attention.output.dense"
        x = added(x, linear(y, layer, f"{k} out"), layer, f"{name}.attention.output.LayerNorm", f"{k} mid")
        layer = f"{name}.intermediate.dense"
        up = operator("BiasGelu", [linear(x, layer, f"{k} up"), *own(f"{layer}.bias")], f"{k} gelu")
        layer = f"{name}.output.dense"
        x = added(x, linear(up, layer, f"{k} down"), layer, f"{name}.output.LayerNorm", f"{k} last")
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT32, [None, None]) for name in ("tokens", "types", "mask")
    ]
    output = helper.make_tensor_value_info(x, TensorProto.FLOAT, [None, None, None])
    values = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "bert", inputs, [output], values), opset_imports=opsets, ir_version=8
    )
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {"tokens": tokens.int(), "types": torch.zeros_like(tokens.int()), "mask": (tokens > 0).int()}
    (result,) = session.run(None, {name: value.numpy() for name, value in given.items()})
    return torch.from_numpy(result)


def some_tokens(words: int, length: int, texts: int = 6) -> Tensor:
    """Texts of all lengths from 1 to `length`."""
    tokens = torch.randint(1, words, (texts, length), generator=torch.Generator().manual_seed(1))
    lengths = torch.linspace(1, length, texts).long()
    return torch.where(torch.arange(length) < lengths[:, None], tokens, 0)


def check_against_reference(weights: Mapping[str, Tensor], length: int) -> None:
    tokens = some_tokens(len(weights["embeddings.word_embeddings.weight"]), length)
    kept = (tokens > 0)[:, :, None]
    expected = (reference(weights, tokens) * kept).sum(1) / kept.sum(1)
    with torch.no_grad():
        torch.testing.assert_close(MiniLM(weights, length)(tokens.float()), expected, rtol=0, atol=1e-4)


def test_the_same_numbers_as_onnx_runtime() -> None:
    check_against_reference(minilm_weights(), 16)


@pytest.mark.data
def test_the_published_weights_give_the_same_numbers_as_onnx_runtime() -> None:
    check_against_reference(WEIGHTS["minilm-l6"].tensors(None), 64)


def test_features_of_a_text_alone_and_among_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    weights = small_minilm(monkeypatch, tmp_path)
    tokens = some_tokens(50, 24, texts=40).float()
    features = applied(tokens.numpy(), ["minilm"], load=lambda *_: pytest.fail("no public set is needed"))
    assert features.shape == (40, FEATURES)
    with torch.no_grad():
        alone = torch.cat([MiniLM(weights, 24)(text[None]) for text in tokens])
    np.testing.assert_allclose(features, alone, rtol=0, atol=1e-4)


def test_the_first_layers_as_a_step_and_the_rest_as_a_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Together they are the encoder; a place without a token, and a text without any, have states of 0."""
    weights = small_minilm(monkeypatch, tmp_path, layers=3)
    tokens = torch.cat([some_tokens(50, 24, texts=40), torch.zeros(1, 24, dtype=torch.long)]).float()
    whole = MiniLM(weights, 24)
    for trunk in (1, 2):
        states = applied(tokens.numpy(), [{"kind": "minilm", "trunk": trunk}], load=lambda *_: pytest.fail("no set"))
        assert states.shape == (41, 24, FEATURES)
        np.testing.assert_array_equal((states != 0).any(2), tokens.numpy() > 0)
        rest = encoder(24, first=trunk)
        assert set(rest.state_dict()) < set(whole.state_dict())
        with torch.no_grad():
            np.testing.assert_allclose(rest(torch.from_numpy(states)), whole(tokens), rtol=0, atol=1e-4)
    with expect_refusal("trunk", 3):
        applied(tokens.numpy(), [{"kind": "minilm", "trunk": 3}], load=lambda *_: pytest.fail("no set"))


def test_a_text_without_tokens_has_finite_features_and_gradients() -> None:
    network = MiniLM(minilm_weights(1), 8)
    network(torch.zeros(2, 8)).sum().backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in network.parameters())


def test_what_they_owe_to_is_stated_and_other_records_are_refused() -> None:
    (sentence,) = statements(["minilm"])
    assert all(part in sentence for part in ("minilm-l6", "Apache-2.0", "53aa5117"))
    with expect_refusal(key="data.transform", names="tokens"):
        applied(np.zeros((2, 1, 8, 8), np.float32), ["minilm"], load=lambda *_: None)  # type: ignore[arg-type, return-value]


def test_longer_texts_than_there_are_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small_minilm(monkeypatch, tmp_path)
    with expect_refusal(key="texts", names="40"):
        encoder(41)
