"""The papers' tables as data: every number parses, and every cell resolves to what it says."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from gossamer import papers
from gossamer.errors import UserError
from gossamer.papers import titles
from gossamer.studies.reproduce.command import said_cuts
from gossamer.studies.reproduce.paper_table import (
    SCALES,
    Definition,
    PaperCell,
    Scale,
    flatten,
    paper_cells,
    parse_number,
    read,
)

NAMES = [
    "adad2p/figure1", "adad2p/figure2", "adad2p/figure3", "adad2p/figure4", "dp-consensus/figure1",
    "dp-consensus/figure2", "dp-consensus/figure3", "dp-consensus/table1", "dp-consensus/table2", "dp-consensus/table3",
    "dp-consensus/table4", "dp-consensus/table5", "dp-dkm/figure1", "dp-dkm/figure2", "dp-dkm/figure3",
    "dyn-d2p/figure1", "dyn-d2p/figure2", "dyn-d2p/figure3", "dyn-d2p/figure4", "dyn-d2p/figure5", "dyn-d2p/table1",
    "dyn-d2p/table2",
    "without-replacement/figure1", "without-replacement/figure2", "without-replacement/figure3",
    "without-replacement/figure4", "without-replacement/table1", "without-replacement/table2",
]  # fmt: skip

WITHOUT_EXPERIMENT = ["adad2p/table1"]


def cell(cells: list[PaperCell], *labels: str) -> PaperCell:
    (found,) = [c for c in cells if set(labels) <= set(c.labels.values())]
    return found


def own_rules(name: str) -> list[dict[str, Any]]:
    """Without those of the table it is `like`, which may speak of methods that are not here."""
    file = Path(papers.__file__).parent / f"{name}.toml"
    return [{"where": {}, **rule} for rule in tomllib.loads(file.read_text(encoding="utf-8")).get("rule", [])]


def test_all_tables_are_there() -> None:
    ours = ["central-accuracy/table", "frontier/more", "frontier/table"]
    everything = sorted([*NAMES, *WITHOUT_EXPERIMENT, *ours])
    assert papers.names() == everything
    assert list(titles()) == everything


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_parse_and_figures_have_none(name: str) -> None:
    definition = read(name)
    full = paper_cells(definition, "full", runs=False)
    small = paper_cells(definition, "small", runs=False)
    assert 0 < len(small) <= len(full)
    assert len({c.label for c in full}) == len(full)
    printed = [c for c in full if c.printed is not None]
    ours = [c for c in full if "(ours)" in c.label]  # rows of our own beside the paper's
    drawn_from_a_table = "(numbers of Table" in definition.grid[0].source
    assert len(printed) == (len(full) - len(ours) if "/table" in name or drawn_from_a_table else 0)
    low, high = (10, 100) if definition.audit is None else (0, 1)  # accuracies, or bounds on ε
    if name == "dp-consensus/table3":  # hours
        low, high = 0, 20
    assert all(c.mean is not None and low < c.mean < high for c in printed)
    axes = {axis: {c.labels[axis] for c in full if axis in c.labels} for c in full for axis in c.labels}
    for axis, values in definition.scale["small"].keep.items():  # a misspelt value would keep nothing
        assert set(values) <= axes[axis]
    for rule in own_rules(name):
        for axis, value in rule["where"].items():
            assert set([value] if isinstance(value, str) else value) <= axes[axis]
    for finding in definition.finding:
        for axis, value in finding.where.items():
            assert set([value] if isinstance(value, str) else value) <= axes[axis]
        assert finding.along is None or set(finding.order or []) <= axes[finding.along]


def test_spot_checks_against_the_papers() -> None:
    one = paper_cells(read("dp-consensus/table1"), "full", runs=False)
    assert len(one) == 4 * 5 * 4
    found = cell(one, "0.06", "DP-DSGT", "ε = 1")
    assert (found.mean, found.std, found.printed) == (89.16, 0.82, "89.16 ± 0.82")
    assert "Table 1, normalized Fiedler value 0.06" in found.source
    assert found.source.endswith("row DP-DSGT, column ε = 1")
    assert cell(one, "0.39", "DP-DSGD", "non-private").mean == 94.77
    assert (cell(one, "0.06", "DP-DiNNO", "ε = 0.5").mean, cell(one, "1", "Central", "ε = 100").std) == (
        78.44,
        0.62,
    )
    two = paper_cells(read("dp-consensus/table2"), "full", runs=False)
    assert len(two) == 30
    assert cell(two, "DP-DSGT", "ε = 10", "t = 1").mean == 96.06  # Table 1 prints 96.26: both are kept
    assert cell(one, "0.06", "DP-DSGT", "ε = 10").mean == 96.26
    four = paper_cells(read("dp-consensus/table4"), "full", runs=False)
    assert (
        cell(four, "DP-DSGT", "ε = 10", "t = 0.5").mean,
        cell(four, "DP-DiNNO", "non-private", "t = 1").std,
    ) == (27.69, 2.3)
    cifar = paper_cells(read("dyn-d2p/table1"), "full", runs=False)
    assert len(cifar) == 19
    assert (cell(cifar, "Dyn-D²P", "ε = 0.3").mean, cell(cifar, "Non-private").mean) == (71.87, 82.16)
    fashion = paper_cells(read("dyn-d2p/table2"), "full", runs=False)
    for reading in ("lots clipped, momentum", "records clipped, momentum", "one record, plain"):
        assert cell(fashion, reading, "Const-D²P", "ε = 0.3").mean == 45.37
    assert cell(fashion, "lots clipped, momentum", "Dyn[C]-D²P", "ε = 3").mean == 84.98


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", ["small", pytest.param("full", marks=pytest.mark.slow)])
def test_every_cell_resolves_to_what_it_says(name: str, scale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.studies.reproduce.paper_table._data_at_hand", lambda kinds, data_dir: {})
    for found in paper_cells(read(name), scale):  # type: ignore[arg-type]
        for mode, cells in found.runs.items():
            config = cells[0].config
            assert config.mode == mode
            budget = found.labels.get("budget", "")
            if budget.startswith("ε"):
                assert config.privacy.epsilon == float(budget.removeprefix("ε = "))
            if found.labels.get("method") == "Central":
                assert config.baseline == "central"
            if "non-private" in (budget, found.labels.get("method", "").lower()):
                assert list(found.runs) == ["paper"]
            attacked = read(name).audit is not None  # by adding a record, as the paper's accountant has it
            if (
                name.startswith("dp-consensus")
                and mode == "paper"
                and config.baseline == "none"
                and not attacked
            ):
                assert config.privacy.adjacency == "replace-one"


@pytest.mark.slow
def test_the_central_row_is_run_once_though_it_is_printed_four_times() -> None:
    cells = paper_cells(read("dp-consensus/table1"), "full")
    central = [c for c in cells if c.labels["method"] == "Central" and c.labels["budget"] == "ε = 1"]
    assert len(central) == 4
    assert len({c.runs["sound"][0].name for c in central}) == 1
    assert len(central[0].runs["paper"]) == 5


def test_numbers_as_printed() -> None:
    assert parse_number("92 ± 0.54") == (92.0, 0.54)
    assert parse_number("71.87") == (71.87, None)
    assert parse_number("?") == (None, None)
    with pytest.raises(UserError, match="about 90"):
        parse_number("about 90")


def test_nested_settings_become_dotted_keys() -> None:
    table = tomllib.loads("a.b.c = 1\na.d = { e = [2] }\nf = 'x'")
    assert flatten(table) == {"a.b.c": 1, "a.d.e": [2], "f": "x"}


def test_a_rule_leaves_cells_out_of_one_scale() -> None:
    definition = read("adad2p/figure4")
    left_out = ("lots of 32, plain", "AdaD²P", "σ = 0.02")
    full, book = (paper_cells(definition, scale, runs=False) for scale in SCALES[:0:-1])
    assert cell(full, *left_out).labels["reading"] == "lots of 32, plain"
    assert not [c for c in book if set(left_out) <= set(c.labels.values())]
    assert cell(book, "lots of 32, momentum", "AdaD²P", "σ = 0.05").labels["method"] == "AdaD²P"


def test_a_rule_gives_some_cells_other_seeds_but_for_the_small_scale() -> None:
    definition = Definition.model_validate(
        {
            "title": "T", "paper": "P", "recipe": "quickstart",
            "scale": {"full": {"seeds": 5}, "book": {"seeds": 1}, "small": {"seeds": 1}},
            "grid": [{"source": "Table 1", "rows": "method", "columns": "budget", "cells": " | ε = 1\na | 84\nb | 1"}],
            "rule": [{"where": {"method": "b"}, "scale": "book", "seeds": 3}, {"mode": "sound", "scale": "book", "seeds": 2}],
        }
    )  # fmt: skip

    def seeds(scale: Scale) -> list[dict[str, int]]:
        return [{mode: len(runs) for mode, runs in c.runs.items()} for c in paper_cells(definition, scale)]

    assert seeds("full") == [{"paper": 5, "sound": 5}] * 2
    assert seeds("book") == [{"paper": 1, "sound": 2}, {"paper": 3, "sound": 2}]
    assert seeds("small") == [{"paper": 1, "sound": 1}] * 2
    kept = paper_cells(definition, "book")
    assert said_cuts(definition, "book", kept, kept) == ["1 to 3 of 5 seeds"]
