"""What mechanisms with a scale for every node share, on one that only writes its scale down."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from tests.support.mechanism import levels

from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise import Participation
from gossamer.mechanism.noise.base import Mechanism

PART = Participation("full", 1.0, "add-remove")


@dataclass(frozen=True)
class Shown(Mechanism):
    """Its noise is its scale, and its release what it was asked for."""

    def draw(self, at: Any, sums: Any, scale: Any, ready: Any) -> None:
        sums += scale[:, None]

    def released(self, i: int, sigma: float, limit: float, dimension: int, part: Any) -> Any:
        return i, sigma, limit, dimension


class Hidden(Shown):
    scale_is_public: ClassVar[bool] = False


def test_the_scale_is_the_multiplier_times_the_bound_of_the_active_nodes() -> None:
    sums = torch.zeros(3, 2, dtype=torch.float64)
    Shown(levels(1.0, 3)).add(
        Stream.seeded(0), range(3), 0, sums, multiplier=torch.tensor([1.0, 2.0, 3.0]).double(),
        bound=torch.tensor([0.5, 0.5, 1.0]).double(), active=torch.tensor([True, False, True]),
    )  # fmt: skip
    assert sums[:, 0].tolist() == [0.5, 0.0, 3.0]


def test_a_release_is_of_that_scale_where_it_is_public_and_of_the_multiplier_where_not() -> None:
    assert Shown(levels(1.0, 1)).release(0, 3.0, 0.5, 7, PART, enforced=True) == (0, 1.5, 0.5, 7)
    assert Shown(levels(1.0, 1)).release(0, 3.0, 0.5, 7, PART, enforced=False) == (0, 1.5, math.inf, 7)
    assert Hidden(levels(1.0, 1)).release(0, 3.0, 0.5, 7, PART, enforced=True) == (0, 3.0, 0.5, 7)


def test_a_mechanism_must_say_what_it_releases() -> None:
    with pytest.raises(TypeError, match="draw, released"):
        Mechanism(levels(1.0, 1)).release(0, 1.0, 1.0, 1, PART, enforced=True)


def test_repeating_keeps_the_kind_and_repeats_the_levels() -> None:
    twice = Shown(levels(1.0, 2)).repeated(2)
    assert isinstance(twice, Shown)
    assert len(twice.levels.factor) == 4
