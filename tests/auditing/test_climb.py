"""Uphill: steps that move more are kept, and the module's own derivatives show the way where records mix."""

from __future__ import annotations

import math

import pytest
import torch
from tests.support.unsafe_modules import CLASSES, MIXING, Head
from torch import nn

from gossamer.auditing.climb import climb, derivative
from gossamer.auditing.odd_records import OddRecord
from gossamer.auditing.scenes import Scene, scenes
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.methods.objective import per_sample_loss
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan

LOSS = per_sample_loss(CLASSES)


@pytest.fixture(scope="module")
def scene() -> Scene:
    few = {"nodes": 3, "data.train_rows": 60, "rounds": 20, "privacy.noise.source": "seeded"}
    return scenes(assemble(Plan.of(resolve(recipes.read("quickstart"), few))), 0)[0]


class Hill:
    """Height −‖x − 5‖: what is climbed knows no module."""

    def __init__(self) -> None:
        self.module: nn.Module = Head()
        self.tried, self.best = 0, -math.inf

    def excess(self, scene: Scene, record: OddRecord) -> float:
        self.tried += 1
        height = -float((record.x - 5).norm())
        self.best = max(self.best, height)
        return height


def test_a_climb_gets_higher_within_its_tries(scene: Scene) -> None:
    hill = Hill()
    start = OddRecord(torch.ones(scene.batch.x.shape[2:]), torch.tensor(0), "ones")
    climb(hill, scene, start, LOSS, 60, 0, until=math.inf)
    assert hill.tried <= 60
    assert hill.best > -0.2 * 4 * math.sqrt(64)  # it began at −32


def test_what_is_not_finite_has_no_way_up(scene: Scene) -> None:
    hill = Hill()
    climb(
        hill,
        scene,
        OddRecord(torch.full((1, 8, 8), math.nan), torch.tensor(0), "nan"),
        LOSS,
        60,
        0,
        until=math.inf,
    )
    assert hill.tried == 0


@pytest.mark.parametrize(("module", "leads"), [(MIXING["slight mean"], True), (Head, False)])
def test_the_derivative_leads_to_other_records_only_where_there_is_a_way(
    scene: Scene, module: type[nn.Module], leads: bool
) -> None:
    record = OddRecord(torch.ones(scene.batch.x.shape[2:]), torch.tensor(0), "ones")
    assert (derivative(module(), scene, record, LOSS) is not None) is leads
