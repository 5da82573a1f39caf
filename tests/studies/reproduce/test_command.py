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


def _without_remotes() -> dict[str, object]:
    from dataclasses import replace

    from gossamer.data import sources

    return {name: replace(entry, remotes=()) for name, entry in sources.PUBLIC.items()}


def test_the_list_names_every_table(command: Any) -> None:
    code, out, _ = command("reproduce", "--list")
    assert code == 0
    listed = [line.split()[0] for line in out.splitlines()]
    assert listed == papers.names()
