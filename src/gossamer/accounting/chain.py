"""Files whose lines carry the hash of the line before, JSONL: ledgers, and the budget that lies beside records.

The first line is a header (of a ledger: version, node, δ, adjacency, unit, noise source, public constants); every
later line is one entry (of a ledger: one event). `prev` is the SHA-256 of the previous line's bytes with its newline,
so a changed, missing or reordered line breaks the chain at a known place. The chain alone cannot show that its tail was
cut off: the certificate keeps the head hash and the number of events of a ledger, and `ledger.verify` compares them.

In version 1 of a ledger an event's kind was called `mechanism`; such a ledger is read and resumed as it is, and what is
appended to it is written as today.
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from gossamer.accounting.releases import Event
from gossamer.errors import UserError

VERSION = 2
READABLE = (1, 2)


Entry = TypeVar("Entry")


class LedgerError(UserError):
    """A ledger that is not what was written: one sentence with file, line and what is wrong."""


def parse(path: Path, data: bytes, *, lenient: bool) -> tuple[dict[str, Any], list[Event], str, bytes]:
    """(header, events, head, torn rest) of a ledger. `lenient` hands a torn rest back instead of refusing it."""
    return parse_chain(path, data, lenient=lenient, what="ledger", readable=READABLE, read=_event)


def parse_chain(
    path: Path,
    data: bytes,
    *,
    lenient: bool,
    what: str,
    readable: Sequence[int],
    read: Callable[[bytes], Entry],
) -> tuple[dict[str, Any], list[Entry], str, bytes]:
    """The same of any such file; `read` makes an entry of a line, which it gets without its end: the chain's part."""
    *whole, last = data.split(b"\n")
    lines: list[bytes] = [*whole, last] if last else whole
    header: dict[str, Any] = {}
    entries: list[Entry] = []
    head = ""
    for number, line in enumerate(lines, start=1):
        torn = bool(last) and number == len(lines)
        try:
            if number == 1:
                header = dict(json.loads(line))
                if header.get("version") not in readable:
                    known = " and ".join(map(str, readable))
                    raise ValueError(f"version {header.get('version')!r}, this program reads {known}")
            else:
                payload, mark, rest = line.rpartition(b',"prev":"')
                if not mark or len(rest) != 66 or not rest.endswith(b'"}'):
                    raise ValueError("it names no line before it")
                prev, entry = rest[:64].decode(), read(payload)
        except (ValueError, KeyError, TypeError) as error:
            if torn and lenient and number > 1:
                return header, entries, head, line
            cut = "is incomplete: the run stopped while writing it; resume the run" if torn else None
            raise LedgerError(f"{path} line {number} {cut or f'is not a {what} line ({error!r})'}") from None
        if number > 1:
            if prev != head:
                raise LedgerError(
                    f"{path} line {number} does not follow line {number - 1}: "
                    "a line there was changed, removed or moved"
                )
            entries.append(entry)
        head = digest(line + b"\n")
    if not header:
        raise LedgerError(f"{path} line 1 is missing: a {what} begins with its header")
    return header, entries, head, b""


@lru_cache(maxsize=1 << 16)
def _event(payload: bytes) -> Event:
    """A line without its chain. Nodes that did the same share it, which makes a thousand ledgers quick to read."""
    return Event.from_json(json.loads(payload + b"}"))


def content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from None


def open_to_append(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError as error:
        raise LedgerError(f"{path} cannot be written: {error.strerror}") from None


def lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise LedgerError(f"{path} is being written by another run; wait until it has ended") from None


def lock_in_turn(fd: int, path: Path, seconds: float) -> None:
    """As `lock`, of a file that runs write for a moment only: wait for one's turn."""
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > until:
                raise LedgerError(
                    f"{path} is held by another run for over {seconds:g} s; wait until it has ended"
                ) from None
            time.sleep(0.05)
        else:
            return


def check_header(path: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    expected = json.loads(json.dumps(expected))
    for key in {**found, **expected}:
        if found.get(key) != expected.get(key):
            raise LedgerError(f"{path} line 1 was written for another configuration: its '{key}' differs")


def unwritten(path: Path) -> bool:
    """Not there, or stopped within its first line, so before any event."""
    return not path.exists() or b"\n" not in content(path)


def write_line(fd: int, line: bytes, sync: bool) -> None:
    written = os.write(fd, line)
    if written != len(line):
        raise OSError(f"only {written} of {len(line)} bytes of a ledger line were written")
    if sync:
        os.fsync(fd)


def digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
