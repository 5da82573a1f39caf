"""Links are on file as they stand, and whoever reads sees whole files."""

from __future__ import annotations

import json
import time
from pathlib import Path

from gossamer.consortium.shown_links import FILE, shown_links


def test_a_change_is_on_file_soon_and_the_last_state_stays(tmp_path: Path) -> None:
    states = {"b": "up"}

    def on_file() -> object:
        path = tmp_path / FILE
        return json.loads(path.read_text()) if path.exists() else None

    def eventually(due: str) -> bool:
        end = time.monotonic() + 10
        while on_file() != {"site": "a", "links": {"b": due}} and time.monotonic() < end:
            time.sleep(0.005)
        return time.monotonic() < end

    with shown_links(tmp_path, "a", lambda: states, every=0.01):
        assert eventually("up")
        states["b"] = "suspect"
        assert eventually("suspect")
        states["b"] = "down"
    assert on_file() == {"site": "a", "links": {"b": "down"}}
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_folder_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    with shown_links(tmp_path / "gone", "a", dict, every=0.01):
        time.sleep(0.05)
