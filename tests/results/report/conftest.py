"""Runs to report on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import gossamer

SHORT = {"rounds": 20, "evaluation.every": 4}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """A plain run, a seeded one that shows diagnostics on an undirected graph, and a central baseline."""
    base = tmp_path_factory.mktemp("runs")
    seeded = {"privacy.noise.source": "seeded", "evaluation.diagnostics": True}
    ring = {"algorithm.kind": "dp-dsgt", "topology.kind": "ring"}
    gossamer.run("quickstart", SHORT, out=base / "plain")
    gossamer.run("quickstart", {**SHORT, **seeded, **ring, "name": "<b>ring</b> & co"}, out=base / "seeded")
    gossamer.run("quickstart", {**SHORT, "baseline": "central"}, out=base / "central")
    return {path.name: path for path in base.iterdir()}


@pytest.fixture
def copy(runs: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs["plain"], tmp_path / "copy"))
