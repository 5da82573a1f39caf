"""Numbers of records that memory has no room for: in a file that has no name, mapped into memory.

The system reads the pages that a step touches and lets go of them again. The file is open to this user alone, no folder
lists it, and its space is free again once the array is gone, however the process ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.data.dataset import Array
from gossamer.data.limits import free_memory, in_words, room_for
from gossamer.data.scaling import Floats
from gossamer.errors import UserError

BLOCK = 1 << 16  # rows that a step has in memory at a time
SHARE = (
    0.1  # of the free memory: a run on a table in memory takes up to 8.5 times its numbers (run/estimate.py)
)
LARGE_FILES = Path("/var/tmp")  # where /tmp may lie in memory itself


def is_mapped(x: Any) -> bool:
    """Do these numbers lie in a file? What numpy computes from such an array does not."""
    return getattr(x, "_mmap", None) is not None and x.size > 0


def is_large(size: float) -> bool:
    """Would so many bytes of numbers be too many for memory, with what a run does to them?"""
    return size > SHARE * free_memory()


def zeros(what: str, shape: tuple[int, int], *, mapped: bool | None) -> Floats:
    """An array to be filled; `mapped` None: in a file where it would take a large part of the free memory."""
    size = 4 * shape[0] * shape[1]
    if size and (is_large(size) if mapped is None else mapped):
        return _in_file(shape)
    room_for(what, size)
    return np.zeros(shape, np.float32)


def blocks(x: Array) -> Iterator[slice]:
    """All rows of `x`, some at a time."""
    return (slice(at, at + BLOCK) for at in range(0, len(x), BLOCK))


def gathered(x: Array, rows: Array) -> Array:
    """x[rows]; of a mapped array mapped too, and the array itself where the rows follow each other in it."""
    if not is_mapped(x):
        return x[rows]
    if rows.dtype == np.bool_:
        rows = np.flatnonzero(rows)
    first = int(rows[0]) if len(rows) else 0
    if np.array_equal(rows, np.arange(first, first + len(rows))):
        return x[first : first + len(rows)]
    out = _in_file((len(rows), x.shape[1]))
    for part in blocks(out):
        out[part] = x[rows[part]]
    return out


def by_block(x: Array, function: Callable[[Array], Array]) -> Array:
    """function(x) of a function that looks at each row by itself; of a mapped array mapped too."""
    if not is_mapped(x):
        return function(x)
    out = _in_file((len(x), function(np.asarray(x[:0])).shape[1]))
    for part in blocks(x):
        out[part] = function(np.asarray(x[part]))
    return out


def joined(parts: Sequence[Array]) -> Array:
    """One after the other; mapped if one of them is."""
    if not any(map(is_mapped, parts)):
        return np.concatenate(parts)
    if len(parts) == 1:
        return parts[0]
    out, at = _in_file((sum(map(len, parts)), parts[0].shape[1])), 0
    for own in parts:
        for part in blocks(own):
            out[at + part.start : at + min(part.stop, len(own))] = own[part]
        at += len(own)
    return out


def _in_file(shape: tuple[int, int]) -> Floats:
    folder, size = _folder(), 4 * shape[0] * shape[1]
    try:
        free = shutil.disk_usage(folder).free
        if size > free:
            raise UserError(
                f"data.mapped: the records' numbers need {in_words(size)} in {folder}, which has {in_words(free)} "
                "free; make room, or name another folder in the environment variable TMPDIR"
            )
        with tempfile.TemporaryFile(dir=folder) as file:
            # All of its space now: a disk that is full later would end the process in the middle of a step.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            return np.memmap(file, np.float32, "r+", shape=shape)
    except OSError as error:
        raise UserError(
            f"data.mapped: no file of {in_words(size)} can be made in {folder} ({error.strerror}); name another folder "
            "in the environment variable TMPDIR"
        ) from None


def _folder() -> Path:
    if not os.environ.get("TMPDIR") and LARGE_FILES.is_dir():
        return LARGE_FILES
    return Path(tempfile.gettempdir())
