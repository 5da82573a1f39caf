"""Theorems 3 and 4 of the without-replacement paper: terms by hand, and how they scale."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.support.refusals import expect_refusal

from reproductions.bounds.without_replacement import theorem3, theorem4

THREE: dict[str, Any] = {
    "nodes": 10, "records": 600_000, "lot": 50, "turns": 1200, "lr": 0.1, "diameter": 2.0, "lipschitz": 1.0,
    "gradient_bound": 1.0, "writes": 6000.0, "epsilon": 1.0, "delta": 1e-10,
}  # fmt: skip
FOUR: dict[str, Any] = {
    "nodes": 10, "lot": 50, "turn": 100, "least_share": 0.05, "gradient_bound": 1.0, "lipschitz": 2.0,
    "epsilon": 1.0, "delta": 1e-10,
}  # fmt: skip


def test_theorem_3_term_by_term() -> None:
    start = 11 * 4 / (4 * 1200 * 0.1)
    noise = 4 * math.log(1.25e10) * 0.1 / 2500 * 5
    tail = 2 * (2 + 12 * 2**0.5) * 2 / 3 * (60_000**0.5 / 600_000 + 2 / (600_000**0.5 + 540_000**0.5))
    assert theorem3(**THREE) == pytest.approx(start + 0.1 + noise + tail)


def test_fewer_writes_and_more_budget_are_better() -> None:
    assert theorem3(**{**THREE, "writes": 600.0}) < theorem3(**THREE)
    assert theorem3(**{**THREE, "epsilon": 2.0}) < theorem3(**THREE)
    with expect_refusal(key="turns", value="12001", remedy=True):
        theorem3(**{**THREE, "turns": 12_001})


def test_theorem_4_falls_as_one_over_t() -> None:
    later = theorem4(**{**FOUR, "turn": 10_000})
    assert 0.009 < later / theorem4(**FOUR) < 0.012
    assert theorem4(**{**FOUR, "least_share": 0.5}) == pytest.approx(theorem4(**FOUR) / 100)
    with expect_refusal(key="turn", value="100", names="least_share", remedy=True):
        theorem4(**{**FOUR, "least_share": 0.9})
