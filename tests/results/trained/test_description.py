"""What a run says of its models is read back as it was, and a stranger's file is a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.certificates import certificate
from tests.support.refusals import expect_refusal
from tests.support.trained import description
from torch import nn

from gossamer.errors import UserError
from gossamer.kernels.stack import ParameterStack
from gossamer.models.layers import Centred
from gossamer.results.export import card, markdown
from gossamer.results.trained import HeldWeights, Models, Parameter, parse_description, read_description


def test_it_comes_back_as_it_was_written(tmp_path: Path) -> None:
    for labels in (("no", "yes"), (False, True), (3, 7), (0.5, 1.5), ()):
        said = description(labels=labels)
        (tmp_path / "model.json").write_text(said.text())
        assert read_description(tmp_path / "model.json") == said
        assert said.names == list(labels or (0, 1))


@pytest.mark.parametrize(
    "change",
    [
        {"labels": ["only one"]}, {"nodes": 0}, {"model": {}}, {"format": 2}, {"inputs": []}, {"classes": "two"},
        {"parameters": [{"name": 1}]}, {"input_shape": [-1]}, {"task": "magic"},
    ],
)  # fmt: skip
def test_what_no_run_writes_is_a_sentence(change: dict[str, Any]) -> None:
    content = json.dumps({**json.loads(description().text()), **change}).encode()
    with expect_refusal(key="run/model.json", names="damaged"):
        parse_description(content, Path("run/model.json"))
    for text in (b"", b"[1]", b"\xff", b"{" * 100_000):
        with expect_refusal(key="run/model.json", names="damaged"):
            parse_description(text, Path("run/model.json"))


def test_a_network_is_built_by_its_name_and_no_larger_than_what_was_trained() -> None:
    assert description().network()[1].weight.shape == (2, 2)
    assert isinstance(description(centre=True, parameters=_CENTRED).network(), Centred)
    monster = description(model={"kind": "mlp", "hidden": [10**9, 10**9]})
    with expect_refusal(key="model.kind", value="mlp", names="1.weight 1000000000 2"):
        monster.network()


_CENTRED = (
    Parameter(name="centre", shape=(2,)),
    Parameter(name="head.1.weight", shape=(2, 2)),
    Parameter(name="head.1.bias", shape=(2,)),
)


@pytest.mark.parametrize("change", [{"own_module": True}, {"model": {"kind": "own"}}, {"model": {"kind": "python"}}])
def test_a_module_of_the_users_own_must_be_handed_over(change: dict[str, Any]) -> None:
    with expect_refusal(key="run", names="gossamer.load RUN --module", remedy=True):
        description(**change).network()
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, 2))
    assert description(**change).network(net) is net


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (
            nn.Sequential(nn.Flatten(), nn.Linear(3, 2)),
            "2 3",
        ),
        (
            nn.Linear(2, 2),
            "1.weight",
        ),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(2, 2), nn.Linear(2, 2)),
            "2.weight",
        ),
    ],
)
def test_another_module_than_was_trained_is_refused_by_name(net: nn.Module, words: str) -> None:
    with expect_refusal(key="module", names=words):
        description(own_module=True).network(net)


ZEROS = torch.zeros(1, 6)
JUNK: tuple[Any, ...] = (None, -1, 3, 10**12, "text", [], [1, "a"], {"kind": "csv"})


def places(value: Any, *path: Any) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, part in inner for place in places(part, *path, key))]


def test_whatever_a_strangers_file_says_it_is_used_or_refused_in_a_sentence() -> None:
    from gossamer.data.inputs import Inputs

    steps = Inputs(shape=(2,), columns=("a", "b"), ranges={"a": [0.0, 1.0]}, transform=["unit-norm"], scale="unit-ball")
    whole = description(inputs=steps)
    refused = used = 0
    for place in places(json.loads(whole.text()))[1:]:
        for junk in JUNK:
            said = json.loads(whole.text())
            at = said
            for step in place[:-1]:
                at = at[step]
            at[place[-1]] = junk
            try:
                found = parse_description(json.dumps(said).encode(), Path("model.json"))
                network = found.network()
                models = Models(found, HeldWeights(ParameterStack(network), range(1), ZEROS, ZEROS[0]), found.network)
                models.predict([[0.0, 1.0]])
                markdown(card(found, certificate(), {"name": "n"}, rounds=1, node=0, file="f", kind="onnx"))
                used += 1
            except UserError:  # anything else is a traceback for whoever opened it
                refused += 1
    assert min(refused, used) > 20


def test_a_network_of_thousands_of_layers_is_not_begun() -> None:
    said = {**json.loads(description().text()), "model": {"kind": "mlp", "hidden": [1] * 100_000}}
    with expect_refusal(key="model.json", names="figures"):
        parse_description(json.dumps(said).encode(), Path("model.json"))
