"""The one door: a configuration becomes what runs, or one sentence says why not, before a record is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.support.configurations import configured, outlined
from torch import Tensor, nn

import gossamer
from gossamer.algorithms.wrappers import Centre
from gossamer.errors import UserError
from gossamer.models.layers import Centred
from gossamer.training.outline import outline

SILENT = {"rounds": 3, "privacy__noise__schedule": {"kind": "none"}}


def test_models_and_graphs_follow_the_seed_alone() -> None:
    one, same, other = (outlined(**SILENT, model__kind="mlp", seed=seed) for seed in (1, 1, 2))
    first, again, another = (o.stack.flatten(o.module) for o in (one, same, other))
    assert torch.equal(first, again)
    assert not torch.equal(first, another)
    state = torch.random.get_rng_state()
    outlined(**SILENT)
    assert torch.equal(state, torch.random.get_rng_state())  # the caller's randomness is left alone


def test_no_communication_is_a_graph_without_links() -> None:
    alone = outlined(**SILENT, baseline="no-communication")
    assert all(len(list(alone.topology.edges(t))) == 0 for t in range(3))


def test_a_module_of_ones_own_replaces_the_models_and_may_not_mix_records() -> None:
    own = nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))
    made = outline(configured(**SILENT), module=own)
    assert made.module is own
    assert made.stack.dim == 640
    with pytest.raises(UserError, match="BatchNorm"):
        outline(
            configured(**SILENT), module=nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10))
        )


def test_a_module_that_looks_at_the_lot_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x / 255 if x.max() > 1 else x)

    with pytest.raises(UserError, match=r"model: the module itself \(Looks\) .* decides in Python"):
        outline(configured(**SILENT), module=Looks())
    with pytest.raises(UserError, match="decides in Python"):
        gossamer.run("quickstart", {"rounds": 4}, module=Looks(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_private_mean_goes_in_front_of_the_model_and_of_the_rounds() -> None:
    made = outlined(**SILENT, privacy__centre=0.1, privacy__clip={"kind": "constant", "bound": 1.0})
    assert isinstance(made.module, Centred)
    assert isinstance(made.algorithm, Centre)
    assert made.stack.dim == 64 + 650
    assert made.plan.draws == 4
    with pytest.raises(
        UserError, match=r"turns records into rows of numbers, which model\.kind = 'shallow-cnn'"
    ):
        outlined(
            **SILENT,
            privacy__centre=0.1,
            privacy__clip={"kind": "constant", "bound": 1.0},
            model__kind="shallow-cnn",
        )
