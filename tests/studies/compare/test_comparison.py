"""What came of a comparison, as text and in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.comparisons import ROWS, result, row

import gossamer
from gossamer.studies.compare.comparison import Comparison
from gossamer.studies.compare.plot import curves_page, epsilon_page
from gossamer.studies.compare.table import compare_table, curve
from gossamer.training.api import configure


def found(rows: list[dict[str, Any]], page: Any) -> Comparison:
    figures = {"rows": rows, "failed": {"x, seed 1": "why <it> failed"}, "out": "runs/c"}
    return Comparison(figures, compare_table(rows), page)


def test_a_sweep_is_shown_over_epsilon() -> None:
    labels = ["<x>", "y|z", "plain"]
    made = found(ROWS, epsilon_page(ROWS, labels, compare_table(ROWS)))
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
    made = found(rows, curves_page([curve(some) for some in results], rows, ["a", "b"], compare_table(rows)))
    assert made._repr_html_().count("<polyline") == 2  # and no band


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
    again = gossamer.compare(
        config, {"rounds": 4}, over={"algorithm.kind": ["dyn-d2p", "dp-dsgd"]}, out=tmp_path / "c"
    )
    assert (again.result["cells_run"], again.result["cells_kept"]) == (0, 2)
