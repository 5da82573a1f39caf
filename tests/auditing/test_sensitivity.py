"""The search: records of every size are tried, the worst of every figure is kept, and a climb gets higher."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gossamer.auditing.sensitivity import Figure, Movement, OddRecord, RecordError, odd_records, search

OWN, LATER = "its own node's sum", "a later sum"


def numbers(shape: tuple[int, ...] = (6,)) -> torch.Tensor:
    return torch.randn(20, *shape, generator=torch.Generator().manual_seed(0))


def test_sizes_reach_from_1e_minus_30_to_1e30_and_beyond_what_is_finite() -> None:
    found = odd_records(numbers(), torch.zeros(20, dtype=torch.int64), 3, 0)
    sizes = torch.stack([record.x.abs().max() for record in found if bool(record.x.isfinite().all())])
    for size in (1e-30, 1e-23, 1e-12, 1e-6, 1.0, 1e5, 1e12, 1e30):
        assert bool(((sizes > 0.1 * size) & (sizes < 10 * size)).any())
    assert any(bool(record.x.isnan().all()) for record in found)
    assert any(bool(record.x.isinf().any()) and not bool(record.x.isinf().all()) for record in found)
    assert any(not bool(record.x.any()) for record in found)
    assert {int(record.y) for record in found} == {0, 1, 2}
    assert all(record.x.shape == (6,) and record.kind for record in found)


def test_some_cancel_over_the_first_axis() -> None:
    found = odd_records(numbers((2, 5)), torch.zeros(20, dtype=torch.int64), 2, 0)
    rest = [float(record.x.sum(0).norm() / record.x.norm()) for record in found if "halves that cancel" in record.kind]
    assert rest
    assert max(rest) < 1e-2


def test_places_of_a_table_are_only_those_that_occur() -> None:
    places = torch.tensor([3, 1, 3, 7])
    found = odd_records(places, torch.zeros(4), None, 0)
    assert {int(record.x) for record in found} == {1, 3, 7}
    assert not any(record.x.is_floating_point() for record in found)


def test_targets_that_are_numbers_are_odd_too() -> None:
    found = odd_records(numbers(), torch.linspace(0, 1, 20), None, 0)
    targets = torch.stack([record.y for record in found])
    assert bool(targets.isnan().any())
    assert bool(targets.isinf().any())
    assert float(targets[targets.isfinite()].abs().max()) > 1e29


def test_equal_seeds_give_equal_records() -> None:
    def kinds(seed: int) -> list[str]:
        return [record.kind for record in odd_records(numbers(), torch.zeros(20, dtype=torch.int64), 3, seed)]

    assert kinds(0) == kinds(0)
    assert kinds(0) != kinds(1)


def test_a_movement_is_broken_above_its_price_and_only_there() -> None:
    def broken(moved: float, priced: float, rounding: float = 0.0) -> bool:
        return Movement(OWN, moved, priced, "r", "l", rounding).broken

    assert not broken(1, 1)
    assert broken(1 + 1e-6, 1)
    assert not broken(1 + 1e-6, 1, rounding=2e-6)
    assert broken(1e-6, 0)
    assert broken(math.inf, 1)
    assert broken(math.nan, 1)
    assert not broken(1.1, 1, 0.1)


@dataclass(frozen=True)
class Scene:
    description: str = "lot"


class Hill:
    """One record as it is, of height −‖x − 5‖ above a price of 0."""

    improvable = True

    def __init__(self, start: Tensor, movements: Any = None) -> None:
        self._start, self._movements, self.best, self.tried = start, movements, -math.inf, 0

    def trials(self, odd: Any, seed: int) -> Iterator[tuple[Scene, OddRecord]]:
        yield Scene(), OddRecord(self._start, torch.tensor(0), "start")

    def measure(self, scene: Scene, record: OddRecord) -> list[Figure]:
        height = -float((record.x - 5).norm())
        self.tried, self.best = self.tried + 1, max(self.best, height)
        return [(OWN, height, 0.0, 0.0)]

    def slope(self, scene: Scene, record: OddRecord) -> Tensor | None:
        return None


def test_a_climb_gets_higher_within_its_tries() -> None:
    hill = Hill(torch.ones(64))
    result = search(hill, 0, tries=180)
    assert result.tried == hill.tried <= 180
    assert hill.best > -0.2 * 4 * math.sqrt(64)  # it began at −32
    assert result.worst[OWN].record == "start, improved"


def test_what_is_not_finite_is_not_improved() -> None:
    assert search(Hill(torch.full((64,), math.nan)), 0, tries=180).tried == 1


class Listed(Hill):
    """Movements as they are listed; an exception stops the run."""

    improvable = False

    def trials(self, odd: Any, seed: int) -> Iterator[tuple[Scene, OddRecord]]:
        for n in range(len(self._movements)):
            yield Scene(), OddRecord(torch.tensor(n), torch.tensor(0), f"record {n}")

    def measure(self, scene: Scene, record: OddRecord) -> list[Figure]:
        figures = self._movements[int(record.x)]
        if isinstance(figures, Exception):
            raise figures
        return figures  # type: ignore[no-any-return]


def test_the_worst_of_every_figure_is_kept() -> None:
    own = [[(OWN, moved, 1.0, 0.0)] for moved in (0.5, 3.0, 1.0)]
    figures = search(Listed(torch.ones(1), [*own, [(LATER, 0.0, 0.0, 0.0)]]), 0).figures()
    assert [one["record"] for one in figures["movements"]] == ["record 1", "record 3"]
    assert figures["broken"]
    assert [one["broken"] for one in figures["movements"]] == [True, False]
    poison = search(Listed(torch.ones(1), [[(LATER, math.inf, 0.0, 0.0)]]), 0)
    assert poison.figures()["movements"][0]["moved"] is None  # JSON has no infinity


def test_a_record_that_stops_the_run_is_reported_and_breaks_no_bound() -> None:
    result = search(Listed(torch.ones(1), [RecordError("ValueError: no")]), 0)
    assert result.stopped == "record 0: ValueError: no"
    assert not result.broken
