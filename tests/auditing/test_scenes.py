"""Lots with and without a record differ in that record alone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gossamer.auditing.odd_records import OddRecord
from gossamer.auditing.scenes import Scene, scenes
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.training.assemble import Parts, assemble
from gossamer.training.plan import Plan


def parts(**changes: Any) -> Parts:
    few = {"nodes": 3, "data.train_rows": 60, "rounds": 20, "privacy.noise.source": "seeded"}
    return assemble(Plan.of(resolve(recipes.read("quickstart"), {**few, **changes})))


@pytest.fixture(scope="module")
def made() -> list[Scene]:
    return scenes(parts(), 0)


def record(scene: Scene) -> OddRecord:
    return OddRecord(torch.full(scene.batch.x.shape[2:], 7.0), torch.tensor(3), "sevens")


def test_all_ways_to_join_sizes_and_ends_of_the_schedule_are_tried(made: list[Scene]) -> None:
    assert {scene.how for scene in made} == {"in place", "grown", "swapped"}
    assert {len(scene.start) for scene in made} == {1, 2, 3}
    assert {0, 1, 2, 3} <= {int(scene.batch.mask[scene.victim].sum()) for scene in made}
    bounds = {round(float(scene.clip.reference[0]), 3) for scene in made}
    assert {1.0, round(2.0 ** -(19 / 20), 3)} <= bounds  # Dyn-D2P's first clip and its last


def test_only_the_record_differs(made: list[Scene]) -> None:
    for scene in made:
        before, after = scene.batch, scene.with_record(record(scene))
        assert bool(after.mask[scene.victim, scene.place])
        assert bool((after.x[scene.victim, scene.place] == 7).all())
        assert int(after.y[scene.victim, scene.place]) == 3
        assert int(after.mask.sum() - before.mask.sum()) == (scene.how != "swapped")
        same = torch.ones_like(after.mask)
        same[scene.victim, scene.place] = False
        if scene.how == "grown":
            assert not bool(after.mask[:, -1][torch.arange(len(after.mask)) != scene.victim].any())
            same = same[:, :-1]
        assert torch.equal(after.x[:, : same.shape[1]][same], before.x[same])
        assert torch.equal(after.mask[:, : same.shape[1]][same], before.mask[same])
        assert scene.priced == (2.0 if scene.how == "swapped" else 1.0)


def test_where_a_record_is_replaced_only_swaps_are_neighbours() -> None:
    assert {scene.how for scene in scenes(parts(**{"privacy.adjacency": "replace-one"}), 0)} == {"swapped"}


@pytest.mark.slow
def test_a_clip_that_follows_records_is_tried_far_from_its_start() -> None:
    bounds = {
        float(scene.clip.reference[0]) for scene in scenes(parts(**{"privacy.clip": {"kind": "quantile"}}), 0)
    }
    assert min(bounds) <= 1e-12
    assert max(bounds) >= 1e12


def test_the_modules_own_randomness_is_the_same_every_time_and_put_back(made: list[Scene]) -> None:
    def vector(points: Tensor, *lot: Any, **more: Any) -> tuple[Tensor, Tensor]:
        drawn = torch.rand(1) + random.random() + float(np.random.rand())
        return points * 0 + drawn, torch.zeros(len(points), 1)

    state, plain, numbers = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # type: ignore[union-attr,index]
    first, again, other = (
        scene.sums(vector, scene.batch)[0][0, 0] for scene in (made[0], made[0], replace(made[0], seed=9))
    )
    assert first == again
    assert first != other
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == plain
    assert (np.random.get_state()[1] == numbers).all()  # type: ignore[index]


def test_movements_are_measured_in_bounds(made: list[Scene]) -> None:
    scene = next(scene for scene in made if float(scene.clip.reference[0]) < 0.6)
    bound = float(scene.clip.reference[0])
    moved = scene.in_bounds(torch.full((len(scene.start),), bound, dtype=torch.float64))
    assert moved.tolist() == pytest.approx([1.0] * len(scene.start))
