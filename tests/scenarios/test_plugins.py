"""A method in a package of its own: found by every command and process, and never with another paper's claim."""

from __future__ import annotations

import json
import os
import re
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
    alone = gossamer(*ask, "--set", "privacy.noise.source=seeded", "--out", "alone", outside=outside, cwd=tmp_path)
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
    assert "comes from the package tiny_methods, not from this library" in (tmp_path / "alone/report.html").read_text()

    attacked = gossamer("audit", "alone", "--runs", "2", "--json", outside=outside, cwd=tmp_path)
    assert attacked.returncode == 0, attacked.stderr
    audited = json.loads(attacked.stdout.splitlines()[-1])
    assert (audited["epsilon_claimed"], audited["violation"]) == (None, False)
    assert audited["epsilon_audited"] <= audited["epsilon_proven"]

    schema = gossamer("recipes", "--schema", outside=outside, cwd=tmp_path)
    listed = schema.stdout.partition("**`diffusion`**")[2].partition("**`")[0]
    assert "Adapt, then combine." in listed
    assert "`pace` = number above 0 up to 1 (1)" in listed


@pytest.mark.slow
def test_without_its_package_the_run_directory_still_says_what_is_missing(outside: Path, tmp_path: Path) -> None:
    gone = tmp_path / "empty"
    gone.mkdir()
    missing = gossamer("plan", "quickstart", "--set", "algorithm.kind=diffusion", outside=gone, cwd=tmp_path)
    assert missing.returncode == 2
    assert missing.stderr.startswith("gossamer: algorithm.kind = 'diffusion' is not a method I know;")

    (outside / "tiny_methods.py").write_text("import a_library_that_is_not_here")
    broken = gossamer("plan", "quickstart", "--set", "algorithm.kind=diffusion", outside=outside, cwd=tmp_path)
    assert broken.returncode == 2
    assert "the package tiny-methods 1.2 could not be loaded (ModuleNotFoundError" in broken.stderr
    assert "Traceback" not in broken.stderr
    for command in (["plan", "quickstart"], ["recipes"], ["--help"], ["recipes", "--schema"]):
        fine = gossamer(*command, outside=outside, cwd=tmp_path)
        assert fine.returncode == 0, fine.stderr
        assert ("tiny-methods 1.2" in fine.stderr) == (command == ["recipes", "--schema"])


@pytest.mark.slow
def test_every_part_of_the_page_works_from_a_package(tmp_path: Path) -> None:
    """The examples of docs/extending.md as modules of one package, all of them in one run."""
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    examples = re.findall(r"^## An? ([\w ]+)\n.*?```python\n(.*?)```", page, re.S | re.M)
    modules = {
        f"part_{k}": re.split(r"^(?:outcome|changes) =", code, flags=re.M)[0] for k, (_, code) in enumerate(examples)
    }
    folder = tmp_path / "site-packages"
    folder.mkdir()
    install(folder, "all-parts", modules, {name.replace("_", "-"): name for name in modules})
    asked = {
        "algorithm.kind": "diffusion", "privacy.clip.kind": "smooth", "privacy.noise.kind": "leaning",
        "privacy.noise.lean": 0.3, "data.kind": "moons", "data.n": 400, "topology.kind": "wheel", "model.kind": "mlp",
        "nodes": 6, "rounds": 4, "privacy.noise.source": "seeded",
    }  # fmt: skip
    words = [word for key, value in asked.items() for word in ("--set", f"{key}={value}")]
    ran = gossamer("run", "quickstart", *words, "--json", "--out", "r", outside=folder, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["epsilon_claimed"] is None
    assert 0 < found["epsilon_proven"] <= 8
    notes = json.loads((tmp_path / "r" / "certificate.json").read_text())["notes"]
    assert [note.split(" comes from ")[0] for note in notes][-3:] == [
        "The method 'diffusion'", "The clip 'smooth'", "The noise 'leaning'",
    ]  # fmt: skip
    listed = gossamer("data", "list", outside=folder, cwd=tmp_path)
    assert "moons" in listed.stdout
    attacked = gossamer(
        "audit", "quickstart", "--set", "topology.kind=wheel", "--set", "rounds=2", "--set", "algorithm.kind=dp-dsgd",
        "--observer", "neighbourhood", "--runs", "1", "--json", outside=folder, cwd=tmp_path,
    )  # fmt: skip
    assert attacked.returncode == 0, attacked.stderr
    assert json.loads(attacked.stdout.splitlines()[-1])["observer"].startswith("nodes 1, 2, 3")
