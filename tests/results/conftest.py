"""Two finished runs of one configuration, and a copy of the first to change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.signed_runs import CHANGES

from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.run.assemble import assemble
from gossamer.run.outline import outline
from gossamer.run.train import execute


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("made")
    parts = assemble(outline(resolve(recipes.read("quickstart"), CHANGES)))
    for name in ("run", "twin"):
        execute(parts, out=base / name)
    return base


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "run", tmp_path / "run")
