"""The book's commands: result files continued, compared, and refused; mistakes in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import assert_names
from tests.support.tables import TINY

from gossamer.studies.reproduce import paper_cells
from reproductions.__main__ import main
from reproductions.definition import read
from reproductions.record import record, write_record


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.mark.slow
def test_a_result_file_is_continued_and_held_against(command: Any) -> None:
    Path("tiny.toml").write_text(TINY)
    words = ["tiny.toml", "--out", "t", "--jobs", "1", "--json", "--results", "results"]
    code, out, _ = command("run", *words)
    found = json.loads(out.splitlines()[-1])
    assert (code, found["cells_run"]) == (0, 6)
    recorded = json.loads(Path("results/tiny.toml.json").read_text())
    first = recorded["cells"][0]["modes"]["paper"]
    assert (first["seeds"], len(first["values"]), first["metric"]) == ([0, 1], 2, "accuracy")
    mean = 100 * found["rows"][0]["paper_mode"]["accuracy_mean"]
    assert sum(first["values"]) / 2 == pytest.approx(mean, rel=1e-5)
    assert first["epsilon_claimed"] == pytest.approx(found["rows"][0]["paper_mode"]["epsilon_claimed"], rel=1e-5)
    assert first["settings"]["privacy.noise.multiplier"] == 2.0
    assert recorded["settings"]["nodes"] == 4
    # What stands in the file is not run again, even where its runs are gone; what is asked for anew is.
    again = ["run", "tiny.toml", "--out", "elsewhere", "--jobs", "1", "--json", "--results", "results"]
    code, out, _ = command(*again)
    assert (code, json.loads(out.splitlines()[-1])["rows"]) == (0, [])
    assert not Path("elsewhere").exists()
    assert json.loads(Path("results/tiny.toml.json").read_text())["cells"] == recorded["cells"]
    Path("tiny.toml").write_text(TINY.replace("multiplier = 2.0", "multiplier = 3.0"))
    code, out, _ = command(*again, "--out", "third")
    found = json.loads(out.splitlines()[-1])
    assert (code, found["cells_run"], len(found["anew"]), found["gone"]) == (0, 2, 1, [])  # SGP is as it was
    Path("tiny.toml").write_text(TINY)
    Path("results/tiny.toml.json").write_text(json.dumps(recorded))
    code, out, _ = command("check", *words)
    assert (code, json.loads(out.splitlines()[-1])["checked"]) == (0, 3)
    first["values"] = [3.5, 3.6]
    Path("results/tiny.toml.json").write_text(json.dumps(recorded))
    code, _, err = command("check", *words)
    assert code == 2
    assert "Dyn-D²P, σ = 1, paper mode failed" in err


def test_a_result_file_that_would_lose_cells_is_refused_before_anything_runs(command: Any) -> None:
    Path("tiny.toml").write_text(TINY)
    definition = read("tiny.toml")
    cells = paper_cells(definition, "book")
    made = record("tiny.toml", definition, cells, {("SGP, no noise", "paper"): [{"accuracy_mean": 0.5}] * 2}, [])
    file = write_record(Path("results"), "tiny.toml", made)
    words = ["run", "tiny.toml", "--results", "results", "--out", "t"]
    for key, value, more, said in (
        (
            "key_of_tomorrow",
            1,
            [],
            ["1", "SGP, no noise, paper", "key_of_tomorrow"],
        ),
        ("rounds", 7, ["--as-is"], ["SGP, no noise, paper mode", "--as-is"]),
    ):
        changed = {**made, "settings": {**made["settings"], key: value}}
        before = write_record(Path("results"), "tiny.toml", changed).read_bytes()
        code, out, err = command(*words, *more)
        assert (code, out, len(err.strip().splitlines())) == (2, "", 1)
        assert_names(err, file.name, names=said)
        assert file.read_bytes() == before
        assert sorted(path.name for path in Path().rglob("*")) == ["results", "tiny.toml", "tiny.toml.json"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (
            ["check", "dyn-d2p/table2", "--results", "."],
            ["dyn-d2p/table2.json", "python -m reproductions run"],
        ),
        (["run", "dyn-d2p/table2", "--scale", "small"], ["--scale small"]),
        (["run", "dyn-d2p/table2", "--into", "page.md"], ["--into", "frontier/table"]),
        (["run", "adad2p/table1"], ["adad2p/table1"]),
        (["pages", "dyn-d3p"], ["dyn-d3p", "dyn-d2p"]),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], named: list[str], command: Any) -> None:
    code, out, err = command(*words)
    assert (code, out, len(err.strip().splitlines())) == (2, "", 1)
    assert all(word in err for word in named)
