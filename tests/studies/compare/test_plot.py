"""Plots of a comparison hold its points and ask no other machine."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from tests.support.comparisons import ROWS, result

from gossamer.studies.compare.plot import curves_page, epsilon_page, write_page
from gossamer.studies.compare.table import compare_table, curve


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
