"""`gossamer reproduce`: a small table from end to end, and what is said about a mistake."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables import TINY

from gossamer import papers
from gossamer.studies.reproduce.paper_table import paper_cells, read
from gossamer.studies.reproduce.record import record, write_record


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
    code, out, _ = command("reproduce", "tiny.toml", "--out", "t", "--json")
    assert code == 0
    assert json.loads(out.splitlines()[-1])["cells_run"] == 0


@pytest.mark.slow
def test_a_result_file_is_continued_and_held_against(command: Any) -> None:
    Path("tiny.toml").write_text(TINY)
    words = ["reproduce", "tiny.toml", "--out", "t", "--jobs", "1", "--json"]
    code, out, _ = command(*words, "--scale", "book", "--record", "results")
    found = json.loads(out.splitlines()[-1])
    assert (code, found["cells_run"]) == (0, 6)
    recorded = json.loads(Path("results/tiny.toml.json").read_text())
    first = recorded["cells"][0]["modes"]["paper"]
    assert (first["seeds"], len(first["values"]), first["metric"]) == ([0, 1], 2, "accuracy")
    mean = 100 * found["rows"][0]["paper_mode"]["accuracy_mean"]
    assert sum(first["values"]) / 2 == pytest.approx(mean, rel=1e-5)
    assert first["epsilon_claimed"] == pytest.approx(
        found["rows"][0]["paper_mode"]["epsilon_claimed"], rel=1e-5
    )
    assert first["settings"]["privacy.noise.multiplier"] == 2.0
    assert recorded["settings"]["nodes"] == 4
    # What stands in the file is not run again, even where its runs are gone; what is asked for anew is.
    again = ["reproduce", "tiny.toml", "--out", "elsewhere", "--jobs", "1", "--json", "--scale", "book"]
    code, out, _ = command(*again, "--record", "results")
    assert (code, json.loads(out.splitlines()[-1])["rows"]) == (0, [])
    assert not Path("elsewhere").exists()
    assert json.loads(Path("results/tiny.toml.json").read_text())["cells"] == recorded["cells"]
    Path("tiny.toml").write_text(TINY.replace("multiplier = 2.0", "multiplier = 3.0"))
    code, out, _ = command(*again, "--record", "results", "--out", "third")
    found = json.loads(out.splitlines()[-1])
    assert (code, found["cells_run"], len(found["anew"]), found["gone"]) == (0, 4, 2, [])  # SGP is as it was
    Path("tiny.toml").write_text(TINY)
    Path("results/tiny.toml.json").write_text(json.dumps(recorded))
    code, out, _ = command(*words, "--check", "results")
    assert (code, json.loads(out.splitlines()[-1])["checked"]) == (0, 3)
    first["values"] = [3.5, 3.6]
    Path("results/tiny.toml.json").write_text(json.dumps(recorded))
    code, _, err = command(*words, "--check", "results")
    assert code == 2
    assert "Dyn-D²P, σ = 1, paper mode failed" in err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["dp-consensus/table9"], ["dp-consensus/table9", "dp-consensus/table1"]),
        (["dyn-d2p/table2", "--scale", "huge"], ["--scale huge", "small, book or full"]),
        (["dyn-d2p/table2", "--data-dir", "nowhere"], ["nowhere"]),
        (["dyn-d2p/table2", "--data-dir", "empty"], ["fashion-mnist", "empty"]),
        ([], ["--list"]),
        (["broken.toml"], ["broken.toml", "grid"]),
        (["dyn-d2p/table2", "--check", "empty"], ["empty/dyn-d2p/table2.json", "--record"]),
        (["dyn-d3p", "--book"], ["dyn-d3p", "dyn-d2p"]),
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
    monkeypatch.setattr("gossamer.data.sources.system_folders", lambda entry: [])
    monkeypatch.setattr("gossamer.data.sources.PUBLIC", _without_remotes())
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.toml").write_text(TINY.replace("[[grid]]", "[[grids]]"))
    before = sorted(tmp_path.rglob("*"))
    code, out, err = command("reproduce", *words)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    for word in named:
        assert word in err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_result_file_that_would_lose_cells_is_refused_before_anything_runs(command: Any) -> None:
    Path("tiny.toml").write_text(TINY.replace('sound_epsilon = "claimed"', ""))
    definition = read("tiny.toml")
    cells = paper_cells(definition, "book")
    made = record(
        "tiny.toml", definition, cells, {("SGP, no noise", "paper"): [{"accuracy_mean": 0.5}] * 2}, []
    )
    file = write_record(Path("results"), "tiny.toml", made)
    words = ["reproduce", "tiny.toml", "--scale", "book", "--record", "results", "--out", "t"]
    for key, value, more, said in (
        (
            "key_of_tomorrow",
            1,
            [],
            "has 1 cell whose settings are no configuration here, first 'SGP, no noise, paper",
        ),
        ("rounds", 7, ["--as-is"], "first 'SGP, no noise, paper mode', and --as-is would drop them"),
    ):
        changed = {**made, "settings": {**made["settings"], key: value}}
        before = write_record(Path("results"), "tiny.toml", changed).read_bytes()
        code, out, err = command(*words, *more)
        assert (code, out, len(err.strip().splitlines())) == (2, "", 1)
        assert str(file) in err
        assert said in err
        assert file.read_bytes() == before
        assert sorted(path.name for path in Path().rglob("*")) == ["results", "tiny.toml", "tiny.toml.json"]


def _without_remotes() -> dict[str, object]:
    from dataclasses import replace

    from gossamer.data import sources

    return {name: replace(entry, remotes=()) for name, entry in sources.PUBLIC.items()}


def test_the_list_names_every_table(command: Any) -> None:
    code, out, _ = command("reproduce", "--list")
    assert code == 0
    listed = [line.split()[0] for line in out.splitlines()]
    assert listed == papers.names()
