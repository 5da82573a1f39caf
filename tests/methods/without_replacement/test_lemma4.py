"""Lemma 4: its noise, its claim, and its conditions."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.support.refusals import expect_refusal
from tests.support.without_replacement import DIGITS, plan

from gossamer.accounting.profiles import gdp_epsilon
from gossamer.config.checks import refuse
from gossamer.config.layers import resolve
from gossamer.config.schema import RunConfig
from gossamer.methods.claims import classical_gaussian_sigma
from gossamer.methods.without_replacement import lemma4


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
    assert plan(**changes).nodes[0].factor == pytest.approx(plan(algorithm__controller="global").nodes[0].factor)


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


Changes = dict[str, Any]
WITHOUT_NOISE: Changes = {"privacy.noise.schedule": {"kind": "none"}}
POISSON: Changes = {"privacy.sampling": {"kind": "poisson", "lot": 10}}
BALLS: Changes = {"privacy.sampling": {"kind": "balls-and-bins", "lots": 6}}
PROCESSES: Changes = {"runtime.kind": "processes"}
SEEDED: Changes = {"privacy.noise.source": "seeded"}
BALL: Changes = {"privacy.clip": {"kind": "record-ball", "radius": 2.0}}
# what is refused, a piece of its sentence, what differs by one key and passes
REFUSALS: list[tuple[Changes, str, Changes]] = [
    *[
        (piece, "algorithm.kind algorithm.momentum", {})
        for piece in (
            {"algorithm.momentum": 0.5}, {"algorithm.mixes": 2}, {"algorithm.tail_average": 0.5},
            {"algorithm.final_gossip": 3}, {"privacy.centre": 0.1},
        )
    ],
    ({"model.kind": "softmax"}, "model.kind softmax", {"model.kind": "one-vs-all"}),
    ({"topology.kind": "ring"}, "topology.kind ring complete", {"topology.kind": "complete"}),
    (
        {**PROCESSES, "algorithm.scored": "local"},
        "algorithm.scored local",
        {**PROCESSES, "algorithm.scored": "global"},
    ),
    (
        {**PROCESSES, "algorithm.controller": "local"},
        "algorithm.controller local",
        {**PROCESSES, "algorithm.controller": "local", **SEEDED},
    ),
    (
        {**PROCESSES, "algorithm.scored": "local"},
        "local runtime.kind simulator",
        {"algorithm.scored": "local", "mode": "paper"},
    ),
    *[
        (
            {f"algorithm.{key}": "local"},
            f"algorithm.{key} local",
            allowed,
        )
        for key in ("scored", "controller")
        for allowed in ({**SEEDED, f"algorithm.{key}": "local"}, {"baseline": "no-communication"})
    ],
    ({"device": "cuda"}, "device cuda", {"device": "cpu"}),
    ({"topology.dropout": 0.2}, "topology.dropout 0.2", {"topology.dropout": 0.0}),
    (
        {"privacy.clip": {"kind": "constant", "bound": 1.0}},
        "privacy.clip.kind constant",
        {"privacy.clip": {"kind": "record-ball"}},
    ),
    (
        {"mode": "paper", "privacy.clip": {"kind": "none"}},
        "privacy.clip.kind record-ball",
        {"mode": "paper", "privacy.clip": {"kind": "none"}, **WITHOUT_NOISE},
    ),
    (
        {"privacy.noise.schedule": {"kind": "growing-budget", "ratio": 2.0}},
        "privacy.noise.schedule.kind growing-budget",
        {"privacy.noise.schedule": {"kind": "constant"}},
    ),
    (
        {"privacy.noise.family": {"kind": "laplace"}},
        "privacy.noise.family.kind laplace",
        {"privacy.noise.family": {"kind": "gaussian"}},
    ),
    ({"weighting": "size"}, "weighting size", {"weighting": "uniform"}),
    (POISSON, "privacy.sampling.kind poisson 4", {}),
    (
        {**POISSON, "algorithm.controller": "global", "algorithm.average": True},
        "privacy.sampling.kind poisson algorithm.average",
        {**POISSON, "algorithm.controller": "global", "algorithm.average": False},
    ),
    (BALLS, "privacy.sampling.kind balls-and-bins lots size 4 local", {**BALLS, "algorithm.controller": "global"}),
    (
        {**BALLS, "algorithm.controller": "pass-end"},
        "privacy.sampling.kind balls-and-bins lots size",
        {"algorithm.controller": "pass-end"},
    ),
    (
        {"algorithm.observes": "raw"},
        "algorithm.observes raw",
        {"algorithm.observes": "raw", "mode": "paper"},
    ),
    ({"algorithm.observes": "raw"}, "algorithm.observes raw released", {"algorithm.observes": "raw", "algorithm.controller": "global"}),
    # μ = B²/4 + λ and η ≤ 1/(2μ)
    ({"algorithm.lr": 2.01}, "algorithm.lr 2.01 4", {"algorithm.lr": 2.0}),
    ({"algorithm.lr": 0.51, **BALL}, "algorithm.lr 0.51", {"algorithm.lr": 0.5, **BALL}),
    (
        {"algorithm.lr": 1.01, "algorithm.regularisation": 0.25},
        "algorithm.lr 1.01",
        {"algorithm.lr": 1.0, "algorithm.regularisation": 0.25},
    ),
    ({"algorithm.lr": {"start": 3.0, "power": 1.0}}, "algorithm.lr 3.0", {"algorithm.lr": {"start": 2.0, "power": 1.0}}),
    ({"algorithm.lr": 5.0}, "algorithm.controller global", {"algorithm.lr": 5.0, "algorithm.controller": "global"}),
    ({"algorithm.lr": 5.0}, "algorithm.lr 4", {"algorithm.lr": 5.0, "mode": "paper"}),
    ({"algorithm.lr": 5.0}, "algorithm.lr 4", {"algorithm.lr": 5.0, **WITHOUT_NOISE}),
]  # fmt: skip
rows = pytest.mark.parametrize(("refused", "says", "passes"), REFUSALS, ids=[str(row[0]) for row in REFUSALS])


def check(config: RunConfig, classes: int | None) -> None:
    refuse(lemma4.refusals(config, classes))


@rows
def test_check_refuses_in_one_sentence(refused: Changes, says: str, passes: Changes) -> None:
    config = resolve(DIGITS, refused)
    with expect_refusal(names=says) as caught:
        check(config, 10)
    assert "\n" not in str(caught.value)


@rows
def test_check_lets_the_nearest_pass(refused: Changes, says: str, passes: Changes) -> None:
    check(resolve(DIGITS, passes), 10)


def test_check_needs_classes() -> None:
    with expect_refusal(key="algorithm.kind", names="classes"):
        check(resolve(DIGITS, {}), None)


def test_noise_and_claim_undo_each_other() -> None:
    """The noise that a budget buys costs that budget again, whatever L, B and the number of classes."""
    for classes, changes in (
        (10, {}),
        (3, BALL),
        (1, {"algorithm.regularisation": 0.1, "algorithm.radius": 2.0}),
    ):
        rule = lemma4.lemma4_of(resolve(DIGITS, {"mode": "paper", **changes}), classes)
        run = plan(mode="paper", algorithm__controller="global")
        factor, end = rule.noise(run, 10 / 360, 0.7, 1e-6)
        assert end is None
        assert rule.claim(run, factor, 10 / 360, 1e-6, run.draws).epsilon == pytest.approx(0.7, rel=1e-9)
        assert any("unit vectors" in flag for flag in rule.flags) == bool(changes is BALL)
        assert any("one-vs-all" in flag for flag in rule.flags) == (classes > 1)


def test_largest_step_is_that_of_the_whole_schedule() -> None:
    for lr, longest in (
        (0.3, 0.3),
        ({"start": 0.3, "decay": 0.5}, 0.3),
        ({"start": 0.3, "decay": 4.0}, 1.2),
        ({"start": 0.3, "power": 0.5}, 0.3),
    ):
        assert lemma4.largest_step(resolve(DIGITS, {"algorithm.lr": lr})) == pytest.approx(longest)


def test_notes_say_what_a_reader_must_know() -> None:
    assert lemma4.notes(resolve(DIGITS, {})) == []
    raw = lemma4.notes(resolve(DIGITS, {"mode": "paper", "algorithm.observes": "raw"}))
    assert any("ln 19" in note for note in raw)
    local = lemma4.notes(resolve(DIGITS, {"algorithm.scored": "local"}))
    assert any("nodes' own local models" in note for note in local)
