"""One study of two sites, which several files look at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.consortia import RECIPE, Clock, on_disk, rows
from tests.support.peer_studies import study_of_two

from gossamer.consortium.files import now
from gossamer.consortium.folders import Coordinator
from gossamer.consortium.study import Study, pack


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sites with records and public rows, and one study, north/readmission-1.study."""
    folder = tmp_path_factory.mktemp("consortium")
    north = on_disk(folder, "clinic", "mercy", clock=Clock(now()))
    rows(folder / "clinic" / "records.csv", 90)
    rows(folder / "mercy" / "records.csv", 110, order="yba", start=1000)
    rows(folder / "test.csv", 30, start=5000)
    pack(north, RECIPE, {"data.test": str(folder / "test.csv")})
    return folder


@pytest.fixture(scope="module")
def north(place: Path) -> Coordinator:
    return Coordinator(place / "north")


@pytest.fixture(scope="module")
def study(place: Path, north: Coordinator) -> Study:
    return Study.read(place / "north" / "readmission-1.study", north.roster().fingerprint)


@pytest.fixture
def packed_study(tmp_path: Path) -> Path:
    return study_of_two(tmp_path)


@pytest.fixture(autouse=True)
def no_other_loop() -> Iterator[None]:
    """A browser that another test opened leaves its event loop running in this thread for the rest of the session."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(running)
