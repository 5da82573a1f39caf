"""Writes of a shared model: steps that expand are found, steps within Lemma 4 are not accused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gossamer.algorithms.base import Exponential
from gossamer.auditing.sensitivity import OTHER
from gossamer.auditing.write_sensitivity import (
    WRITE,
    DealtLots,
    Noiseless,
    Window,
    search_writes,
)
from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.errors import UserError
from gossamer.training.plan import Plan

SMALL = {
    "nodes": 3,
    "rounds": 16,
    "data": {"kind": "synthetic-classification", "n": 96, "features": 5, "classes": 3, "test": 0},
    "privacy.sampling": {"kind": "one-pass", "lot": 8},
    "algorithm.controller": "pass-end",
    "privacy.noise.source": "seeded",
}


def outlined(**changes: Any) -> Any:
    return Plan.of(resolve(recipes.read("without-replacement/covertype"), {**SMALL, **changes}))


def test_steps_that_grow_until_they_expand_are_found() -> None:
    """start 0.1, decay 1000, power 0.001: a limit that ignored the decay took the longest step for 0.1."""
    found = search_writes(outlined(), steps=Exponential(0.1, 1000.0, 16, 0.001), tries=120)
    assert found.broken
    assert found.worst[WRITE].moved > 10
    assert not found.worst[OTHER].broken


@pytest.mark.parametrize("controller", ["pass-end", "global"])
def test_steps_within_the_lemma_keep_its_bound_and_nearly_reach_it(controller: str) -> None:
    found = search_writes(outlined(**{"algorithm.controller": controller}), tries=120)
    assert not found.broken
    assert found.worst[WRITE].moved == pytest.approx(
        1, abs=1e-3
    )  # float32 rounds a model of length 20 to 2e-6
    assert found.worst[OTHER].moved == 0


def test_nobody_writes_and_nothing_is_searched() -> None:
    with pytest.raises(UserError, match="nobody writes"):
        search_writes(outlined(**{"algorithm.controller": "local"}))


def test_dealt_lots_differ_in_one_place_of_one_lot() -> None:
    def lot(present: bool, step: int) -> Any:
        return DealtLots([0.5, 0.5], 2, 4, 1, present, True).draw(Noiseless(), [0, 1], [9, 9], step)

    assert torch.equal(lot(True, 0).mask, lot(False, 0).mask)
    differs = lot(True, 3).mask != lot(False, 3).mask
    assert differs.nonzero().tolist() == [[0, 4]]
    assert lot(True, 3).rows[0].tolist() == [4, 5, 6, 7, 8]


def test_a_stream_without_noise_fills_with_zeros_and_adds_nothing() -> None:
    out = np.ones((2, 3), dtype=np.float32)
    Noiseless().normal_rows(0, [0, 1], 0, out, 1.0, accumulate=True)
    assert (out == 1).all()
    Noiseless().normal_rows(0, [0, 1], 0, out, 1.0)
    assert (out == 0).all()


def test_a_window_says_where_the_record_was() -> None:
    assert Window(3, 1, 0).description == "write of turn 3"
    assert Window(4, 4, 2).description == "turns 4 to 7, record in number 3"
