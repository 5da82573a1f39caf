"""Every test starts without a data folder and with an empty cache, so that none depends on the machine."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def isolated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOSSAMER_CACHE", str(tmp_path / "cache"))
    if request.node.get_closest_marker("data") is None:
        monkeypatch.delenv("GOSSAMER_DATA", raising=False)
