"""A method in a package of its own: found by every command and process, and never with another paper's claim."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.plugins import ALGORITHM, install

OURS = str(Path(__file__).parents[2] / "src")
SMALL = ["--set", "topology.kind=ring", "--set", "rounds=4", "--set", "privacy.epsilon=8"]


def gossamer(*arguments: str, outside: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(outside), OURS])
    return subprocess.run(
        [sys.executable, "-m", "gossamer", *arguments],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "400"},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    install(folder, "tiny-methods", {"tiny_methods": ALGORITHM}, {"tiny": "tiny_methods"})
    return folder


@pytest.mark.slow
def test_the_command_line_ranks_and_comparisons_find_it(outside: Path, tmp_path: Path) -> None:
    ask = ["run", "quickstart", "--set", "algorithm.kind=diffusion", *SMALL, "--json"]
    alone = gossamer(
        *ask, "--set", "privacy.noise.source=seeded", "--out", "alone", outside=outside, cwd=tmp_path
    )
    assert alone.returncode == 0, alone.stderr
    found = json.loads(alone.stdout.splitlines()[-1])
    assert found["epsilon_claimed"] is None
    assert 0 < found["epsilon_proven"] <= 8
    certificate = json.loads((tmp_path / "alone" / "certificate.json").read_text())
    assert certificate["epsilon_claimed"] is None
    page = (tmp_path / "alone" / "certificate.html").read_text()
    assert "no paper claims an ε for this mechanism" in page

    two = [
        "--set",
        "runtime.kind=processes",
        "--set",
        "runtime.ranks=2",
        "--set",
        "privacy.noise.source=seeded",
    ]
    ranks = gossamer(*ask, *two, "--out", "ranks", outside=outside, cwd=tmp_path)
    assert ranks.returncode == 0, ranks.stderr
    assert json.loads(ranks.stdout.splitlines()[-1])["accuracy_mean"] == found["accuracy_mean"]

    over = ["--over", "algorithm.kind=dp-dsgd,diffusion", "--jobs", "1"]
    table = gossamer("compare", "quickstart", *over, *SMALL, "--json", outside=outside, cwd=tmp_path)
    assert table.returncode == 0, table.stderr
    rows = json.loads(table.stdout.splitlines()[-1])["rows"]
    claims = {row["settings"]["algorithm.kind"]: row["epsilon_claimed"] for row in rows}
    assert claims["diffusion"] is None
    assert claims["dp-dsgd"] > 0

    report = gossamer("report", "alone", outside=outside, cwd=tmp_path)
    assert report.returncode == 0, report.stderr

    schema = gossamer("recipes", "--schema", outside=outside, cwd=tmp_path)
    assert "diffusion: Adapt, then combine." in schema.stdout
    assert "pace = number above 0 up to 1 (1)" in schema.stdout


@pytest.mark.slow
def test_without_its_package_the_run_directory_still_says_what_is_missing(
    outside: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "empty"
    gone.mkdir()
    missing = gossamer("plan", "quickstart", "--set", "algorithm.kind=diffusion", outside=gone, cwd=tmp_path)
    assert missing.returncode == 2
    assert missing.stderr.startswith("gossamer: algorithm.kind = 'diffusion' is not a method I know;")

    (outside / "tiny_methods.py").write_text("import a_library_that_is_not_here")
    broken = gossamer(
        "plan", "quickstart", "--set", "algorithm.kind=diffusion", outside=outside, cwd=tmp_path
    )
    assert broken.returncode == 2
    assert "the package tiny-methods 1.2 could not be loaded (ModuleNotFoundError" in broken.stderr
    assert "Traceback" not in broken.stderr
    for command in (["plan", "quickstart"], ["recipes"], ["--help"], ["recipes", "--schema"]):
        fine = gossamer(*command, outside=outside, cwd=tmp_path)
        assert fine.returncode == 0, fine.stderr
        assert ("tiny-methods 1.2" in fine.stderr) == (command == ["recipes", "--schema"])
