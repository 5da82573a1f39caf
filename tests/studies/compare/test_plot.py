"""What came of a comparison, as text and in a notebook."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests.support.comparisons import ROWS, result, row

import gossamer
from gossamer.results.pages import render
from gossamer.studies.compare import Comparison, compare_table, curve, curves_page, epsilon_page
from gossamer.training.api import configure


def found(rows: list[dict[str, Any]], page: Any) -> Comparison:
    figures = {"rows": rows, "failed": {"x, seed 1": "why <it> failed"}, "out": "runs/c"}
    return Comparison(figures, compare_table(rows), page)


def test_a_sweep_is_shown_over_epsilon() -> None:
    labels = ["<x>", "y|z", "plain"]
    made = found(ROWS, epsilon_page(ROWS, labels))
    assert made.rows == ROWS
    assert made.directory == Path("runs/c")
    html, text = made._repr_html_(), repr(made)
    for piece in ("85.00 ± 7.07", "δ = 1e-05, add-remove", "observer: everyone"):
        assert piece in html
        assert piece in text
    assert "why &lt;it&gt; failed" in html
    assert "&lt;x&gt;" in html
    assert "<x>" not in html
    assert "stroke-dasharray" in html  # what has no noise is a level line
    assert "<script" not in html


def test_runs_are_shown_over_rounds() -> None:
    results = [[result(0.8), result(0.9)], [result(0.5)]]
    rows = [row(*some, label=label) for some, label in zip(results, "ab", strict=True)]
    made = found(rows, curves_page([curve(some) for some in results], rows, ["a", "b"]))
    html = made._repr_html_()
    assert (html.count("<polyline"), html.count("<polygon")) == (2, 1)  # a band where there are several seeds


def test_plots_hold_the_points_and_need_nothing_else() -> None:
    page = epsilon_page(ROWS, ["x", "y", "x, non-private"])
    curve_x, level = page.plot.series
    assert curve_x.points == [(1.0, pytest.approx(0.85))]
    assert curve_x.spread == [(pytest.approx(0.85 - 0.05 * math.sqrt(2)), pytest.approx(0.85 + 0.05 * math.sqrt(2)))]
    assert [y for _, y in level.points] == [0.95, 0.95]
    assert any("no ε is proven: y" in remark for remark in page.remarks)
    assert "δ = 1e-05, add-remove" in page.plot.x.title
    over_rounds = curves_page([curve([result(0.8), result(0.9)])], ROWS[:1], ["</svg>"])
    (line,) = over_rounds.plot.series
    assert [y for _, y in line.points] == [pytest.approx(0.425), pytest.approx(0.85)]
    assert line.band
    for one in (page, over_rounds):
        text = render("compare", page=one, table=compare_table(ROWS))
        assert "default-src 'none'" in text
        assert "<script" not in text
        assert text.count("</svg>") == 1  # a label cannot end the drawing


@pytest.mark.slow
def test_recipes_of_all_forms_stand_side_by_side(tmp_path: Path) -> None:
    config = configure("quickstart", {"rounds": 6, "nodes": 4, "name": "whole"})
    tables = {**config.model_dump(exclude_none=True), "name": "tables"}
    made = gossamer.compare(
        [config, tables, "quickstart"],
        {"rounds": 4, "nodes": 4},
        over={"algorithm.kind": ["dyn-d2p", "dp-dsgd"]},
        out=tmp_path / "c",
        jobs=1,
    )
    assert [r["recipe"] for r in made.rows] == ["whole"] * 2 + ["tables"] * 2 + ["quickstart"] * 2
    assert made.failed == {}
    assert made.rows[0]["epsilon_proven"] == made.rows[4]["epsilon_proven"]
    assert "method" in repr(made).splitlines()[0]
    again = gossamer.compare(config, {"rounds": 4}, over={"algorithm.kind": ["dyn-d2p", "dp-dsgd"]}, out=tmp_path / "c")
    assert (again.result["cells_run"], again.result["cells_kept"]) == (0, 2)
