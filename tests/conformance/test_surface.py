"""No command, option, key, kind or public name goes or comes unnoticed. See tests/support/surface.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RECORDED = Path(__file__).with_name("surface.txt")


def test_the_surface_is_what_is_recorded() -> None:
    """In a process of its own: tests register kinds."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.surface"],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    now, before = set(done.stdout.splitlines()), set(RECORDED.read_text(encoding="utf-8").splitlines())
    assert sorted(before - now) == []
    assert sorted(now - before) == []
