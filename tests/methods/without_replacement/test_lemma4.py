"""Lemma 4: its noise, its claim, and its conditions."""

from __future__ import annotations

import math

import pytest
from tests.support.without_replacement import plan

from gossamer.accounting.claimed import classical_gaussian_sigma
from gossamer.accounting.gaussian import gdp_epsilon


def test_paper_mode_has_the_papers_noise_and_sound_mode_the_joint_one() -> None:
    paper, sound = plan(mode="paper", algorithm__controller="global"), plan(algorithm__controller="global")
    # Per class Δ = 2ηL/b and σ = Δ √(2 ln(1.25/δ)) / ε; a multiplier is in units of η √C / b.
    expected = classical_gaussian_sigma(1.0, 1e-6, 2.0) / math.sqrt(10)
    assert paper.nodes[0].factor == pytest.approx(expected)
    assert paper.figures()["epsilon_claimed"] == pytest.approx(1.0)
    assert paper.figures()["epsilon_proven"] == pytest.approx(gdp_epsilon(2 / expected, 1e-6))
    assert sound.figures()["epsilon_proven"] == pytest.approx(1.0, rel=1e-6)
    assert sound.figures()["epsilon_claimed"] < 0.5
    assert any("one of the 10 one-vs-all models" in flag for flag in paper.figures()["claim_flags"])


def test_ten_classes_at_epsilon_1_are_2_85_together() -> None:
    """The figure of the design: δ = 1/n² with n = 60,000, one class proven at ε = 1 by the exact Gaussian."""
    one = plan(privacy__delta=1e-5, algorithm__controller="global", mode="paper", nodes=1, rounds=10)
    assert one.figures()["epsilon_proven"] > 2.5


def test_strong_convexity_costs_what_the_paper_says_and_less_than_that() -> None:
    """L = 1 + λR doubles the paper's noise; the regulariser reads no record, so the proof does not need it."""
    changes = {"algorithm__regularisation": 1e-4, "algorithm__radius": 1e4, "algorithm__controller": "global"}
    plain, strong = plan(mode="paper", algorithm__controller="global"), plan(mode="paper", **changes)
    assert strong.nodes[0].factor == pytest.approx(2 * plain.nodes[0].factor)
    assert strong.figures()["epsilon_claimed"] == pytest.approx(1.0)
    assert strong.figures()["epsilon_proven"] < plain.figures()["epsilon_proven"]
    assert plan(**changes).nodes[0].factor == pytest.approx(
        plan(algorithm__controller="global").nodes[0].factor
    )


def test_passes_are_priced_as_visits() -> None:
    once, four = plan(algorithm__controller="global"), plan(algorithm__controller="global", rounds=144)
    assert four.nodes[0].factor == pytest.approx(2 * once.nodes[0].factor)
    assert four.figures()["epsilon_proven"] == pytest.approx(1.0, rel=1e-6)
    paper = plan(mode="paper", algorithm__controller="global", rounds=144)
    assert paper.figures()["epsilon_claimed"] == pytest.approx(1.0)
    assert any("4 visits" in flag for flag in paper.figures()["claim_flags"])


def test_raw_decisions_have_no_proof() -> None:
    figures = plan(mode="paper").figures()
    assert figures["epsilon_claimed"] == pytest.approx(1.0)
    assert figures["epsilon_proven"] is None
    assert "raw losses" in figures["not_proven_because"]
