"""What several test files share."""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from tests.support.pool import Pool

from gossamer.cli import main

# torch writes every traced operation to this log as soon as anybody listens, and pytest listens to everything.
logging.getLogger("torch.__trace").propagate = False

# The suite runs one process per core: threads of numpy's products would only wait for each other. Read when numpy is
# first imported, here and in child processes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Read when grpc is first imported, which some tests do before the package that sets it.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# What tests spend on records is not the user's: neither at import, nor in fixtures of a session, nor in a test.
STATES = Path(tempfile.mkdtemp(prefix="gossamer-tests-"))
NUMBERS = itertools.count()
os.environ["GOSSAMER_STATE"] = str(STATES)

# Tests start hundreds of processes, and each would compile the package anew. Where bytecode must not lie beside its
# source, it lies in pytest's own folder.
if sys.dont_write_bytecode:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / ".pytest_cache/bytecode")

# The same examples on every machine, however long one takes there. Others: pytest --hypothesis-profile explore.
settings.register_profile("explore", deadline=None)
settings.register_profile("everywhere", deadline=None, derandomize=True)
settings.load_profile("everywhere")

# No test cuts the power: to wait for the disk thirty times a run is a third of these tests' time.
os.fsync = lambda fd: None

# A shell that starts these tests in the background has them ignore interrupts, and so their children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A million objects of libraries and tests stay until the end: nobody need look through them for garbage.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _own_register(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests write the same records again and again: what one spent on them is nothing to the next.

    A folder of pytest's own would take milliseconds, for it looks through those of all tests before. Kinds that a test
    registers, also by handing over a class, are forgotten after it.
    """
    from tests.support.registries import forgotten

    own = STATES / str(next(NUMBERS))
    own.mkdir()
    monkeypatch.setenv("GOSSAMER_STATE", str(own))
    with forgotten():
        yield


def pytest_unconfigure() -> None:
    shutil.rmtree(STATES, ignore_errors=True)


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


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """As `subprocess.Popen`, in a session of its own; at the end of the test all of it that still runs is killed."""
    started: list[subprocess.Popen[str]] = []

    def popen(words: list[str], **options: Any) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(words, text=True, start_new_session=True, **options))
        return started[-1]

    yield popen
    for process in started:
        with process, contextlib.suppress(ProcessLookupError):  # nobody of that session is left
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[Pool]:
    """Two processes that stay for all tests."""
    pool = Pool(2)
    yield pool
    pool.close()
