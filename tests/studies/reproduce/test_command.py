"""The papers' tables: the printed numbers, the runs that stand for them, and a small one from end to end."""

from __future__ import annotations

import csv
import io
import json
import tomllib
from pathlib import Path

import pytest

from gossamer import papers
from gossamer.cli import main
from gossamer.errors import UserError
from gossamer.studies.reproduce.command import tables
from gossamer.studies.reproduce.paper_table import PaperCell, flatten, paper_cells, parse_number, read

NAMES = [
    "adad2p/figure2", "adad2p/figure3", "adad2p/figure4", "dp-consensus/table1", "dp-consensus/table2",
    "dp-consensus/table4", "dp-consensus/table5", "dp-dkm/figure1", "dp-dkm/figure2", "dp-dkm/figure3", "dyn-d2p/figure4", "dyn-d2p/figure5", "dyn-d2p/table1", "dyn-d2p/table2",
    "without-replacement/figure1", "without-replacement/figure2", "without-replacement/figure3",
    "without-replacement/figure4", "without-replacement/table1", "without-replacement/table2",
]  # fmt: skip


def cell(cells: list[PaperCell], *labels: str) -> PaperCell:
    (found,) = [c for c in cells if set(labels) <= set(c.labels.values())]
    return found


def test_all_tables_are_there() -> None:
    assert papers.names() == sorted([*NAMES, "frontier/table"])
    assert list(tables()) == sorted([*NAMES, "frontier/table"])


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_parse_and_figures_have_none(name: str) -> None:
    definition = read(name)
    full = paper_cells(definition, "full", runs=False)
    small = paper_cells(definition, "small", runs=False)
    assert 0 < len(small) <= len(full)
    assert len({c.label for c in full}) == len(full)
    printed = [c for c in full if c.printed is not None]
    ours = [c for c in full if "(ours)" in c.label]  # rows of our own beside the paper's
    assert len(printed) == (len(full) - len(ours) if "/table" in name else 0)
    low, high = (10, 100) if definition.audit is None else (0, 1)  # accuracies, or bounds on ε
    assert all(c.mean is not None and low < c.mean < high for c in printed)
    axes = {axis: {c.labels[axis] for c in full if axis in c.labels} for c in full for axis in c.labels}
    for axis, values in definition.scale["small"].keep.items():  # a misspelt value would keep nothing
        assert set(values) <= axes[axis]
    for rule in definition.rule:
        for axis, value in rule.where.items():
            assert set([value] if isinstance(value, str) else value) <= axes[axis]


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
    assert len(cifar) == 17
    assert (cell(cifar, "Dyn-D²P", "ε = 0.3").mean, cell(cifar, "Non-private").mean) == (71.87, 82.16)
    fashion = paper_cells(read("dyn-d2p/table2"), "full", runs=False)
    assert (cell(fashion, "Const-D²P", "ε = 0.3").mean, cell(fashion, "Dyn[C]-D²P", "ε = 3").mean) == (
        45.37,
        84.98,
    )


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("adad2p")])
@pytest.mark.parametrize("scale", ["small", "full"])
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
                tuned = name == "dp-consensus/table1"
                assert tuned or config.privacy.clip.bound == 10.0


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


TINY = '''
title = "A table made for this test"
paper = "Nobody: Nothing"
recipe = "quickstart"
sound_epsilon = "claimed"

[set]
nodes = 4
rounds = 8

[[grid]]
source = "Table 7"
rows = "method"
columns = "noise"
cells = """
          | σ = 1    | no noise
Dyn-D²P   | 81.5 ± 2 | -
SGP       | -        | ?
"""

[scale.full]
seeds = 3

[scale.small]
seeds = 1
cut = ["nothing else"]

[[rule]]
where = { method = "Dyn-D²P" }
mode = "paper"
set = { privacy.noise.multiplier = 2.0 }
unset = ["privacy.epsilon"]

[[rule]]
where = { method = "SGP" }
set = { algorithm.kind = "sgp" }
only = "paper"
'''


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["gossamer", "reproduce", *words])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_a_tiny_table_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(TINY)
    assert call(monkeypatch, "tiny.toml", "--out", "t", "--jobs", "1", "--json") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["cut"] == ["1 of 3 seeds", "nothing else"]
    dyn, sgp = found["rows"]
    assert dyn["paper"] == {"printed": "81.5 ± 2", "mean": 81.5, "std": 2.0}
    assert 0 < dyn["paper_mode"]["accuracy_mean"] <= 1
    # The sound run proves the ε that the paper's formula claims for the paper's σ.
    claimed = dyn["paper_mode"]["epsilon_claimed"]
    assert 0.9 * claimed < dyn["sound_mode"]["epsilon_proven"] <= claimed
    assert sgp["paper"]["printed"] is None
    assert sgp["sound_mode"] is None
    text = Path("t/table.md").read_text()
    assert "| Dyn-D²P | σ = 1 | 81.5 ± 2 | " in text
    assert "| SGP | no noise | not printed | " in text
    assert "only a curve, or the method is ours" in text
    assert "Cut: 1 of 3 seeds; nothing else." in text
    assert "Nobody: Nothing, Table 7" in text
    rows = list(csv.DictReader(io.StringIO(Path("t/table.csv").read_text())))
    assert [row["paper_mean"] for row in rows] == ["81.5", ""]
    assert float(rows[0]["sound_epsilon_proven"]) == dyn["sound_mode"]["epsilon_proven"]
    assert call(monkeypatch, "tiny.toml", "--out", "t", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["cells_run"] == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["dp-consensus/table9"], ["dp-consensus/table9", "dp-consensus/table1"]),
        (["dyn-d2p/table2", "--scale", "huge"], ["--scale huge", "small or full"]),
        (["dyn-d2p/table2", "--data-dir", "nowhere"], ["nowhere"]),
        (["dyn-d2p/table2", "--data-dir", "empty"], ["fashion-mnist", "empty"]),
        ([], ["--list"]),
        (["broken.toml"], ["broken.toml", "grid"]),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str],
    named: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("gossamer.data.sources.system_folders", lambda entry: [])
    monkeypatch.setattr("gossamer.data.sources.PUBLIC", _without_remotes())
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.toml").write_text(TINY.replace("[[grid]]", "[[grids]]"))
    before = sorted(tmp_path.rglob("*"))
    assert call(monkeypatch, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    for word in named:
        assert word in err
    assert sorted(tmp_path.rglob("*")) == before


def _without_remotes() -> dict[str, object]:
    from dataclasses import replace

    from gossamer.data import sources

    return {name: replace(entry, remotes=()) for name, entry in sources.PUBLIC.items()}


def test_the_list_names_every_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--list") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == sorted(
        [*NAMES, "frontier/table"]
    )
