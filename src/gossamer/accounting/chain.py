"""The file of a ledger: JSONL, each line carrying the hash of the line before.

The first line is a header (version, node, δ, adjacency, unit, noise source, public constants); every later
line is one event. `prev` is the SHA-256 of the previous line's bytes with its newline, so a changed, missing
or reordered line breaks the chain at a known place. The chain alone cannot show that its tail was cut off:
the certificate keeps the head hash and the number of events, and `ledger.verify` compares them.

In version 1 an event's kind was called `mechanism`; such a ledger is read and resumed as it is, and what is
appended to it is written as today.
"""

import fcntl
import hashlib
import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from gossamer.accounting.releases import Event
from gossamer.errors import UserError

VERSION = 2
READABLE = (1, 2)


class LedgerError(UserError):
    """A ledger that is not what was written: one sentence with file, line and what is wrong."""


def parse(path: Path, data: bytes, *, lenient: bool) -> tuple[dict[str, Any], list[Event], str, bytes]:
    """(header, events, head, torn rest). `lenient` hands a torn rest back instead of refusing it."""
    *whole, last = data.split(b"\n")
    lines: list[bytes] = [*whole, last] if last else whole
    header: dict[str, Any] = {}
    events: list[Event] = []
    head = ""
    for number, line in enumerate(lines, start=1):
        torn = bool(last) and number == len(lines)
        try:
            if number == 1:
                header = dict(json.loads(line))
                if header.get("version") not in READABLE:
                    known = " and ".join(map(str, READABLE))
                    raise ValueError(f"version {header.get('version')!r}, this program reads {known}")
            else:
                payload, mark, rest = line.rpartition(b',"prev":"')
                if not mark or len(rest) != 66 or not rest.endswith(b'"}'):
                    raise ValueError("it names no line before it")
                prev, event = rest[:64].decode(), _event(payload)
        except (ValueError, KeyError, TypeError) as error:
            if torn and lenient and number > 1:
                return header, events, head, line
            what = "is incomplete: the run stopped while writing it; resume the run" if torn else None
            raise LedgerError(f"{path} line {number} {what or f'is not a ledger line ({error!r})'}") from None
        if number > 1:
            if prev != head:
                raise LedgerError(
                    f"{path} line {number} does not follow line {number - 1}: "
                    "a line there was changed, removed or moved"
                )
            events.append(event)
        head = digest(line + b"\n")
    if not header:
        raise LedgerError(f"{path} line 1 is missing: a ledger begins with its header")
    return header, events, head, b""


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
