"""The table of a comparison: what its figures mean stands beside them."""

from __future__ import annotations

import csv
import io

from tests.support.comparisons import ROWS

from gossamer.studies.compare.table import Table, as_csv, compare_table


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
