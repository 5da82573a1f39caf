"""Where what takes long is kept."""

from pathlib import Path

import pytest


@pytest.fixture
def own_cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"  # as the folder above sets GOSSAMER_CACHE
