"""Arrays of records: limits of memory, numbers in files, scaling, principal components, shared rows.

Scaling looks at one record at a time and at public constants, never at the other records. Numbers that memory has no
room for are in a file without a name, mapped into memory: the system reads the pages that a step touches and lets go of
them again. The file is open to this user alone, and its space is free again once the array is gone, however the process
ends.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.errors import UserError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
MOST_COLUMNS = 20_000  # of a table; more is refused by name, not tried


def at_most(key: str, value: int, most: int, *, least: int = 1) -> int:
    if not least <= value <= most:
        raise UserError(f"{key} = {value} must be a whole number from {least} to {most}")
    return value


def listed(several: Iterable[object]) -> str:
    """Names for a sentence: some of them where there are many, each cut where it is long."""
    names = [*map(str, several)]
    shown = ", ".join(name if len(name) <= 40 else f"{name[:39]}…" for name in names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


def free_memory() -> float:
    """Bytes available now, by the system and this process' control group; ∞ where neither tells."""
    limits = []
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            limits += [float(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable")]
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            limits += [float(limit) for limit in [file.read().strip()] if limit.isdigit()]
    except (OSError, ValueError, IndexError):
        if not limits and hasattr(os, "sysconf"):
            limits = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    return min(limits, default=float("inf"))


def resident() -> float:
    """Bytes that this process holds already; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return 0.0


def format_bytes(size: float) -> str:
    """Bytes for a person."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def room_for(what: str, size: float) -> None:
    """Refuse what would not fit into memory, before any of it is allocated."""
    free = free_memory()
    if size > free:
        raise UserError(f"{what} would take {format_bytes(size)} of memory; {format_bytes(free)} are free")


def to_ranges(x: Floats, columns: Sequence[str], ranges: Mapping[str, Sequence[float]]) -> Floats:
    """Map each declared public range [lo, hi] to [0, 1]; a value outside it lands outside [0, 1]."""
    unknown = [name for name in ranges if name not in columns]
    if unknown:
        raise UserError(f"data.ranges.{unknown[0]} is no feature column; choose from {', '.join(columns)}")
    result = x.copy()
    for name, (lo, hi) in ranges.items():
        column = columns.index(name)
        result[:, column] = (result[:, column] - lo) / (hi - lo)
    return result


def scale_records(x: Floats, scale: str, bias: bool | str) -> Floats:
    """Every record by itself, by `data.scale` and `data.bias`.

    unit-ball: x / max(1, ‖x‖₂), so that ‖x‖₂ ≤ 1. unit-sphere: x / ‖x‖₂, and a record of zeros stays where it is.
    bias: (x, 1)/√2, a constant feature that keeps a record of the unit ball inside it, or "outside", (x, 1).
    """
    # Rounding to float32 must not push a record out of the ball, where sensitivity bounds would not cover it.
    inside = 1 - 2.0**-22
    if scale != "none":
        norms = np.sqrt(np.square(x, dtype=np.float64).sum(axis=tuple(range(1, x.ndim)), keepdims=True))
        if scale == "unit-ball":
            x = x * np.where(norms > 1, inside / np.maximum(norms, 1), 1).astype(np.float32)
        else:
            x = (x * np.where(norms > 0, inside / np.where(norms > 0, norms, 1), 1)).astype(np.float32)
    if not bias:
        return x
    factor = np.float32(1 if bias == "outside" else inside / math.sqrt(2))
    return np.hstack([x, np.ones((len(x), 1), np.float32)]) * factor


def fit_components(x: Floats, count: int) -> tuple[Floats, Floats]:
    """(mean (p,), basis (count, p)): the directions of largest variance, each with its largest entry positive."""
    rows = x.reshape(len(x), -1)
    mean = rows.mean(0, dtype=np.float64)
    # E[x xᵀ] − m mᵀ in blocks: a centred double-precision copy of the whole set would take gigabytes.
    moment = np.zeros((rows.shape[1], rows.shape[1]))
    for block in np.array_split(rows, max(1, len(rows) // 10_000)):
        centred = np.asarray(block - mean, dtype=np.float64)
        moment += centred.T @ centred
    basis = np.linalg.eigh(moment)[1][:, ::-1][:, :count].T
    signs = np.sign(basis[np.arange(len(basis)), np.abs(basis).argmax(1)])
    return mean.astype(np.float32), (basis * signs[:, None]).astype(np.float32)


def project(x: Floats, mean: Floats, basis: Floats) -> Floats:
    rows = x.reshape(len(x), len(mean))  # also of a hold-out without rows
    return np.asarray((rows - mean) @ basis.T, dtype=np.float32)


BLOCK = 1 << 16  # rows that a step has in memory at a time
SHARE = 0.1  # of the free memory: a run on a table in memory takes up to 8.5 times its numbers
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
    size, default = 4 * shape[0] * shape[1], not os.environ.get("TMPDIR") and LARGE_FILES.is_dir()
    folder = LARGE_FILES if default else Path(tempfile.gettempdir())
    try:
        free = shutil.disk_usage(folder).free
        if size > free:
            raise OSError(errno.ENOSPC, f"{format_bytes(free)} are free")
        with tempfile.TemporaryFile(dir=folder) as file:
            # All of its space now: a disk that is full later would end the process in the middle of a step.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            return np.memmap(file, np.float32, "r+", shape=shape)
    except OSError as error:
        what = f"no file of {format_bytes(size)} can be created in {folder} ({error.strerror})"
        remedy = "make room, or name another folder in the environment variable TMPDIR"
        raise UserError(f"data.mapped: {what}; {remedy}") from None


COMMON = 6  # a row that occurs so often is one that many have
CERTAIN = 1e-3  # fewer equal rows than this are none
SAMPLE = 101  # values whose digits are counted


def share_rows(ours: Array, theirs: Array) -> bool:
    """Are rows of one set in the other beyond chance? What it says of private records is for this machine alone."""
    if not len(ours) or not len(theirs) or ours.shape[1:] != theirs.shape[1:]:
        return False
    (own, times), (other, other_times) = _counted(ours), _counted(theirs)
    _, here, there = np.intersect1d(own, other, assume_unique=True, return_indices=True)
    same = len(here) == len(own) == len(other) and np.array_equal(times[here], other_times[there])
    if not len(here) or same:
        return same
    if max(times.max(), other_times.max()) == 1:
        expected = _by_chance(ours, theirs)
        return len(here) > expected + 4 * math.sqrt(expected)
    both = times[here], other_times[there]
    return _beyond_chance(times, *both, len(theirs)) or _beyond_chance(other_times, *both[::-1], len(ours))


def _beyond_chance(seen: Array, common: Array, new: Array, drawn: int) -> bool:
    """Of all rows seen r times, does the other set hold more than new rows of the same origin would?

    `seen`: how often each different row of a set occurs; `common`: those that the other has too, there `new` times.
    """
    times = Counter(seen.tolist())
    rows = int(seen.sum())
    for r in times:
        hits = int(new[common == r].sum())
        # Four deviations above what was counted, and above what is expected then.
        repeated = times[r + 1] + 4 * math.sqrt(times[r + 1] + 1)
        expected = drawn * (r + 1) * repeated / rows
        if r < COMMON and hits > expected + 4 * math.sqrt(expected):
            return True
    return False


def _by_chance(ours: Array, theirs: Array) -> float:
    """Return how many rows may be equal by chance, where no row repeats within a set: what their columns tell.

    Rows are equal with no more than the least of their columns' probabilities; the others' count with their root, which
    leaves room for columns that go together.
    """
    across, within = len(ours) * len(theirs), (len(ours) ** 2 + len(theirs) ** 2) / 2
    most = 9 * across / within  # with more expected, one in eight thousand would have no equal rows within
    logs: list[float] = []
    columns = (x.reshape(len(x), -1).T for x in (ours, theirs))
    for one, other in zip(*columns, strict=True):
        logs.append(math.log(_equal(_plain(one), _plain(other))))
        least = min(logs)
        expected = across * math.exp(least + (sum(logs) - least) / 2)
        if expected < CERTAIN:
            return 0.0
    return min(expected, most)


def _equal(one: Array, other: Array) -> float:
    """The probability that two rows have the same value here: as it happens within the sets, or by the value's digits.

    Numbers that never repeat have at least a grid: that of the digits they are written with.
    """
    pairs = repeats = 0.0
    for values in (one, other):
        counts = np.unique(values, return_counts=True)[1].astype(float)
        repeats += float((counts * (counts - 1)).sum())
        pairs += len(values) * (len(values) - 1)
    if repeats or pairs == 0:
        return min(1.0, (repeats + 2) / max(pairs, 1.0))
    both = np.concatenate([one, other])
    digits = sorted(len(np.format_float_positional(v, trim="-").partition(".")[2]) for v in both[:SAMPLE])
    spread = float(np.quantile(both, 0.9) - np.quantile(both, 0.1))
    return min(2 / pairs, 10 * 10.0 ** -digits[len(digits) // 2] / max(spread, 1e-30), 1.0)


def _plain(x: Array) -> Array:
    # Adding 0 makes −0 the same as 0.
    return np.ascontiguousarray(x, dtype="<f4") + np.float32(0)


def _counted(x: Array) -> tuple[Array, Array]:
    """The different rows by their hashes, and how often each occurs; the rows themselves are never all in memory."""
    hashes = np.empty(len(x), dtype="S16")
    for part in blocks(x):
        hashes[part] = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in _plain(x[part])]
    return np.unique(hashes, return_counts=True)
