"""Curves of ε: in the terminal by heights, as a picture by coordinates."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.configurations import outlined

from gossamer.results.epsilon_plot import curve_rounds, epsilon_plot, sparkline


def test_heights_are_eighths_of_the_highest_and_gaps_are_blank() -> None:
    assert sparkline([0.0, 1.0, 2.0, 4.0, 8.0]) == "▁▂▃▅█"
    assert sparkline([None, 1.0, float("inf")]) == " █ "
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""


@given(rounds=st.integers(1, 10_000))
def test_rounds_of_a_curve_end_with_the_last_and_have_no_zero(rounds: int) -> None:
    at = curve_rounds(rounds)
    assert at[-1] == rounds
    assert at == sorted(set(at))
    assert at[0] >= 1
    assert len(at) == min(rounds, 24)


def test_the_picture_starts_at_nothing_rises_and_ends_at_what_is_asked_for() -> None:
    plan = outlined(rounds=40, privacy__sampling={"kind": "full"}).privacy
    text = epsilon_plot(plan, 40)
    curves = [
        [tuple(map(float, point.split(","))) for point in found.split()]
        for found in re.findall(r'<polyline points="([^"]+)"', text)
    ]
    assert len(curves) == 2
    budget = float(re.search(r'y1="([\d.]+)" y2="[\d.]+" stroke="#b03030"', text)[1])  # type: ignore[index]
    for curve in curves:
        assert curve[0] == (56.0, 276.0)
        assert curve[-1][0] == 624.0
        heights = [y for _, y in curve]
        assert heights == sorted(heights, reverse=True)  # ε never falls; y grows downwards
    assert curves[1][-1][1] == pytest.approx(budget, abs=0.2)  # proven: all of the budget, no more
    assert "δ = 0.0001, add-remove" in text
    assert "asked for: 8" in text
