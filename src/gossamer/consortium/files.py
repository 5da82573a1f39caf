"""Files of a consortium: nothing half-written, private keys their owner's alone, nothing read without end."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gossamer.errors import UserError
from gossamer.results.rundir import read_bytes

LARGEST = 16 << 20  # bytes: a roster of a thousand sites has two million


def read(path: Path) -> bytes:
    content = read_bytes(path, LARGEST + 1)
    if len(content) > LARGEST:
        raise UserError(f"{path} has more than {LARGEST >> 20} MB; it is no file of a consortium.")
    return content


def read_private(path: Path) -> bytes:
    """Read a file that only its owner may read."""
    content = read(path)
    if path.stat().st_mode & 0o077:
        raise UserError(
            f"{path} can be read by others than its owner; chmod 600 it if nobody has read it yet."
        )
    return content


def write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file in place of what was there, all or nothing, even if the machine stops in between."""
    _put(path, content, mode, replace=True)


def write_new(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file that must not exist; a private one is never readable by others, not for a moment."""
    _put(path, content, mode, replace=False)


def _put(path: Path, content: bytes, mode: int, *, replace: bool) -> None:
    try:
        put(path, content, mode, replace=replace)
    except FileExistsError:
        raise UserError(f"{path} exists and is not overwritten; name another place.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None


def put(path: Path, content: bytes, mode: int, *, replace: bool) -> None:
    """Write a file, all or nothing; an OSError names it."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            (os.replace if replace else os.link)(temporary, path)  # a link fails where there is a file
            sync_folder(path.parent)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """A new folder, its owner's alone: it will hold a key."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        raise UserError(f"{path} exists; name another place with --dir, or remove it.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be created: {error.strerror}.") from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One command at a time: two at once would make two rosters of one version."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(f"another command is at work in {folder}; try again when it has ended.") from None
    finally:
        os.close(fd)


def only_folder_with(name: str, option: str, what: str, given: Path | None) -> Path:
    """The folder that was named, or else this one or the only one in it that holds a file `name`."""
    if given is not None:
        folder = given.parent if given.name == name else given
        if not (folder / name).exists():
            raise UserError(f"{option} {given} is no {what}: it has no {name}.")
        return folder
    here = Path()
    if (here / name).exists():
        return here
    folders = sorted(path.parent for path in here.glob(f"*/{name}"))
    if len(folders) != 1:
        several = f": there are {', '.join(map(str, folders[:5]))}" if folders else ""
        raise UserError(f"no {what} is named{several or ' and none is here'}; name its folder with {option}.")
    return folders[0]
