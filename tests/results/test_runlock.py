"""One writer per run directory, whatever the limits."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.refusals import expect_refusal

from gossamer.results.rundir import LOCK, RunLock


def lock(folder: Path, nodes: range = range(8), *, whole: bool = True) -> RunLock:
    made = RunLock(folder, nodes, whole=whole)
    made.take()
    return made


@pytest.fixture
def few_files() -> Iterator[None]:
    """Hardly more descriptors than are open already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 24, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_a_second_one_is_refused_for_any_number_of_nodes(tmp_path: Path) -> None:
    first = lock(tmp_path, range(100_000))
    for _ in range(50):  # and leaves no descriptor behind
        with expect_refusal(names="wait", remedy=True):
            lock(tmp_path, range(100_000))
    first.close()
    lock(tmp_path, range(100_000)).close()


@contextmanager
def held_by_another(folder: Path, nodes: range, *, whole: bool) -> Iterator[None]:
    """A process that holds these nodes, until it is killed."""
    code = (
        "import sys, time; from pathlib import Path; from gossamer.results.rundir import RunLock; "
        f"lock = RunLock(Path(sys.argv[1]), {nodes!r}, whole={whole}); lock.take(); print('held', flush=True); "
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            yield
        finally:
            other.kill()


def test_processes_of_one_run_do_not_exclude_each_other_and_any_of_them_keeps_others_out(
    tmp_path: Path,
) -> None:
    with held_by_another(tmp_path, range(3, 8), whole=False):
        first = lock(tmp_path, range(3))
        first.close()  # it died; the other process is still ending
        with expect_refusal(names="written"):
            lock(tmp_path)
    lock(tmp_path).close()


def test_a_process_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    with (
        held_by_another(tmp_path, range(8), whole=True),
        expect_refusal(names="written"),
    ):
        lock(tmp_path)
    lock(tmp_path).close()


@pytest.mark.parametrize("what", ["link", "folder"])
def test_what_is_no_file_is_refused(tmp_path: Path, what: str) -> None:
    place = tmp_path / LOCK
    if what == "link":
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.mkdir()
    with expect_refusal(key="run.lock"):
        lock(tmp_path)
    assert not (tmp_path / "elsewhere").exists()
