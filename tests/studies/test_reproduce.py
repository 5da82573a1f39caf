"""The papers' tables as data: every number parses, and every cell resolves to what it says."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import expect_refusal
from tests.support.tables import TINY

from gossamer.config import recipes
from gossamer.data.origins import Origin
from gossamer.data.public import FashionMnist
from gossamer.studies import papers
from gossamer.studies.papers import names, titles
from gossamer.studies.reproduce import (
    SCALES,
    Definition,
    PaperCell,
    Scale,
    cuts,
    flatten,
    paper_cells,
    parse_number,
    read,
    reproduce,
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
    assert names() == sorted([*NAMES, *WITHOUT_EXPERIMENT])
    assert list(titles()) == names()


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
    every = [*full, *paper_cells(definition, "book", runs=False)]  # the book may have cells of its own
    axes = {axis: {c.labels[axis] for c in every if axis in c.labels} for c in every for axis in c.labels}
    for axis, values in definition.scale["small"].keep.items():  # a misspelt value would keep nothing
        assert set(values) <= axes[axis]
    for rule in own_rules(name):
        for axis, value in rule["where"].items():
            assert set([value] if isinstance(value, str) else value) <= axes[axis]
    for finding in definition.finding or []:
        for axis, value in finding.get("where", {}).items():
            assert set([value] if isinstance(value, str) else value) <= axes[axis]
        assert set(finding.get("order", [])) <= axes.get(finding.get("along"), set())


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
    monkeypatch.setattr("gossamer.studies.reproduce._available", lambda kinds, data_dir: {})
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
            if name.startswith("dp-consensus") and mode == "paper" and config.baseline == "none" and not attacked:
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
    with expect_refusal(names="90"):
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
    assert cuts(definition, "book", kept) == ["1 to 3 of 5 seeds"]


@pytest.mark.parametrize("name", names())
def test_a_table_names_its_paper_its_place_and_its_runs(name: str) -> None:
    table = papers.read(name)
    assert table["title"]
    assert table["paper"]
    if table.get("layout") == "no-experiment":
        assert table["source"]
        return
    assert table["recipe"] in recipes.names()
    assert all(grid["source"] for grid in table["grid"])


def test_a_table_like_another_takes_over_its_keys_and_its_rules_come_last(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text('title = "one"\npaper = "P"\n[scale.full]\nseeds = 5\n[[rule]]\nset = {a = 1}\n')
    (tmp_path / "two.toml").write_text(
        f'like = "{(tmp_path / "one.toml").as_posix()}"\ntitle = "two"\n[[rule]]\nset = {{a = 2}}\n'
    )
    assert papers.read(str(tmp_path / "two.toml")) == {
        "title": "two",
        "paper": "P",
        "scale": {"full": {"seeds": 5}},
        "rule": [{"set": {"a": 1}}, {"set": {"a": 2}}],
    }
    figure, table = papers.read("dp-consensus/figure1"), papers.read("dp-consensus/table1")
    taken, own = figure["rule"][: len(table["rule"])], figure["rule"][len(table["rule"]) :]
    assert taken == table["rule"]  # so that it draws the table's runs,
    assert all(rule["leave_out"] and "set" not in rule for rule in own)  # or fewer of them


@pytest.mark.slow
def test_a_tiny_table_from_end_to_end(command: Any) -> None:
    Path("tiny.toml").write_text(TINY)
    code, out, _ = command("reproduce", "tiny.toml", "--out", "t", "--jobs", "1", "--json")
    assert code == 0
    found = json.loads(out.splitlines()[-1])
    assert found["cut"] == ["1 of 3 seeds", "nothing else"]
    dyn, sgp = found["rows"]
    assert dyn["paper"] == {"printed": "81.5 ± 2", "mean": 81.5, "std": 2.0}
    assert 0 < dyn["paper_mode"]["accuracy_mean"] <= 1
    assert 0 < dyn["sound_mode"]["epsilon_proven"] <= 8
    assert sgp["paper"]["printed"] is None
    assert sgp["sound_mode"] is None
    text = Path("t/table.md").read_text()
    assert "| Dyn-D²P | σ = 1 | 81.5 ± 2 | " in text
    assert "| SGP | no noise | not printed | " in text
    assert "only a curve, or the method is ours" in text
    assert "Cut: 1 of 3 seeds; nothing else." in text
    assert "Nobody: Nothing, Table 7" in text
    rows = list(csv.DictReader(io.StringIO(Path("t/table.csv").read_text())))
    assert [row["paper.mean"] for row in rows] == ["81.5", ""]
    assert float(rows[0]["sound_mode.epsilon_proven"]) == dyn["sound_mode"]["epsilon_proven"]
    code, out, _ = command("reproduce", "tiny.toml", "--out", "t", "--json")
    assert code == 0
    assert json.loads(out.splitlines()[-1])["cells_run"] == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["dp-consensus/table9"], ["dp-consensus/table9", "dp-consensus/table1"]),
        (["dyn-d2p/table2", "--scale", "huge"], ["--scale huge", "small, book or full"]),
        (["dyn-d2p/table2", "--data-dir", "nowhere"], ["nowhere"]),
        (["dyn-d2p/table2", "--data-dir", "empty"], ["fashion-mnist", "empty"]),
        ([], ["--list"]),
        (["broken.toml"], ["broken.toml", "grid"]),
        (["adad2p/table1"], ["adad2p/table1", "experiment"]),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str],
    named: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Any,
) -> None:
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(FashionMnist, "origin", Origin("fashion-mnist", "fashion_mnist.npz"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.toml").write_text(TINY.replace("[[grid]]", "[[grids]]"))
    before = sorted(tmp_path.rglob("*"))
    code, out, err = command("reproduce", *words)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    for word in named:
        assert word in err
    assert sorted(tmp_path.rglob("*")) == before


def test_the_list_names_every_table(command: Any) -> None:
    code, out, _ = command("reproduce", "--list")
    assert code == 0
    listed = [line.split()[0] for line in out.splitlines()]
    assert listed == names()


OPTIONS: dict[str, Any] = {"jobs": 1, "engine": "local", "data_dir": None, "force": False, "quiet": True}

AUDIT = """
title = "Lower bounds"
paper = "A paper"
recipe = "dp-consensus/membership"
set = { data.kind = "digits", data.train_rows = 150, rounds = 2, model.kind = "softmax", privacy.noise.source = "seeded" }

[audit]
canary = "blank"
observer = "final"
confidence = 0.95
runs = { small = 16, full = 80 }

[[grid]]
source = "Table 9"
rows = "method"
columns = "figure"
cells = '''
        | ε lower bound
Central | 0.230
DP-DSGD | 0.173
'''

[scale.full]
seeds = 1

[scale.small]
seeds = 1

[[rule]]
only = "paper"

[[rule]]
where = { method = "Central" }
set = { baseline = "central", weighting = "size" }
"""


@pytest.mark.slow
def test_a_table_of_audits_stands_beside_the_papers_and_continues(tmp_path: Path) -> None:
    definition = tmp_path / "tiny.toml"
    definition.write_text(AUDIT)
    found = reproduce(str(definition), out=tmp_path / "out", **OPTIONS)
    assert [row["paper"]["mean"] for row in found["rows"]] == [0.230, 0.173]
    assert all(row["paper_mode"]["audit"]["runs"] == 16 for row in found["rows"])
    text = (tmp_path / "out" / "table.md").read_text()
    for part in ("0.173", "16 of 80 trainings", "0.95 confidence", "δ = 0.01", "ε ≥"):
        assert part in text
    scores = sorted((tmp_path / "out" / "cells").glob("*/scores.jsonl"))
    before = [path.read_text() for path in scores]
    again = reproduce(str(definition), out=tmp_path / "out", **OPTIONS)
    assert [path.read_text() for path in scores] == before
    assert json.dumps([r["paper_mode"]["audit"]["bounds"] for r in again["rows"]]) == json.dumps(
        [r["paper_mode"]["audit"]["bounds"] for r in found["rows"]]
    )


def test_table_5_is_the_papers_setting() -> None:
    definition = read("dp-consensus/table5")
    assert definition.audit is not None
    assert definition.audit.runs["full"] == 10_000
    printed = {cell.labels["method"]: cell.mean for cell in paper_cells(definition, "full", runs=False)}
    assert printed == {"Central": 0.230, "DP-DSGD": 0.173, "DP-DSGT": 0.129, "DP-DiNNO": 0.165}
