"""Two finished runs of one configuration, a copy of the first to change, and a browser to look at pages with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.signed_runs import CHANGES, keep_key

from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.results.signatures import RunKey
from gossamer.training.assemble import assemble
from gossamer.training.plan import Plan
from gossamer.training.run import execute

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("made")
    parts = assemble(Plan.of(resolve(recipes.read("quickstart"), CHANGES)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunKey, "delete", keep_key)
        for name in ("run", "twin"):
            execute(parts, out=base / name)
    return base


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made / "run", tmp_path / "run")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()
