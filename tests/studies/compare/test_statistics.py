"""Figures of a row, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.support.comparisons import result, row

from gossamer.studies.compare.statistics import curve, spread, summarise
from gossamer.studies.compare.table import compare_table


def test_mean_and_sample_deviation_by_hand() -> None:
    assert spread([2.0, 4.0, 9.0]) == (5.0, pytest.approx(math.sqrt((9 + 1 + 16) / 2)))
    assert spread([3.0]) == (3.0, None)
    assert spread([]) == (None, None)


def test_a_row_by_hand() -> None:
    figures = summarise([result(0.8, proven=1.0), result(0.9, proven=1.5)])
    assert figures["accuracy_mean"] == pytest.approx(0.85)
    assert figures["accuracy_std"] == pytest.approx(0.05 * math.sqrt(2))
    assert figures["worst_node_mean"] == pytest.approx(0.75)
    assert figures["consensus_distance_mean"] == pytest.approx(1.7)
    assert figures["seconds_std"] == pytest.approx(0.5 * math.sqrt(2))
    assert figures["epsilon_proven"] == 1.5  # the worst, not the mean


def test_one_seed_without_a_proof_leaves_the_row_without_one() -> None:
    figures = summarise([result(0.8), result(0.9, proven=None)])
    assert figures["epsilon_proven"] is None
    assert figures["not_proven_because"] == "a reason"


def test_a_diverged_seed_is_not_hidden_by_the_others() -> None:
    diverged = {**result(0.1), "consensus_distance": None}  # not finite: JSON has null
    figures = summarise([result(0.9), diverged])
    assert figures["consensus_distance_mean"] is None
    assert figures["accuracy_mean"] == pytest.approx(0.5)
    assert compare_table([row(result(0.9), diverged)]).rows[0][3] == "—"


def test_the_curve_is_over_common_rounds() -> None:
    one, two = result(0.8), result(0.6)
    two["history"] = two["history"][1:]
    assert curve([one, two]) == [(20, (pytest.approx(0.7), pytest.approx(0.1 * math.sqrt(2))))]


def test_a_row_says_if_no_epsilon_covers_one_of_its_figures() -> None:
    plain, unpaid = result(0.5), {**result(0.6), "not_private": {"because": "why"}}
    assert summarise([plain, plain])["not_private"] is None
    assert summarise([plain, unpaid])["not_private"] == "why"


def test_a_curve_is_of_the_lines_that_have_the_figure() -> None:
    """On private records only the last line has it."""
    history = [{"round": 5, "consensus_distance": 0.1}, {"round": 10, "auc_mean": 0.9, "metric": "auc"}]
    results: Any = [{"metric": "auc", "auc_mean": 0.9, "history": history}]
    assert curve(results) == [(10, (0.9, None))]
