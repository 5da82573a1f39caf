"""What several test files share."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.pool import Pool

from gossamer.cli import main

# torch writes every traced operation to this log as soon as anybody listens, and pytest listens to everything.
logging.getLogger("torch.__trace").propagate = False

# Read when grpc is first imported, which some tests do before the package that sets it.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """command("run", …) → (exit code, output, errors), as typed in an empty folder; child processes' output too."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gossamer", *words])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        out = capfd.readouterr()
        return code, out.out, out.err

    return call


@pytest.fixture(scope="module")
def two_ranks() -> Iterator[Pool]:
    """Two processes that stay for all tests of a file."""
    pool = Pool(2)
    yield pool
    pool.close()
