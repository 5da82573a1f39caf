"""The book: pages from result files alone, verdicts that are computed, and a front page that counts them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import expect_refusal
from tests.support.result_files import grid

from gossamer.studies.papers import names
from reproductions import pages as book
from reproductions.definition import Definition, NoExperiment
from reproductions.findings import judge
from reproductions.record import read_record

BOOK = Path(__file__).parents[2] / "docs" / "reproductions"
RESULTS = Path(__file__).parents[2] / "reproductions" / "results"
RECORDED = [name for paper in book.paper_names() for name in book.items_of(paper)
            if (RESULTS / f"{name}.json").is_file()]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _judged_once() -> Iterator[None]:
    """Every item is read and judged once, for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(book, "item", functools.cache(book.item))
        yield


def test_every_epsilon_stands_with_what_it_means_and_every_interval_with_its_seeds() -> None:
    definition = Definition.model_validate(
        {
            "title": "T", "paper": "P", "recipe": "quickstart", "scale": {"full": {"seeds": 3}},
            "grid": [{"source": "Table 1", "rows": "method", "columns": "budget", "cells": " | ε = 1\na | 84"}],
        }
    )  # fmt: skip
    text = book.cells_table(definition, grid(a=([80.0, 81.0, 82.0], 84.0))).markdown()
    assert "| a | ε = 1 | 84.0 | 81.00 ± 2.48 | 1 | 3.75 | 81.00 ± 2.48 | 1 | 3.75 |" in text
    assert "δ = 0.0001, add-remove; unit: one record of one node; observer: everyone" in text
    assert "3 seeds." in text
    assert "commit abc" in text


@pytest.mark.parametrize("name", RECORDED)
def test_what_the_book_says_is_what_its_results_say(name: str) -> None:
    one = book.item(name, RESULTS)
    stated = one.definition.book
    assert stated is not None, "an item in the book has a [book] table"
    assert one.made is not None
    assert one.verdict == stated.verdict, book.lacking(one.definition, one.made)
    assert isinstance(one.definition, NoExperiment) or one.definition.finding
    assert all(f["values"] and f["seeds"] for c in one.made["cells"] for f in c["modes"].values())
    if one.verdict not in ("reproduced", "no experiment"):
        assert stated.believe, "where print and run disagree the book says what it believes"
        assert stated.ask
    text = (BOOK / f"{name.split('/', maxsplit=1)[0]}.md").read_text()
    assert f"## {one.source}\n\n**Verdict: {one.verdict}" in text


def test_the_pages_are_those_that_the_command_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for paper in sorted({name.split("/")[0] for name in RECORDED}):
        book.write_book(paper, tmp_path, RESULTS)
        # The two pages about all papers are the same every time: once is enough.
        for function, page in (("front_page", "index.md"), ("beliefs_page", "what-we-believe.md")):
            text = (tmp_path / page).read_text()
            monkeypatch.setattr(book, function, lambda *about, text=text: text)
    for written in tmp_path.iterdir():
        if written.is_file():
            assert written.read_text() == (BOOK / written.name).read_text(), written.name


@pytest.mark.parametrize("name", RECORDED)
def test_result_files_are_small_and_name_no_machine(name: str) -> None:
    place = RESULTS / f"{name}.json"
    assert place.stat().st_size < 400_000
    text = place.read_text()
    assert "/home/" not in text
    assert "/work" not in text
    assert "/root" not in text
    commits = {f["commit"] for c in json.loads(text)["cells"] for f in c["modes"].values()}
    assert all(len(commit) >= 12 for commit in commits)


def test_a_paper_or_a_result_that_is_not_there_is_named(tmp_path: Path) -> None:
    with expect_refusal(key="dyn-d3p", names="papers", remedy=True):
        book.write_book("dyn-d3p", tmp_path, tmp_path)
    with expect_refusal(key="dp-dkm", names="result"):
        book.write_book("dp-dkm", tmp_path, tmp_path)
    with expect_refusal(key="table2.json", names="reproductions", remedy=True):
        read_record(tmp_path, "dyn-d2p/table2")


def test_every_item_of_a_paper_is_in_its_list() -> None:
    listed = [name for paper in book.paper_names() for name in book.items_of(paper)]
    assert sorted(listed) == names()


def test_a_mode_that_was_left_out_is_not_called_the_same() -> None:
    """Only what has no ε is the same in both modes."""
    definition = Definition.model_validate(
        {
            "title": "T", "paper": "P", "recipe": "quickstart", "scale": {"full": {"seeds": 3}},
            "grid": [{"source": "Table 1", "rows": "method", "columns": "budget", "cells": " | ε = 1\na | 84"}],
        }
    )  # fmt: skip
    item = grid(a=([80.0], 84.0), b=([90.0], 95.0))
    item["cells"][2]["modes"]["paper"] |= {"epsilon_claimed": None, "epsilon_proven": None}
    for one in (item["cells"][0], item["cells"][2]):
        del one["modes"]["sound"]
    text = book.cells_table(definition, item).markdown()
    assert "| a | ε = 1 | 84.0 | 80.00 | 1 | 3.75 | not run |" in text
    assert "| b | ε = 1 | 95.0 | 90.00 | — | not proven | the same |" in text


def test_an_item_that_lacks_a_cell_of_the_book_is_unfinished_whatever_its_findings_say() -> None:
    definition = Definition.model_validate(
        {
            "title": "T", "paper": "P", "recipe": "quickstart",
            "scale": {"full": {"seeds": 3}, "book": {"seeds": 3, "keep": {"method": ["a", "b"]}}},
            "grid": [{"source": "Table 1", "rows": "method", "columns": "budget",
                      "cells": " | ε = 1 | ε = 3\na | 84 | ?\nb | - | 1\nc | 1 | 1"}],
            "finding": [{"says": "it is near", "near": 100}],
            "rule": [{"where": {"method": "b"}, "only": "sound"}],
        }
    )  # fmt: skip

    def verdict(made: dict[str, Any]) -> str:
        return book.Item("x", definition, made, tuple(judge(definition.finding, made["cells"]))).verdict

    whole = grid(a=([80.0, 81.0], 84.0), b=([9.0, 9.1], 1.0))
    assert verdict(whole) == "reproduced"
    del whole["cells"][3]["modes"]["paper"]  # b is run in sound mode alone
    del whole["cells"][2]  # and has no ε = 1
    assert verdict(whole) == "reproduced"
    del whole["cells"][1]["modes"]["sound"]
    assert book.lacking(definition, whole) == ["a, ε = 3, sound mode"]
    assert verdict(whole) == "unfinished"
    assert "Not run yet: a, ε = 3, sound mode." in book.cells_table(definition, whole).markdown()
    del whole["cells"][1]
    assert book.lacking(definition, whole) == ["a, ε = 3, paper mode", "a, ε = 3, sound mode"]


def test_the_front_page_counts_verdicts_and_states_the_share_of_the_papers_size() -> None:
    definition = Definition.model_validate(
        {
            "title": "T", "paper": "P", "recipe": "quickstart",
            "scale": {"full": {"seeds": 4}, "book": {"seeds": 2, "set": {"rounds": 10}}},
            "set": {"rounds": 40},
            "grid": [{"source": "Table 1", "rows": "method", "columns": "budget",
                      "cells": " | ε = 1 | ε = 3\na | 84 | 84\nb | 1 | 1"}],
            "finding": [{"says": "a before b", "along": "method", "order": ["a", "b"]}, {"says": "it is near", "near": 1}],
        }
    )  # fmt: skip
    made = grid(a=([80.0, 81.0], 84.0), b=([9.0, 9.1], 1.0))
    made["settings"] = {"rounds": 10}
    one = book.Item("x/table1", definition, made, tuple(judge(definition.finding, made["cells"])))
    text = book.front_page([one], [])
    assert "0 reproduced, 0 exceeded, 1 in part, 0 not, 0 void" in " ".join(text.split())
    assert "| in part: order | 2 of 2, 2 clear | — | 0 of 4, 2 above |" in text
    assert "| x, Table 1 | 50% of seeds, 25% of rounds" in text


def test_each_reading_has_its_own_row_of_verdicts() -> None:
    one = book.item("adad2p/figure4", RESULTS)
    assert one.judged[0].reading == "lots of 32, momentum"
    assert len({j.reading for j in one.judged}) == 3
    text = (BOOK / "adad2p.md").read_text()
    for judged in one.judged:
        assert f"| {judged.reading} | {judged.verdict} |" in text
