"""Runs of networks that draw at random: the numbers follow the noise's source, and nothing of the caller's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.support.refusals import expect_refusal
from torch import Tensor, nn

import gossamer
from gossamer.kernels.stack import ParameterStack

RECORDS, NODES, CLIP = 24, 2, 0.5
# A full lot, one step and next to no noise: what is left is what the records did.
PLAIN = {
    "nodes": NODES,
    "rounds": 1,
    "baseline": "no-communication",
    "data.classes": 3,
    "algorithm.kind": "dp-dsgd",
    "algorithm.lr": 1.0,
    "privacy.epsilon": None,
    "privacy.noise": {"source": "seeded", "multiplier": 1e-6},
    "privacy.clip": {"kind": "constant", "bound": CLIP},
    "privacy.sampling": {"kind": "full"},
}


class Noisy(nn.Module):
    """Adds noise to what it hides: computed record by record."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        hidden = hidden + torch.randn_like(hidden) if self.training else hidden
        found: Tensor = self.last(hidden)
        return found


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 3))


def made(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return make()


def node_data(records: int) -> tuple[Any, Any]:
    x = torch.randn(RECORDS + 1, 6, generator=torch.Generator().manual_seed(5))
    y = torch.randint(3, (RECORDS + 1,), generator=torch.Generator().manual_seed(6))
    return x[:records].numpy(), y[:records].numpy()


def sums(module: nn.Module, first: int = RECORDS, **changes: Any) -> Tensor:
    """(m, d) what the nodes' records added up to, the first node's being so many."""
    data = [node_data(first), node_data(RECORDS)]
    asked = {**PLAIN, "data.records": [first, RECORDS], **changes}
    points = gossamer.run("quickstart", asked, module=module, data=data).points
    moved = ParameterStack(module).flatten(module) - points
    return moved * torch.tensor([[first], [RECORDS]])


@pytest.mark.parametrize("make", [dropping, Noisy])
def test_one_record_moves_a_sum_by_its_clip_although_the_caller_seeded_torch(make: Any) -> None:
    found = []
    for first in (RECORDS, RECORDS + 1):
        torch.manual_seed(0)
        found.append(sums(made(make), first))
    moved = (found[1] - found[0]).norm(dim=1)
    assert 0 < moved[0] <= CLIP * 1.001
    assert moved[1] <= 1e-4 * CLIP  # nodes of one process share a batch, never a number


@pytest.mark.parametrize("make", [dropping, Noisy])
def test_seeded_runs_follow_the_seed_and_others_nothing_that_is_known(make: Any) -> None:
    def after(torchs: int, **changes: Any) -> Tensor:
        torch.manual_seed(torchs)
        state = torch.get_rng_state()
        found = sums(made(make), **changes)
        assert torch.equal(torch.get_rng_state(), state)
        return found

    assert torch.equal(after(0), after(1))
    assert not torch.allclose(after(0), after(0, seed=1), atol=1e-3)
    secret = {"privacy.noise": {"source": "system", "multiplier": 1e-6}}
    assert not torch.allclose(after(0, **secret), after(0, **secret), atol=1e-3)


def test_a_network_that_draws_when_it_predicts_judges_no_private_records() -> None:
    class Always(Noisy):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + torch.randn_like(x))

    judged = {"privacy.epsilon": 4.0, "privacy.noise": {"source": "seeded"}, "evaluation.private": 0.3}
    with expect_refusal(key="model", names="random"):
        sums(made(Always), **judged)


NET = """
from torch import nn

def make():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Dropout(0.3), nn.Linear(12, 10))
    net[1].requires_grad_(False)
    return net
"""


@pytest.mark.slow
def test_processes_draw_the_simulators_numbers_and_have_its_frozen_values(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    asked = ["model=net.py:make", "rounds=3", "nodes=4", "privacy.noise.source=seeded"]
    changes = [word for one in asked for word in ("--set", one)]
    for runtime in ("simulator", "processes"):
        command = ["run", "quickstart", *changes, "--runtime", runtime, "--out", runtime]
        subprocess.run([sys.executable, "-m", "gossamer", *command], cwd=tmp_path, check=True, capture_output=True)
    for file in ("average.safetensors", "frozen.safetensors"):
        one, two = (load_file(tmp_path / runtime / file) for runtime in ("simulator", "processes"))
        assert one.keys() == two.keys()
        for name, value in one.items():
            torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-5)
