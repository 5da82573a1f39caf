"""What the steps cost together, in closed form."""

from __future__ import annotations

import math

import pytest

from gossamer.accounting.gaussian import gdp_epsilon, gdp_mu
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Gaussian, OneSided, Unnoised
from gossamer.preprocess import ByQuantiles, ClassWeights, Components, planned_events

STEPS = (ClassWeights(), ByQuantiles(), Components())
DELTA = 1e-6


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("steps", [STEPS, STEPS[:1], STEPS[1:]])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_together_they_cost_what_was_asked(adjacency: str, steps: tuple[object, ...], epsilon: float) -> None:
    events = planned_events(steps, adjacency, epsilon=epsilon, delta=DELTA, times=1)  # type: ignore[arg-type]
    assert [event.draw for event in events] == list(range(-len(steps), 0))
    assert proven(events, DELTA, adjacency).epsilon == pytest.approx(epsilon, rel=1e-6)
    # In closed form: μ = shift / σ, and their squares add up.
    shifts = {OneSided: math.sqrt(2), Gaussian: 2.0} if adjacency == "replace-one" else {}
    squares = [(shifts.get(type(e.release), 1.0) / e.release.noise_multiplier) ** 2 for e in events]
    assert gdp_epsilon(math.sqrt(sum(squares)), DELTA) == pytest.approx(epsilon, rel=1e-6)
    parts = [step.part for step in steps]  # type: ignore[attr-defined]
    for square, part in zip(squares, parts, strict=True):
        assert square / sum(squares) == pytest.approx(part / sum(parts), rel=1e-6)


def test_copies_and_runs_take_more_noise() -> None:
    one, four = (planned_events(STEPS, "add-remove", epsilon=1.0, delta=DELTA, times=t) for t in (1, 4))
    for a, b in zip(one, four, strict=True):
        assert b.release.noise_multiplier == pytest.approx(2 * a.release.noise_multiplier)
    assert one[1].release.noise_multiplier == pytest.approx(1.5 / gdp_mu(1.0, DELTA), rel=1e-6)


def test_without_noise_it_says_so() -> None:
    events = planned_events(STEPS, "add-remove", epsilon=None, delta=DELTA, times=1)
    assert all(isinstance(event.release, Unnoised) for event in events)
