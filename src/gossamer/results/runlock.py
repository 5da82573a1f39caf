"""One writer per run directory: a lock that costs two descriptors, however many nodes and whatever the file limit.

Every process of a run holds the range of its own nodes in `run.lock`, so the processes of one run do not stand in each
other's way and any two runs do, also while some of the first one's processes are still ending. The first process of a
machine holds the directory itself besides: a `run.lock` that somebody removes sets nothing free. Both are the kernel's:
they end with the process, however it ends, and a file that is left behind locks nothing.

The ranges are Linux's locks of open files, or elsewhere POSIX's locks of processes. Those need no layout of a structure
but are set free as soon as the process closes any descriptor of the file: so the directory is locked first, and a
second writer within one process is refused before it opens the file. Where there is neither, a run is refused.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from pathlib import Path

from gossamer.errors import UserError

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]

NAME = "run.lock"
_RECORD = 16  # bytes: the process' number, at the place of its first node
_BUSY = (errno.EAGAIN, errno.EACCES)
_FLOCK = "hhqqi0q"  # Linux's struct flock64: type, whence, start, length, process


class RunLock:
    """Held from `take` to `close`; refused, with the other process' number, where another run holds it."""

    def __init__(self, directory: Path, nodes: range, *, whole: bool):
        """`nodes` are those of this process; `whole`: hold the directory too (the machine's first process)."""
        self._directory, self._nodes, self._whole = directory, nodes, whole
        self._held: list[int] = []

    def take(self) -> None:
        directory = self._directory
        if fcntl is None:
            raise UserError(
                f"{directory} cannot be kept to one writer: this system has no file locks (fcntl); use a Unix."
            )
        try:
            if self._whole:
                self._held.append(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                _lock_directory(self._held[-1], directory)
            self._held.append(_opened(directory / NAME))
            _lock_range(self._held[-1], directory, self._nodes)
            _sign(self._held[-1], self._nodes.start)
        except OSError as error:
            self.close()
            raise UserError(f"{directory / NAME} cannot be locked: {error.strerror or error}.") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop())


def _opened(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UserError(f"{path} is not a regular file; remove it.")
    return fd


def _lock_range(fd: int, directory: Path, nodes: range) -> None:
    if not hasattr(fcntl, "F_OFD_SETLK"):
        _lock_process_range(fd, directory, nodes)
        return
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, nodes.start, len(nodes), 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted)
    except OSError as error:
        if error.errno not in _BUSY:
            raise
        kind, _, start, _, _ = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_OFD_GETLK, wanted))
        raise _refusal(_record(fd, start if kind != fcntl.F_UNLCK else nodes.start), directory) from None


def _lock_process_range(fd: int, directory: Path, nodes: range) -> None:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, len(nodes), nodes.start)
    except OSError as error:
        if error.errno not in _BUSY:
            raise
        raise _refusal(_record(fd, nodes.start), directory) from None


def _lock_directory(whole: int, directory: Path) -> None:
    try:
        fcntl.flock(whole, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            raise _refusal(_number_in(directory / NAME), directory) from None
        # Some network file systems lock no directories; the file's lock stands alone there.


def _sign(fd: int, start: int) -> None:
    """Only for the sentence that refuses another: a full disk is no reason not to begin."""
    try:
        os.pwrite(fd, b"%15d\n" % os.getpid(), start * _RECORD)
    except OSError:
        return


def _record(fd: int, start: int) -> bytes:
    return os.pread(fd, _RECORD, start * _RECORD)


def _number_in(path: Path) -> bytes:
    """Of the first process, which holds the directory; nothing where its file is gone, or none."""
    if not hasattr(fcntl, "F_OFD_SETLK"):
        return b""  # opening and closing it would set our own process' locks on it free
    try:
        fd = _opened(path)
    except (OSError, UserError):
        return b""
    try:
        return _record(fd, 0)
    finally:
        os.close(fd)


def _refusal(record: bytes, directory: Path) -> UserError:
    number = record.strip(b" \n\0")
    who = f"process {number.decode()}" if number.isdigit() else "another process"
    return UserError(f"{directory} is being written by another run, {who}; wait until it has ended.")
