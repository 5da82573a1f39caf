"""The table of a comparison: what its figures mean stands beside them."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import pytest
from tests.support.comparisons import ROWS, result, row

from gossamer.results.terminal import Table, as_csv, terminal
from gossamer.studies.compare import compare_table, curve, spread, summarise


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


def test_figures_that_no_epsilon_covers_have_a_mark_and_its_meaning() -> None:
    unpaid = {**ROWS[0], "not_private": "local models are judged"}
    text = compare_table([unpaid, ROWS[1]]).markdown()
    assert "| 85.00 ± 7.07 † |" in text
    assert "† not private, no ε covers it, to stay here: local models are judged." in text
    assert "†" not in compare_table(ROWS).markdown()


def test_brackets_of_users_stay_in_header_rows_and_caption(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(("data.ranges[x]", "[b]"), (("[bold]1[/bold]", "y" * 150),), ("[c] as given",))
    table.show(terminal())
    out = capsys.readouterr().out
    for piece in ("data.ranges[x]", "[b]", "[bold]1[/bold]", "y" * 150, "[c] as given"):
        assert piece in out
    assert "\\[" not in out


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
