"""One node's append-only record of its releases: JSONL, each line carrying the hash of the line before.

The first line is a header (version, node, δ, adjacency, unit, noise source, public constants); every later
line is one event. `prev` is the SHA-256 of the previous line's bytes with its newline, so a changed, missing
or reordered line breaks the chain at a known place. The chain alone cannot show that its tail was cut off:
the certificate keeps the head hash and the number of events, and `verify` compares them.

An event is on file (with `sync`, on the disk) before the value it describes leaves the node, so a line that
is there counts as spent whether or not the value was sent. If a crash tears the last line: when what is left
is the whole event without its newline it counts as spent; otherwise the write had not returned, nothing was
released, and `Ledger.resume` moves the fragment to a `.torn` file beside the ledger and reports it in `torn`.
"""

import hashlib
import json
import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gossamer.accounting.events import Event
from gossamer.errors import UserError

VERSION = 1
_SPARE_FILES = 128  # descriptors left for everything else in the process


class LedgerError(UserError):
    """A ledger that is not what was written: one sentence with file, line and what is wrong."""


class Ledger:
    """The open ledger of one node. Make it with `create` or `resume`."""

    def __init__(self, path: Path, *, head: str, length: int, sync: bool, keep_open: bool, torn: bytes = b""):
        self.path = path
        self.head = head
        self.length = length  # events, the header not counted
        self.torn = torn
        self._sync = sync
        self._fd = _open(path) if keep_open else None

    @classmethod
    def create(
        cls, path: Path | str, header: Mapping[str, Any], *, sync: bool, keep_open: bool = True
    ) -> "Ledger":
        """Start a new ledger; an existing file is never overwritten."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"version": VERSION, **header}, allow_nan=False).encode() + b"\n"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            raise LedgerError(f"{path} already exists; resume it or choose another directory") from None
        try:
            _write(fd, line, sync)
        finally:
            os.close(fd)
        return cls(path, head=_digest(line), length=0, sync=sync, keep_open=keep_open)

    @classmethod
    def resume(cls, path: Path | str, *, sync: bool, keep_open: bool = True) -> "Ledger":
        """Verify what is there and go on behind it; see the module's text for a torn last line."""
        path = Path(path)
        data = _bytes(path)
        _, events, head, rest = _parse(path, data, lenient=True)
        if rest:
            path.with_suffix(path.suffix + ".torn").write_bytes(rest)
            os.truncate(path, len(data) - len(rest))
        elif data and not data.endswith(b"\n"):
            fd = _open(path)
            try:
                _write(fd, b"\n", sync)
            finally:
                os.close(fd)
        return cls(path, head=head, length=len(events), sync=sync, keep_open=keep_open, torn=rest)

    def append(self, event: Event) -> None:
        """Write one event, in one system call, before returning."""
        line = f'{event.to_json()[:-1]},"prev":"{self.head}"}}\n'.encode()
        if self._fd is not None:
            _write(self._fd, line, self._sync)
        else:
            fd = _open(self.path)
            try:
                _write(fd, line, self._sync)
            finally:
                os.close(fd)
        self.head = _digest(line)
        self.length += 1

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LedgerBook:
    """The ledgers of all nodes hosted here, `node-003.jsonl` and so on in one directory."""

    def __init__(self, ledgers: dict[int, Ledger]):
        self._ledgers = ledgers

    @classmethod
    def create(
        cls, directory: Path | str, headers: Mapping[int, Mapping[str, Any]], *, sync: bool
    ) -> "LedgerBook":
        keep_open = _room_for(len(headers))
        return cls(
            {
                node: Ledger.create(
                    node_path(directory, node), {"node": node, **header}, sync=sync, keep_open=keep_open
                )
                for node, header in headers.items()
            }
        )

    @classmethod
    def resume(cls, directory: Path | str, *, sync: bool) -> "LedgerBook":
        paths = dict(_node_paths(directory))
        keep_open = _room_for(len(paths))
        return cls(
            {node: Ledger.resume(path, sync=sync, keep_open=keep_open) for node, path in paths.items()}
        )

    def append(self, node: int, event: Event) -> None:
        self._ledgers[node].append(event)

    def heads(self) -> dict[int, str]:
        """node → hash of its last line: what the certificate stores."""
        return {node: ledger.head for node, ledger in self._ledgers.items()}

    def counts(self) -> dict[int, int]:
        """node → number of events."""
        return {node: ledger.length for node, ledger in self._ledgers.items()}

    def close(self) -> None:
        for ledger in self._ledgers.values():
            ledger.close()

    def __enter__(self) -> "LedgerBook":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path | str) -> tuple[dict[str, Any], list[Event]]:
    """Header and events of one ledger, the chain verified."""
    header, events, _, _ = _parse(Path(path), _bytes(Path(path)), lenient=False)
    return header, events


def read_all(directory: Path | str) -> dict[int, tuple[dict[str, Any], list[Event]]]:
    """node → (header, events) for every ledger of a directory."""
    found = {node: read(path) for node, path in _node_paths(directory)}
    if not found:
        raise LedgerError(f"{directory} holds no ledger; expected files named node-000.jsonl")
    return found


def verify(path: Path | str, head: str | None = None, count: int | None = None) -> None:
    """Check the chain and, by the certified head hash and count, that no tail was cut off or added."""
    path = Path(path)
    _, events, found, _ = _parse(path, _bytes(path), lenient=False)
    if count is not None and len(events) != count:
        raise LedgerError(f"{path} holds {len(events)} events where {count} were certified")
    if head is not None and found != head:
        raise LedgerError(f"{path} ends in hash {found[:12]}… where {head[:12]}… was certified")


def node_path(directory: Path | str, node: int) -> Path:
    return Path(directory) / f"node-{node:03d}.jsonl"


def _parse(path: Path, data: bytes, *, lenient: bool) -> tuple[dict[str, Any], list[Event], str, bytes]:
    """(header, events, head, torn rest). `lenient` hands a torn rest back instead of refusing it."""
    *whole, last = data.split(b"\n")
    lines: list[bytes] = [*whole, last] if last else whole
    header: dict[str, Any] = {}
    events: list[Event] = []
    head = ""
    for number, line in enumerate(lines, start=1):
        torn = bool(last) and number == len(lines)
        try:
            fields = json.loads(line)
            if number == 1:
                header = dict(fields)
                if header.get("version") != VERSION:
                    raise ValueError(f"version {header.get('version')!r}, this program reads {VERSION}")
            else:
                prev = fields["prev"]
                event = Event.from_json(fields)
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
        head = _digest(line + b"\n")
    if not header:
        raise LedgerError(f"{path} line 1 is missing: a ledger begins with its header")
    return header, events, head, b""


def _node_paths(directory: Path | str) -> Iterator[tuple[int, Path]]:
    def number(path: Path) -> int:
        return int(path.stem.removeprefix("node-"))

    paths = [p for p in Path(directory).glob("node-*.jsonl") if p.stem.removeprefix("node-").isdigit()]
    yield from ((number(path), path) for path in sorted(paths, key=number))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from None


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND)


def _write(fd: int, line: bytes, sync: bool) -> None:
    written = os.write(fd, line)
    if written != len(line):
        raise OSError(f"only {written} of {len(line)} bytes of a ledger line were written")
    if sync:
        os.fsync(fd)


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _room_for(files: int) -> bool:
    """Whether so many files may stay open; raises the soft limit towards the hard one if that helps."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        except (ValueError, OSError):
            return False
    return soft == resource.RLIM_INFINITY or soft >= wanted
