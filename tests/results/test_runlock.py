"""One writer per run directory, whatever the limits and whoever removes what."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gossamer.errors import UserError
from gossamer.results import runlock
from gossamer.results.runlock import NAME, RunLock


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
def test_a_second_one_is_refused_with_the_number_of_the_first_for_any_number_of_nodes(tmp_path: Path) -> None:
    first = lock(tmp_path, range(100_000))
    for _ in range(50):  # and leaves no descriptor behind
        with pytest.raises(UserError, match=f"written by another run, process {os.getpid()}; wait"):
            lock(tmp_path, range(100_000))
    first.close()
    lock(tmp_path, range(100_000)).close()


def test_processes_of_one_run_do_not_stand_in_each_others_way_and_any_of_them_keeps_others_out(
    tmp_path: Path,
) -> None:
    first, second = lock(tmp_path, range(3)), lock(tmp_path, range(3, 8), whole=False)
    first.close()  # it died; its sister is still ending
    with pytest.raises(UserError, match="written by another run"):
        lock(tmp_path)
    second.close()
    lock(tmp_path).close()


def test_removing_the_file_sets_nothing_free(tmp_path: Path) -> None:
    first = lock(tmp_path)
    (tmp_path / NAME).unlink()
    with pytest.raises(UserError, match="written by another run"):
        lock(tmp_path)
    first.close()


@contextmanager
def held_by_another(folder: Path, *, whole: bool, posix: bool) -> Iterator[int]:
    """The number of a process that holds nodes 0–7; `posix`: as on a Unix that is not Linux."""
    code = (
        "import sys, time, fcntl; from pathlib import Path; from gossamer.results.runlock import RunLock; "
        f"{posix} and delattr(fcntl, 'F_OFD_SETLK'); "
        f"lock = RunLock(Path(sys.argv[1]), range(8), whole={whole}); lock.take(); print('held', flush=True); "
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True
    ) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            yield other.pid
        finally:
            other.kill()


def test_a_process_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    with (
        held_by_another(tmp_path, whole=True, posix=False) as number,
        pytest.raises(UserError, match=f"process {number};"),
    ):
        lock(tmp_path)
    lock(tmp_path).close()


@pytest.mark.parametrize("whole", [True, False])
def test_a_unix_without_locks_of_open_files_has_those_of_processes(
    tmp_path: Path, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    with held_by_another(tmp_path, whole=whole, posix=True) as number:
        with pytest.raises(UserError, match="another process" if whole else f"process {number}"):
            lock(tmp_path, whole=True)
        with pytest.raises(UserError, match=f"written by another run, process {number}"):
            lock(tmp_path, whole=False)
    first = lock(tmp_path)
    with pytest.raises(UserError, match="written by another run"):
        lock(tmp_path)  # within this process too
    first.close()


def test_a_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runlock, "fcntl", None)
    with pytest.raises(UserError, match=r"cannot be kept to one writer: this system has no file locks"):
        lock(tmp_path)


@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
def test_what_is_no_file_is_refused(tmp_path: Path, what: str) -> None:
    place = tmp_path / NAME
    if what == "link":
        place.symlink_to(tmp_path / "elsewhere")
    elif what == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    with pytest.raises(UserError, match=r"run\.lock"):
        lock(tmp_path)
    assert not (tmp_path / "elsewhere").exists()
