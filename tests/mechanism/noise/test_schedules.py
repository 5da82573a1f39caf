"""How noise goes over a run: the shapes that schedules give, and which noise each is about."""

from __future__ import annotations

import pytest
from tests.support.refusals import expect_refusal

from gossamer.mechanism.clipping import Constant, Geometric
from gossamer.mechanism.noise import schedules
from gossamer.mechanism.noise.gaussian import Gaussian

CLIP = Geometric(2.0, 0.25, 8)
SHAPES = {
    "constant": ({}, [1.0] * 8),
    "growing-budget": ({"ratio": 16.0}, [16 ** (-k / 8) for k in range(8)]),
    "sequence": (
        {"values": [3.0, 1.0]},
        [(3.0 if k < 4 else 1.0) / (2.0 * 0.25 ** (k / 8)) for k in range(8)],
    ),
    "own-norm": ({}, [1.0] * 8),
    "none": ({}, [0.0] * 8),
}


def test_every_schedule_stands_in_the_table() -> None:
    assert set(SHAPES) == set(schedules)


@pytest.mark.parametrize("kind", SHAPES)
def test_shapes_in_closed_form(kind: str) -> None:
    options, expected = SHAPES[kind]
    schedule = schedules.parse({"kind": kind, **options})
    shape = schedule.shape(8, CLIP)
    assert [shape(k) for k in range(8)] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", SHAPES)
def test_the_budget_ratio_is_first_noise_over_last_where_the_clip_stays(kind: str) -> None:
    """Budgets are 1 over multipliers; the ratio counts from draw 0 to draw K."""
    schedule = schedules.parse({"kind": kind, **SHAPES[kind][0]})
    if kind in {"constant", "growing-budget", "own-norm"}:
        shape = schedule.shape(100, Constant(1.0))
        assert shape(0) / shape(100) == pytest.approx(schedule.budget_ratio)


def test_a_schedule_is_of_the_family_asked_for_unless_it_is_about_another() -> None:
    family = Gaussian()
    for kind, (options, _) in SHAPES.items():
        noise = schedules.parse({"kind": kind, **options}).another or family
        expected = {"own-norm": "own-norm", "none": "none"}.get(kind)
        assert (noise is family) if expected is None else (noise.kind == expected)


def test_a_budget_that_shrinks_is_refused() -> None:
    with expect_refusal(key="privacy.noise.schedule.ratio", value="0.5"):
        schedules.parse({"kind": "growing-budget", "ratio": 0.5})
