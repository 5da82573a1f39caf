"""Figures of a row, by hand; tables and plots made of them."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path
from typing import Any

import pytest

from gossamer.studies.compare.plot import curves_page, epsilon_page, write_page
from gossamer.studies.compare.statistics import curve, spread, summarise
from gossamer.studies.compare.table import Table, as_csv, compare_table


def result(accuracy: float, *, proven: float | None = 1.0, claimed: float | None = 0.9) -> dict[str, Any]:
    return {
        "accuracy_mean": accuracy,
        "accuracy_min": accuracy - 0.1,
        "consensus_distance": 2 * accuracy,
        "seconds": 10 * accuracy,
        "epsilon_claimed": claimed,
        "epsilon_proven": proven,
        "not_proven_because": None if proven is not None else "a reason",
        "delta": 1e-5,
        "adjacency": "add-remove",
        "stamp": None,
        "history": [{"round": r, "accuracy_mean": accuracy * r / 20} for r in (10, 20)],
    }


def row(
    *results: dict[str, Any], label: str = "a", baseline: str | None = None, **settings: Any
) -> dict[str, Any]:
    return {
        "recipe": label,
        "settings": settings,
        "baseline": baseline,
        **summarise(results),
        "cells": [],
    }


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


ROWS = [
    row(result(0.8), result(0.9), **{"privacy.epsilon": 1.0, "algorithm.kind": "x"}),
    row(result(0.7, proven=None), **{"privacy.epsilon": 2.0, "algorithm.kind": "y|z"}),
    row(
        result(0.95, proven=None, claimed=None),
        baseline="non-private",
        **{"privacy.epsilon": None, "algorithm.kind": "x"},
    ),
]


def test_markdown_says_what_the_figures_mean() -> None:
    text = compare_table(ROWS).markdown()
    head, rule, first, second, third = text.splitlines()[:5]
    assert head.startswith("| asked ε | method | baseline | accuracy (%) |")
    assert rule.count("---") == first.count(" | ") + 1
    assert "| 85.00 ± 7.07 |" in first
    assert "y\\|z" in second
    assert "| not proven |" in second
    assert third.startswith("| any | x | non-private | 95.00 |")
    assert "δ = 1e-05, add-remove; unit: one record of one node; observer:" in text
    assert "not proven: a reason" in text
    assert "1–2 seeds" in text


def test_a_long_statement_is_wrapped_as_one_point_of_the_list() -> None:
    statement = "observer: everyone, " * 20 + "and the final models."
    lines = Table(("a",), (("1",),), (statement,)).markdown().splitlines()[4:]
    assert max(map(len, lines)) <= 120
    assert [line[:2] for line in lines] == ["- ", *["  "] * (len(lines) - 1)]
    assert " ".join(line[2:] for line in lines) == statement


def test_rows_that_mean_different_things_by_epsilon_say_so_each() -> None:
    other = {**ROWS[1], "adjacency": "replace-one"}
    table = compare_table([ROWS[0], other])
    assert table.header[-3:] == ("δ", "adjacency", "seconds")
    assert table.rows[1][-3:-1] == ("1e-05", "replace-one")
    assert "δ =" not in " ".join(table.caption)


def test_seeded_noise_is_stamped_in_the_caption() -> None:
    stamped = {**ROWS[0], "stamp": "seeded noise: no privacy"}
    assert "SEEDED NOISE: NO PRIVACY" in compare_table([stamped]).caption


def test_csv_has_full_precision_and_every_column() -> None:
    found = list(csv.DictReader(io.StringIO(as_csv([{"a": 1 / 3, "b": None}, {"a": 2, "c": "x,y"}]))))
    assert found == [{"a": repr(1 / 3), "b": "", "c": ""}, {"a": "2", "b": "", "c": "x,y"}]


def test_plots_hold_the_points_and_ask_no_other_machine(tmp_path: Path) -> None:
    table = compare_table(ROWS)
    page = epsilon_page(ROWS, ["x", "y", "x, non-private"], table)
    curve_x, level = page.data
    assert (curve_x["x"], curve_x["y"]) == ([1.0], [pytest.approx(85.0)])
    assert curve_x["error_y"]["array"] == [pytest.approx(5 * math.sqrt(2))]
    assert level["y"] == [95.0, 95.0]
    assert any("no ε is proven: y" in remark for remark in page.remarks)
    assert "δ = 1e-05, add-remove" in page.layout["xaxis"]["title"]["text"]
    over_rounds = curves_page([curve([result(0.8), result(0.9)])], ROWS[:1], ["</script>"], table)
    band, line = over_rounds.data
    assert band["fill"] == "toself"
    assert line["y"] == [pytest.approx(42.5), pytest.approx(85.0)]
    for each in (page, over_rounds):
        assert write_page(tmp_path / "plot.html", each)
        text = (tmp_path / "plot.html").read_text()
        assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text.split("<body>")[1])
        assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", text)
        assert text.rstrip().endswith("</script></body></html>")
        assert text.count("</script>") == 2  # a label cannot end the script
