"""One node's append-only record of its releases: who writes it, and when. The file itself is described in `chain`.

An event is on file (with `sync`, on the disk) before the value it describes leaves the node, so a line that
is there counts as spent whether or not the value was sent. If a crash tears the last line: when what is left
is the whole event without its newline it counts as spent; otherwise the write had not returned, nothing was
released, and `Ledger.resume` moves the fragment to a `.torn` file beside the ledger and reports it in `torn`.

A ledger has one writer at a time. The run directory's lock sees to that (`results.runlock`), whoever opens ledgers to
write them takes it first.
"""

import json
import os
import resource
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gossamer.accounting.chain import (
    VERSION,
    LedgerError,
    check_header,
    content,
    digest,
    open_to_append,
    parse,
    unwritten,
    write_line,
)
from gossamer.accounting.releases import Event

_SPARE_FILES = 128  # descriptors left for everything else in the process


class Ledger:
    """The open ledger of one node. Make it with `create` or `resume`."""

    def __init__(
        self,
        path: Path,
        *,
        head: str,
        events: Sequence[Event] = (),
        sync: bool,
        fd: int | None,
        torn: bytes = b"",
    ):
        self.path = path
        self.head = head
        self.length = len(events)  # the header not counted
        self.found = events  # what was there when it was opened
        self.torn = torn
        self._sync = sync
        self._fd = fd  # kept open; None where there are too many ledgers for that

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
            write_line(fd, line, sync)
        except BaseException:
            os.close(fd)
            raise
        if not keep_open:
            os.close(fd)
        return cls(path, head=digest(line), sync=sync, fd=fd if keep_open else None)

    @classmethod
    def resume(
        cls,
        path: Path | str,
        *,
        sync: bool,
        keep_open: bool = True,
        header: Mapping[str, Any] | None = None,
        known: tuple[int, str] | None = None,
    ) -> "Ledger":
        """Verify what is there and go on behind it; see the module's text for a torn last line.

        `header` is what the first line must say; `known` the number of events and the head hash of an earlier time,
        which must still be part of the chain: it shows a tail that was cut off since.
        """
        path = Path(path)
        fd = open_to_append(path)
        try:
            data = content(path)
            found, events, head, rest = parse(path, data, lenient=True)
            if header is not None:
                check_header(path, found, {"version": found["version"], **header})
            if known is not None and (
                len(events) < known[0] or digest(data.split(b"\n")[known[0]] + b"\n") != known[1]
            ):
                raise LedgerError(f"{path} no longer holds the {known[0]} events that a checkpoint saw there")
            if rest:
                path.with_suffix(path.suffix + ".torn").write_bytes(rest)
                os.truncate(path, len(data) - len(rest))
            elif not data.endswith(b"\n"):
                write_line(fd, b"\n", sync)
        except BaseException:
            os.close(fd)
            raise
        if not keep_open:
            os.close(fd)
        return cls(path, head=head, events=events, sync=sync, fd=fd if keep_open else None, torn=rest)

    def append(self, event: Event, text: str | None = None) -> None:
        """Write one event, in one system call, before returning; `text` is its JSON where that is known."""
        line = f'{(text or event.to_json())[:-1]},"prev":"{self.head}"}}\n'.encode()
        if self._fd is not None:
            write_line(self._fd, line, self._sync)
        else:
            fd = open_to_append(self.path)
            try:
                write_line(fd, line, self._sync)
            finally:
                os.close(fd)
        self.head = digest(line)
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

    def __init__(self, ledgers: dict[int, Ledger], *, repeats: bool = False):
        self._ledgers = ledgers
        self._on_file = {
            node: 1 + max((e.step for e in ledger.found), default=-2) for node, ledger in ledgers.items()
        }
        self._last: tuple[Event | None, str] = (None, "")
        self._recorded: dict[tuple[int, int], list[Event]] = {}
        if repeats:
            for node, ledger in ledgers.items():
                for event in ledger.found:
                    self._recorded.setdefault((node, event.step), []).append(event)

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
    def resume(
        cls,
        directory: Path | str,
        headers: Mapping[int, Mapping[str, Any]],
        *,
        sync: bool,
        known: Mapping[int, tuple[int, str]] | None = None,
        repeats: bool = False,
    ) -> "LedgerBook":
        """The ledgers of these nodes, verified; `known`: as for `Ledger.resume`, from a checkpoint.

        With `repeats` (seeded noise) a step that is on file may happen again, exactly as it is there: the same noise
        gives the same value, so it is one release. Otherwise such a step is refused: its noise is gone with its key,
        and fresh noise would be a second release.
        """
        keep_open = _room_for(len(headers))
        paths = {node: node_path(directory, node) for node in headers}
        ledgers: dict[int, Ledger] = {}
        try:
            for node, path in paths.items():
                if not unwritten(path):
                    ledgers[node] = Ledger.resume(
                        path,
                        sync=sync,
                        keep_open=keep_open,
                        header={"node": node, **headers[node]},
                        known=(known or {}).get(node),
                    )
            for node in sorted(set(paths) - set(ledgers)):
                # All headers are written before the first event: one can be absent only if nothing happened yet.
                if known or any(ledger.length for ledger in ledgers.values()):
                    raise LedgerError(f"{paths[node]} is missing or empty although the run had begun")
                paths[node].unlink(missing_ok=True)
                ledgers[node] = Ledger.create(
                    paths[node], {"node": node, **headers[node]}, sync=sync, keep_open=keep_open
                )
        except BaseException:
            for ledger in ledgers.values():
                ledger.close()
            raise
        return cls(dict(sorted(ledgers.items())), repeats=repeats)

    def append(self, node: int, event: Event) -> None:
        if event is not self._last[0]:  # nodes that do the same write the same: it is put into words once
            self._last = event, event.to_json()
        if event.step >= self._on_file[node]:
            self._ledgers[node].append(event, self._last[1])
        elif not self._recorded:
            raise LedgerError(
                f"step {event.step} of node {node} is on file: its noise was drawn and is spent"
            )
        elif not (left := self._recorded.get((node, event.step))):
            self._ledgers[node].append(event)  # the step had been stopped between two of its events
        elif left.pop(0) != event:
            raise LedgerError(f"step {event.step} of node {node} is on file as another release")

    @property
    def next_step(self) -> int:
        """The first step that no node hosted here had on file when the book was opened."""
        return max(0, *self._on_file.values())  # what is released before the first draw has a step below 0

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
    header, events, _, _ = parse(Path(path), content(Path(path)), lenient=False)
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
    _, events, found, _ = parse(path, content(path), lenient=False)
    if count is not None and len(events) != count:
        raise LedgerError(f"{path} holds {len(events)} events where {count} were certified")
    if head is not None and found != head:
        raise LedgerError(f"{path} ends in hash {found[:12]}… where {head[:12]}… was certified")


def node_path(directory: Path | str, node: int) -> Path:
    return Path(directory) / f"node-{node:03d}.jsonl"


def _node_paths(directory: Path | str) -> Iterator[tuple[int, Path]]:
    def number(path: Path) -> int:
        return int(path.stem.removeprefix("node-"))

    paths = [p for p in Path(directory).glob("node-*.jsonl") if p.stem.removeprefix("node-").isdigit()]
    yield from ((number(path), path) for path in sorted(paths, key=number))


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
