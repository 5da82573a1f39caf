"""The format of a run's files: hash-chained JSONL (ledgers and accounts), and lists with one value per node.

The first line is a header with the file's version; every later line is one entry. Its `prev` is the SHA-256 of the
previous line's bytes with its newline, so a changed, missing or reordered line breaks the chain at a known place. The
chain alone cannot show that its tail was cut off: certificates and checkpoints keep the hash of the last line
and the number of lines.

Lists with one value per node have each different value once, `{"values": […], "of": [[first, last, which], …]}`: the
nodes from `first` to `last` have the value of that number. Where neighbours are alike, as most are in a large run, a
list of a hundred thousand entries is one line; where none are, it is no longer than the list.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import UserError

Entry = TypeVar("Entry")
Runs = NDArray[np.int64]  # (k, 3): first node, last node, which value; sorted, disjoint
MOST_NODES = 1_000_000  # as many as there may be: what a file says is spread over no more


class LedgerError(UserError):
    """A chained file that is not what was written: the sentence names the file, the line and the fault."""


def parse_chain(
    path: Path,
    data: bytes,
    *,
    lenient: bool,
    what: str,
    version: int,
    read: Callable[[bytes], Entry],
    begin: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[dict[str, Any], list[Entry], str, bytes]:
    """Return (header, entries, hash of the last line, torn rest) of a chained file.

    `begin` gets the header before the first entry is read; `read` makes an entry of a line without its `prev` and
    closing brace. Either refuses with a ValueError. `lenient` hands a torn rest back instead of refusing it.
    """
    *whole, last = data.split(b"\n")
    lines: list[bytes] = [*whole, last] if last else whole
    header: dict[str, Any] = {}
    entries: list[Entry] = []
    head = ""
    for number, line in enumerate(lines, start=1):
        torn = bool(last) and number == len(lines)
        try:
            if number == 1:
                header = json.loads(line, object_pairs_hook=no_name_twice)
                if not isinstance(header, dict):
                    raise ValueError("it is not a JSON object")
                if header.get("version") != version:
                    raise ValueError(f"version {header.get('version')!r}, this program reads {version}")
                if begin is not None:
                    begin(header)
            else:
                payload, mark, rest = line.rpartition(b',"prev":"')
                if not mark or len(rest) != 66 or not rest.endswith(b'"}'):
                    raise ValueError("it names no line before it")
                prev, entry = rest[:64].decode(), read(payload)
        except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            if torn and lenient and number > 1:
                return header, entries, head, line
            cut = "is incomplete: the run stopped while writing it; resume the run" if torn else None
            raise LedgerError(
                f"{path} line {number} {cut or f'is not a {what} line ({error!r}); put it back'}"
            ) from None
        if number > 1:
            if prev != head:
                raise LedgerError(
                    f"{path} line {number} does not follow line {number - 1}: "
                    "a line there was changed, removed or moved; put the file back"
                )
            entries.append(entry)
        head = digest(line + b"\n")
    if not header:
        raise LedgerError(f"{path} line 1 is missing: a {what} begins with its header; put it back")
    return header, entries, head, b""


def no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For json.loads: readers differ in which of the two they take, and a file must say the same to all."""
    by_name = dict(pairs)
    if len(by_name) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return by_name


def content(path: Path, at_most: int = -1) -> bytes:
    """All of a regular file, or its beginning. A pipe or a device in its place is refused: it might never end."""
    try:
        with open_to_read(path) as file:
            return file.read(at_most)
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from None


def open_to_read(path: Path) -> BinaryIO:
    return open(_open_regular(path, os.O_RDONLY, "read"), "rb")


def _open_regular(path: Path, flags: int, use: str) -> int:
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise LedgerError(f"{path} cannot be {use}: it is not a regular file; name one")
    return fd


def open_to_extend(path: Path, data: bytes, torn: bytes, sync: bool) -> int:
    """Open a parsed file to append to it; a torn rest moves to a `.torn` file, a missing last newline is written.

    A link is not followed: what is written must be where it is read.
    """
    try:
        fd = _open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW, "written")
    except OSError as error:
        raise LedgerError(f"{path} cannot be written: {error.strerror}") from None
    try:
        if torn:
            path.with_suffix(path.suffix + ".torn").write_bytes(torn)
            os.truncate(path, len(data) - len(torn))
        elif not data.endswith(b"\n"):
            write_line(fd, b"\n", sync)
    except BaseException:
        os.close(fd)
        raise
    return fd


def write_line(fd: int, line: bytes, sync: bool) -> None:
    written = os.write(fd, line)
    if written != len(line):
        raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes of a ledger line were written")
    if sync:
        os.fsync(fd)


def chained(text: str, head: str) -> bytes:
    """The line of a JSON object that follows the line with this hash."""
    return f'{text[:-1]},"prev":"{head}"}}\n'.encode()


def digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def runs_of(which: NDArray[np.int64], first: int = 0) -> Runs:
    """Of the nodes from `first` on, which value each has; −1: none."""
    if not len(which):
        return np.empty((0, 3), np.int64)
    starts = np.flatnonzero(np.diff(which, prepend=which[0] - 1))
    lasts = np.append(starts[1:], len(which)) - 1
    runs = np.stack([starts + first, lasts + first, which[starts]], axis=1)
    return runs[runs[:, 2] >= 0]


def checked_runs(listed: Any, values: int, nodes: range) -> Runs:
    """Runs of a file: whole numbers, in order and apart, of these nodes and of all values; else a ValueError."""
    triples = isinstance(listed, list) and all(
        type(run) is list and len(run) == 3 and all(type(number) is int for number in run) for run in listed
    )
    if not triples or not 0 < len(listed) <= len(nodes):
        raise ValueError("its 'of' is not a list of runs")
    if any(not nodes.start <= first <= last < nodes.stop for first, last, _ in listed):
        raise ValueError("its 'of' names nodes that are not here")
    runs = np.array(listed, dtype=np.int64)
    if (runs[1:, 0] <= runs[:-1, 1]).any():
        raise ValueError("its 'of' names a node twice")
    if {which for _, _, which in listed} != set(range(values)):
        raise ValueError("its 'of' and its values do not belong together")
    return runs


def packed(values: Sequence[Any], key: Callable[[Any], Hashable], first: int = 0) -> dict[str, Any]:
    """Pack a list of one entry per node, from `first` on; `key` is equal for equal entries."""
    numbers: dict[Hashable, int] = {}
    by_object: dict[int, int] = {}  # the very same object needs no second look
    different: list[Any] = []
    which = np.empty(len(values), np.int64)
    for i, value in enumerate(values):
        if id(value) not in by_object:
            by_object[id(value)] = number = numbers.setdefault(key(value), len(different))
            if number == len(different):
                different.append(value)
        which[i] = by_object[id(value)]
    return {"values": different, "of": runs_of(which, first).tolist()}


def spread(packed: Any, nodes: range) -> list[Any]:
    """Unpack; nodes that are alike share one object."""
    if not isinstance(packed, dict) or not isinstance(packed.get("values"), list):
        raise ValueError("it has no 'values'")
    values, runs = packed["values"], checked_runs(packed.get("of"), len(packed["values"]), nodes)
    if int((runs[:, 1] - runs[:, 0] + 1).sum()) != len(nodes):
        raise ValueError("its 'of' leaves nodes out")
    return [values[which] for first, last, which in runs.tolist() for _ in range(last - first + 1)]
