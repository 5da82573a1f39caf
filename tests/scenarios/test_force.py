"""What this machine is too small for: every command refuses it at the same door, and `--force` tries it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.refusals import assert_names, expect_refusal
from tests.support.tables import TINY

import gossamer
from gossamer.studies import jobs
from gossamer.training import estimate

STUDIES = {
    "compare": ["compare", "quickstart", "--out", "o"],
    "tune": ["tune", "quickstart", "--over", "algorithm.lr=1,3", "--out", "o"],
    "reproduce": ["reproduce", "tiny.toml", "--out", "o"],
    "audit": [
        "audit",
        "quickstart",
        "--canary",
        "release",
        "--runs",
        "20",
        "--set",
        "rounds=4",
        "--out",
        "o",
    ],
    "sensitivity": ["audit", "quickstart", "--canary", "sensitivity", "--runs", "2", "--set", "rounds=4"],
}


@pytest.fixture
def tiny_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    make_tiny(monkeypatch)


def make_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is free, and what this process holds already, as one of many tests, is nothing to count on."""
    monkeypatch.setattr(estimate, "free_memory", lambda: 1000.0)
    monkeypatch.setattr(estimate, "resident", lambda: 0.0)


@pytest.mark.parametrize(
    "words",
    [pytest.param(w, id=k, marks=[pytest.mark.slow] * (k in ("audit", "tune"))) for k, w in STUDIES.items()],
)
def test_studies_refuse_what_does_not_fit_and_force_tries(
    words: list[str], command: Any, tiny_machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("tiny.toml").write_text(TINY)
    forced: list[bool] = []

    def cells(todo: Any, *places: Any, force: bool, **rest: Any) -> dict[str, str]:
        forced.append(force)
        return {cell.name: "not run here" for cell in todo}

    monkeypatch.setattr("gossamer.studies.cells.run_cells", cells)
    code, _, err = command(*words)
    assert code == 2, err
    assert_names(err, names="--force", remedy=True)
    assert not Path("o").exists()
    _, _, err = command(*words, "--force")
    assert "--force" not in err
    assert forced == ([True] if words[0] != "audit" else [])


def test_a_cells_own_process_looks_too(tiny_machine: None, tmp_path: Path) -> None:
    settings = gossamer.plan("quickstart", {"rounds": 2}, force=True).asked.model_dump(exclude_none=True)
    how = {"version": gossamer.__version__}
    assert "--force" in str(jobs.train(settings, tmp_path / "r", None, force=False, **how).error)
    assert jobs.train(settings, tmp_path / "r", None, force=True, **how).error is None
    assert (tmp_path / "r" / "certificate.json").is_file()


def test_a_run_that_goes_on_is_looked_at_and_forced_as_well(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr("gossamer.results.console.RunDisplay.metrics", stop)
        code, _, err = command("run", "--set", "rounds=4", "--set", "evaluation.every=2", "--out", "r")
        assert code == 130, err
    make_tiny(monkeypatch)
    code, _, err = command("run", "--resume", "r")
    assert code == 2, err
    assert_names(err, names="--force", remedy=True)
    with expect_refusal(key="data.kind", names="--force", remedy=True):
        gossamer.resume("r")
    assert gossamer.resume("r", force=True).result["rounds"] == 4
