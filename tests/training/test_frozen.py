"""Frozen parameters: not trained, noised, sent or counted, and in the final model as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.support.refusals import expect_refusal
from torch import Tensor, nn
from typer.testing import CliRunner

import gossamer
from gossamer.cli import app
from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.stack import ParameterStack
from gossamer.training.predict import export

QUICK = {"nodes": 2, "rounds": 2, "checkpoints.every": 1, "evaluation.rows": 50}
WIDTH, CLASSES = 64, 10


class Tied(nn.Module):
    """One frozen table in two layers, a trained layer between them, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.encode = nn.Flatten(), nn.Linear(WIDTH, 6, bias=False)
        self.middle, self.last = nn.Linear(6, 6), nn.Linear(6, CLASSES)
        self.again = nn.Linear(WIDTH, 6, bias=False)
        self.again.weight = self.encode.weight
        self.encode.weight.requires_grad_(False)
        self.register_buffer("shift", torch.rand(6))
        self.register_buffer("steps", torch.tensor(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.flat(x)
        found: Tensor = self.last(torch.tanh(self.middle(self.encode(x)) + self.shift) * self.again(x))
        return found


class Direct(nn.Module):
    """A frozen parameter that belongs to no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(WIDTH, 6) / 8, requires_grad=False)
        self.last = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(torch.tanh(x.flatten(1) @ self.table))
        return found


def chain(*frozen: str) -> nn.Module:
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(WIDTH, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, CLASSES)
    )
    for name in frozen:
        net.get_parameter(name).requires_grad_(False)
    return net


def convolving() -> nn.Module:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.GroupNorm(2, 4),
        nn.Conv2d(4, 4, 3, padding=1), nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip
    for layer in (net[0], net[2]):
        layer.requires_grad_(False)
    return net


def made(kind: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return {
            "below": lambda: chain("1.weight", "1.bias"),
            "above": lambda: chain("5.weight", "5.bias"),
            "between": lambda: chain("3.weight", "3.bias"),
            "half a layer": lambda: chain("1.weight", "3.bias"),
            "tied": Tied,
            "direct": Direct,
            "convolving": convolving,
        }[kind]()


KINDS = ["below", "above", "between", "half a layer", "tied", "direct", "convolving"]


def parts(module: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(trained, everything else)."""
    trained = {name for name, p in module.named_parameters() if p.requires_grad}
    state = {name: value.clone() for name, value in module.state_dict().items()}
    return {n: v for n, v in state.items() if n in trained}, {n: v for n, v in state.items() if n not in trained}


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_the_gradients_of_what_is_trained_both_ways(kind: str) -> None:
    module = made(kind)
    loss = nn.CrossEntropyLoss(reduction="none")
    x, y = torch.rand(2, 3, 1, 8, 8), torch.tensor([[0, 1, 2], [3, 4, 5]])
    points, mask = ParameterStack(module).flatten(module).repeat(2, 1), torch.ones(2, 3, dtype=torch.bool)
    assert points.shape[1] == sum(value.numel() for value in parts(module)[0].values())
    for way in ("auto", "vmap"):
        sums, norms = ClippedSum(module, loss, method=way)(points, x, y, mask, torch.ones_like)
        trained = [p for p in module.parameters() if p.requires_grad]
        for i in range(2):
            plain = torch.autograd.grad(loss(module(x[i]), y[i]).sum(), trained)
            torch.testing.assert_close(sums[i], torch.cat([g.flatten() for g in plain]), rtol=1e-3, atol=1e-4)
        assert norms.shape == (2, 3)


@pytest.mark.parametrize("kind", ["below", "half a layer", "tied"])
def test_a_run_leaves_them_alone_and_counts_only_what_is_trained(kind: str, tmp_path: Path) -> None:
    module = made(kind)
    trained, fixed = parts(module)
    count = sum(value.numel() for value in trained.values())
    outcome = gossamer.run("quickstart", QUICK, module=module, out=tmp_path / "r")
    assert outcome.points.shape == (2, count)
    for node in ("average", 0, 1):
        after = outcome.module(node).state_dict()
        assert all(torch.equal(after[name], value) for name, value in fixed.items())
        assert all(not torch.equal(after[name], value) for name, value in trained.items())
    before = module.state_dict()
    assert all(torch.equal(before[name], value) for name, value in (trained | fixed).items())
    assert json.loads((tmp_path / "r" / "manifest.json").read_text())["dimension"] == count
    assert set(load_file(tmp_path / "r" / "average.safetensors")) == set(trained)
    kept = next((tmp_path / "r" / "checkpoints").glob("*.safetensors"))
    assert {value.shape[1] for value in load_file(kept).values() if value.ndim == 2} <= {0, 1, count}
    assert (tmp_path / "r" / "ledger.jsonl").is_file()
    every = sum(p.numel() for p in module.parameters())
    assert gossamer.plan("quickstart", QUICK, module=module).size == f"{count:,} of {every:,} parameters trained"


def test_a_stored_run_and_its_exports_have_the_values_of_the_run(tmp_path: Path) -> None:
    outcome = gossamer.run("quickstart", QUICK, module=made("tied"), out=tmp_path / "r")
    wanted = outcome.module().state_dict()
    other = Tied()  # as a script that makes its network again: other random numbers
    loaded = gossamer.load(tmp_path / "r", module=other).module().state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in wanted.items())
    assert loaded["steps"].dtype == torch.int64
    export(tmp_path / "r", tmp_path / "out", module=other)
    rest = set(wanted) - {"again.weight"}  # tied: one of the two names is enough
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(written[name], wanted[name]) for name in rest)
    (tmp_path / "r" / "frozen.safetensors").write_bytes(b"others")
    with expect_refusal(key="frozen.safetensors", names="signed"):
        gossamer.load(tmp_path / "r", module=other).module()


def test_a_module_that_does_not_fit_the_run_is_a_sentence(tmp_path: Path) -> None:
    gossamer.run("quickstart", QUICK, module=made("below"), out=tmp_path / "r")
    with expect_refusal(key="module", names="1.weight requires_grad", remedy=True):
        gossamer.load(tmp_path / "r", module=chain()).module()
    smaller = nn.Sequential(nn.Flatten(), nn.Identity(), nn.ReLU(), *list(made("below"))[3:])
    with expect_refusal(key="module", names="frozen"):
        gossamer.load(tmp_path / "r", module=smaller).module()


def test_nothing_to_train_is_refused() -> None:
    for module in (chain().requires_grad_(False), nn.Flatten(), nn.Sequential()):
        with expect_refusal(key="module", names="train"):
            gossamer.plan("quickstart", QUICK, module=module)


def test_a_run_resumes_with_the_same_frozen_values_only(tmp_path: Path) -> None:
    seeded = {**QUICK, "privacy.noise.source": "seeded"}
    whole = gossamer.run("quickstart", seeded, module=made("below"), out=tmp_path / "whole")

    class StopError(Exception):
        pass

    def stop(_: Any) -> None:
        raise StopError

    with pytest.raises(StopError):
        gossamer.run(
            "quickstart",
            {**seeded, "evaluation.every": 1},
            module=made("below"),
            out=tmp_path / "cut",
            callbacks=[stop],
        )
    other = made("below")
    with torch.no_grad():
        other.get_parameter("1.weight").mul_(2)
    with expect_refusal(key="cut", names="parameters"):
        gossamer.resume(tmp_path / "cut", module=other)
    assert torch.equal(gossamer.resume(tmp_path / "cut", module=made("below")).points, whole.points)


NET = """
import torch
from torch import nn

def make():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 10))
    net[1].requires_grad_(False)
    return net
"""


def test_from_a_file_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    changes = ["--set", "model=net.py:make", "--set", "seed=7", "--set", "rounds=2", "--set", "nodes=2"]
    planned = CliRunner().invoke(app, ["plan", "quickstart", *changes])
    assert "130 of 910 parameters trained" in " ".join(planned.output.split())
    done = CliRunner().invoke(app, ["run", "quickstart", *changes, "--out", "r"])
    assert done.exit_code == 0, done.output
    kept = load_file("r/frozen.safetensors")
    assert set(kept) == {"1.weight", "1.bias"}
    x = "\n".join([",".join(f"c{i}" for i in range(64)), ",".join(["0.5"] * 64)])
    Path("rows.csv").write_text(x)
    # Here the file runs under another seed: the run's own values are what counts.
    from gossamer.models.networks import load_module

    loaded = gossamer.load("r", module=load_module("net.py:make")).module()
    assert torch.equal(loaded.get_parameter("1.weight"), kept["1.weight"])
    asked = ["export", "r", "--out", "out", "--module", "net.py:make"]
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert torch.equal(load_file("out/model.safetensors")["1.weight"], kept["1.weight"])
