"""The append-only record of the nodes' releases: who writes it, and when. The file itself is described in `chain`.

A node has a ledger of its own, `node-003.jsonl`; where a process hosts more than `MANY`, they have one together,
`nodes-000-99999.jsonl`, with columns over the nodes (`columns`). Which it is, is decided here, and nobody else asks.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
from gossamer.accounting.columns import (
    Alike,
    ColumnLedger,
    Released,
    columns_in,
    columns_path,
    read_columns,
)
from gossamer.accounting.releases import FIRST_STEP, Event

MANY = 1000  # nodes of a process that still have a file each: more are too many to keep open, and to look through
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
    """The ledgers of all nodes hosted here, in one directory: each its own, or many of them one together."""

    def __init__(
        self,
        ledgers: dict[int, Ledger],
        *,
        together: Sequence[ColumnLedger] = (),
        repeats: bool = False,
    ):
        self._ledgers, self._together = ledgers, list(together)
        self._on_file = {
            node: 1 + max((e.step for e in ledger.found), default=FIRST_STEP - 1)
            for node, ledger in ledgers.items()
        }
        self._recorded: dict[tuple[int, int], list[Event]] = {}
        if repeats:
            for node, ledger in ledgers.items():
                for event in ledger.found:
                    self._recorded.setdefault((node, event.step), []).append(event)

    @classmethod
    def create(
        cls, directory: Path | str, headers: Mapping[int, Mapping[str, Any]], *, sync: bool
    ) -> "LedgerBook":
        if (nodes := _as_one(headers)) is not None:
            path = columns_path(directory, nodes)
            return cls({}, together=[ColumnLedger.create(path, nodes, headers, sync=sync)])
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
        """The ledgers of these nodes, verified; `known`: as for `Ledger.resume`, from a checkpoint, by first node.

        With `repeats` (seeded noise) a step that is on file may happen again, exactly as it is there: the same noise
        gives the same value, so it is one release. Otherwise such a step is refused: its noise is gone with its key,
        and fresh noise would be a second release.
        """
        known, shared = known or {}, _shared_by(directory, headers)
        alone = sorted(set(headers).difference(*shared))
        paths = {node: node_path(directory, node) for node in alone}
        if not shared and not any(path.exists() for path in paths.values()) and _as_one(headers):
            shared, paths = [range(alone[0], alone[-1] + 1)], {}
        keep_open = _room_for(len(paths))
        ledgers: dict[int, Ledger] = {}
        together: list[ColumnLedger] = []
        try:
            for nodes in shared:
                path = columns_path(directory, nodes)
                if not unwritten(path):
                    at = known.get(nodes.start)
                    together.append(
                        ColumnLedger.resume(path, nodes, headers, sync=sync, known=at, repeats=repeats)
                    )
            for node, path in paths.items():
                if not unwritten(path):
                    ledgers[node] = Ledger.resume(
                        path,
                        sync=sync,
                        keep_open=keep_open,
                        header={"node": node, **headers[node]},
                        known=known.get(node),
                    )
            # All headers are written before the first event: one can be absent only if nothing happened yet.
            begun = bool(known) or any(
                [one.length for one in together] + [one.length for one in ledgers.values()]
            )
            for nodes in [nodes for nodes in shared if nodes not in [one.nodes for one in together]]:
                path = _never_written(columns_path(directory, nodes), begun)
                together.append(ColumnLedger.create(path, nodes, headers, sync=sync))
            for node in sorted(set(paths) - set(ledgers)):
                path = _never_written(paths[node], begun)
                header = {"node": node, **headers[node]}
                ledgers[node] = Ledger.create(path, header, sync=sync, keep_open=keep_open)
        except BaseException:
            cls(ledgers, together=together).close()
            raise
        together.sort(key=lambda one: one.nodes.start)
        return cls(dict(sorted(ledgers.items())), together=together, repeats=repeats)

    def write(self, releases: Sequence[Released]) -> None:
        """What nodes are about to release: every event with the nodes that it is of. On file when this returns."""
        for one in self._together:
            own = [(_within(nodes, one.nodes), event) for nodes, event in releases]
            one.write([(nodes, event) for nodes, event in own if len(nodes)])
        if not self._ledgers:
            return
        for nodes, event in releases:
            text = event.to_json()  # nodes that do the same write the same: it is put into words once
            for node in map(int, nodes):
                if node in self._ledgers:
                    self._append(node, event, text)

    def append(self, node: int, event: Event) -> None:
        """Of one node alone."""
        self.write([((node,), event)])

    def _append(self, node: int, event: Event, text: str) -> None:
        if event.step >= self._on_file[node]:
            self._ledgers[node].append(event, text)
        elif not self._recorded:
            raise LedgerError(
                f"step {event.step} of node {node} is on file: its noise was drawn and is spent"
            )
        elif not (left := self._recorded.get((node, event.step))):
            self._ledgers[node].append(event, text)  # the step had been stopped between two of its events
        elif left.pop(0) != event:
            raise LedgerError(f"step {event.step} of node {node} is on file as another release")

    @property
    def next_step(self) -> int:
        """The first step that no node hosted here had on file when the book was opened."""
        # What is released before the first draw has a step below 0.
        return max(0, *self._on_file.values(), *(one.next_step for one in self._together))

    def marks(self) -> dict[int, tuple[int, str]]:
        """First node of each ledger → its lines and the hash of the last: what seals and checkpoints keep."""
        own = {node: (ledger.length, ledger.head) for node, ledger in self._ledgers.items()}
        return own | {one.nodes.start: (one.length, one.head) for one in self._together}

    def heads(self) -> dict[int, str]:
        """node → hash of the last line of its ledger: what the certificate stores."""
        own = {node: ledger.head for node, ledger in self._ledgers.items()}
        return own | {node: one.head for one in self._together for node in one.nodes}

    def counts(self) -> dict[int, int]:
        """node → number of events."""
        own = {node: ledger.length for node, ledger in self._ledgers.items()}
        return own | {
            node: count
            for one in self._together
            for node, count in zip(one.nodes, one.counts.tolist(), strict=True)
        }

    def close(self) -> None:
        for shared in self._together:
            shared.close()
        for ledger in self._ledgers.values():
            ledger.close()

    def __enter__(self) -> "LedgerBook":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ledgers_for(nodes: Sequence[int]) -> list[range]:
    """The ledgers that a new run's process makes for the nodes that it hosts, by the nodes of each."""
    together = _as_one(nodes)
    return [range(node, node + 1) for node in nodes] if together is None else [together]


def ledger_path(directory: Path | str, nodes: range) -> Path:
    """Of the ledger that these nodes have together, or that one of them has alone."""
    return node_path(directory, nodes.start) if len(nodes) == 1 else columns_path(directory, nodes)


def read_groups(directory: Path | str, nodes: Iterable[int] | None = None) -> list[Alike]:
    """These nodes' headers and events (all nodes'), the chains verified; nodes that did the same may come together."""
    shared = columns_in(directory)
    alone = dict(_node_paths(directory))
    _refuse_two_of_a_node(directory, shared, alone)
    wanted = None if nodes is None else sorted(set(nodes))
    found = []
    for together, path in shared.items():
        own = together if wanted is None else [node for node in wanted if node in together]
        if own:
            groups = read_columns(path, together).groups()
            found += groups if len(own) == len(together) else _of_these(groups, set(own))
    listed = sorted(alone) if wanted is None else [i for i in wanted if not any(i in one for one in shared)]
    for node in listed:
        path = node_path(directory, node)
        header, events, head, _ = parse(path, content(path), lenient=False)
        found.append(Alike(path, (node,), header, events, head))
    if not found:
        raise LedgerError(f"{directory} holds no ledger; expected files named node-000.jsonl")
    return found


def read(path: Path | str) -> tuple[dict[str, Any], list[Event]]:
    """Header and events of one ledger, the chain verified."""
    header, events, _, _ = parse(Path(path), content(Path(path)), lenient=False)
    return header, events


def read_all(directory: Path | str) -> dict[int, tuple[dict[str, Any], list[Event]]]:
    """node → (header, events) for every node with a ledger in a directory; do not write to what nodes share."""
    found = {node: (one.header, one.events) for one in read_groups(directory) for node in one.nodes}
    return dict(sorted(found.items()))


def verify(path: Path | str, head: str | None = None, count: int | None = None) -> None:
    """Check the chain and, by the certified head hash and count, that no tail was cut off or added."""
    path = Path(path)
    _, events, found, _ = parse(path, content(path), lenient=False)
    compare_end(path, len(events), found, head=head, count=count)


def compare_end(
    path: Path, events: int, found: str, *, head: str | None = None, count: int | None = None
) -> None:
    """What a node's ledger holds beside what was certified of it."""
    if count is not None and events != count:
        raise LedgerError(f"{path} holds {events} events where {count} were certified")
    if head is not None and found != head:
        raise LedgerError(f"{path} ends in hash {found[:12]}… where {head[:12]}… was certified")


def path_of(directory: Path | str, node: int) -> Path:
    """The ledger that this node's events are in, or would be: its own, unless there is one with others."""
    return next(
        (path for nodes, path in columns_in(directory).items() if node in nodes), node_path(directory, node)
    )


def node_path(directory: Path | str, node: int) -> Path:
    return Path(directory) / f"node-{node:03d}.jsonl"


def _node_paths(directory: Path | str) -> Iterator[tuple[int, Path]]:
    def number(path: Path) -> int:
        return int(path.stem.removeprefix("node-"))

    paths = [p for p in Path(directory).glob("node-*.jsonl") if p.stem.removeprefix("node-").isdigit()]
    yield from ((number(path), path) for path in sorted(paths, key=number))


def _as_one(nodes: Iterable[int]) -> range | None:
    """The nodes, if they are to have one ledger together."""
    listed = list(nodes)
    together = range(listed[0], listed[0] + len(listed)) if listed else range(0)
    return together if len(listed) > MANY and listed == list(together) else None


def _shared_by(directory: Path | str, headers: Mapping[int, Any]) -> list[range]:
    """The ledgers of several nodes that are all hosted here. One of which only some are cannot have two writers."""
    found = []
    for nodes, path in columns_in(directory).items():
        here = [node for node in nodes if node in headers]
        if here and len(here) < len(nodes):
            raise LedgerError(
                f"{path} is the ledger of nodes {nodes.start} to {nodes.stop - 1} together, and a process is to host "
                "only some of them; go on with as many processes as before, or fewer (runtime.ranks, runtime.blocks)"
            )
        if here:
            found.append(nodes)
    _refuse_two_of_a_node(directory, found, dict(_node_paths(directory)))
    return found


def _refuse_two_of_a_node(directory: Path | str, shared: Iterable[range], alone: Iterable[int]) -> None:
    """A node that had two ledgers would have spent what either says."""
    listed = list(shared)
    for node in alone if listed else ():
        if any(node in nodes for nodes in listed):
            raise LedgerError(
                f"{node_path(directory, node)} is the ledger of a node that has another here, together with others; "
                "remove the one that the run did not make"
            )


def _never_written(path: Path, begun: bool) -> Path:
    if begun:
        raise LedgerError(f"{path} is missing or empty although the run had begun")
    path.unlink(missing_ok=True)
    return path


def _within(nodes: Sequence[int], hosted: range) -> Any:
    """Those of the nodes, counted from the first that the ledger is of."""
    own = np.asarray(nodes, dtype=np.int64) - hosted.start
    return own[(own >= 0) & (own < len(hosted))]


def _of_these(groups: Iterable[Alike], wanted: set[int]) -> list[Alike]:
    kept = [(one, [node for node in one.nodes if node in wanted]) for one in groups]
    return [Alike(one.path, nodes, one.header, one.events, one.head) for one, nodes in kept if nodes]


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
