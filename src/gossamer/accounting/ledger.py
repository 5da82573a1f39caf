"""The ledger: what the nodes of one process released, a line per draw.

    {"version": 1, "nodes": [0, 99999], "run": …, "delta": 1e-05, …, "by_node": {"values": […], "of": […]}}
    {"draw": 0, "kind": "gaussian", "sigma": 1.4, …, "prev": "…"}
    {"draw": 1, "kind": "gaussian", …, "columns": {"sigma": [1.4, 1.5]}, "of": [[0, 7, 0], [9, 9, 1]], "prev": "…"}

The first line is the header: the nodes, the public constants that are the same for all of them, and under `by_node`
those that differ. A later line is what nodes released together: the values that all these events share, under `columns`
one value per different event of the rest, and under `of` which nodes released which event. A node that is not named
released nothing. Without `of` they are the nodes of the line before; in the first line, all nodes.
An event of one node is its line with its own values in place of the columns. The key `step` is reserved for the public
step of releases in whole numbers.

The lines are chained (`chain.py`). A line is on file (with `sync`, on the disk) before the values it describes leave
the process, so a line that is there counts as spent whether or not a value was sent. If a crash tears the last line:
when what is left is the whole line without its newline it counts as spent; otherwise the write had not returned,
nothing was released, and `Ledger.resume` moves the fragment to a `.torn` file.

A run directory has one ledger per process: `ledger.jsonl`, and `ledger-005.jsonl` for a further process of the same
machine whose first node is 5. A ledger has one writer at a time: the run directory's lock (`results.rundir.RunLock`).
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.accounting import chain
from gossamer.accounting.chain import MOST_NODES, LedgerError, Runs, checked_runs, packed, runs_of, spread
from gossamer.accounting.releases import FIRST_DRAW, Event

VERSION = 1
_NAME = re.compile(r"ledger(?:-(\d{3,7}))?\.jsonl")
Headers = Mapping[int, Mapping[str, Any]]  # node → its public constants
Released = tuple[Sequence[int], Event]  # nodes, and what each of them releases


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of one ledger with the same header and the same events."""

    path: Path
    nodes: Sequence[int]
    header: dict[str, Any]
    events: list[Event]
    head: str  # the hash of the ledger's last line


@dataclass(frozen=True)
class Line:
    """The different events of one line, and the nodes of each."""

    events: tuple[Event, ...]
    of: Runs

    def parts(self, first: int) -> Iterable[tuple[Event, NDArray[np.int64]]]:
        """Every event with its nodes, counted from `first`."""
        for number, event in enumerate(self.events):
            runs = self.of[self.of[:, 2] == number]
            lengths = runs[:, 1] - runs[:, 0] + 1
            within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            yield event, np.repeat(runs[:, 0] - first, lengths) + within


@dataclass(frozen=True)
class LedgerContent:
    """A parsed ledger, its chain verified."""

    path: Path
    nodes: range
    header: dict[str, Any]
    lines: list[Line]
    head: str
    torn: bytes

    def groups(self) -> list[NodeGroup]:
        """Group the nodes by what they did; an event is looked at once for all nodes that share their past."""
        headers, slot = _headers_by_node(self.path, self.header, self.nodes)
        size = np.bincount(slot, minlength=len(headers)).tolist()
        past: list[list[Event]] = [[] for _ in headers]
        origin = list(range(len(headers)))
        for line in self.lines:
            if len(line.events) == 1 and int((line.of[:, 1] - line.of[:, 0] + 1).sum()) == len(self.nodes):
                for own in past:
                    own.append(line.events[0])
                continue
            for event, nodes in line.parts(self.nodes.start):
                where = slot[nodes]
                slots, counts = np.unique(where, return_counts=True)
                for s, count in zip(slots.tolist(), counts.tolist(), strict=True):
                    if count == size[s]:
                        past[s].append(event)
                        continue
                    slot[nodes[where == s]] = len(past)
                    size[s] -= count
                    size.append(count)
                    past.append([*past[s], event])
                    origin.append(origin[s])
        order = np.argsort(slot, kind="stable") + self.nodes.start
        return [
            NodeGroup(self.path, _as_range(own), headers[origin[s]], past[s], self.head)
            for s, own in enumerate(np.split(order, np.cumsum(size)[:-1]))
        ]


class Ledger:
    """The open ledger of a block of nodes. Make it with `create` or `resume`."""

    def __init__(self, written: LedgerContent, *, sync: bool, fd: int, repeats: bool = False):
        self.path, self.nodes, self.head = written.path, written.nodes, written.head
        self.length = len(written.lines)  # the header not counted
        self.counts = np.zeros(len(written.nodes), np.int64)  # events of every node
        # 1 + the largest draw that was on file when it was opened.
        self._on_file = np.full(len(written.nodes), FIRST_DRAW)
        self._recorded: dict[int, list[tuple[Event, NDArray[np.bool_]]]] = {}
        for line in written.lines:
            for event, own in line.parts(self.nodes.start):
                self.counts[own] += 1
                self._on_file[own] = np.maximum(self._on_file[own], 1 + event.draw)
                if repeats:
                    left = np.zeros(len(written.nodes), bool)
                    left[own] = True
                    self._recorded.setdefault(event.draw, []).append((event, left))
        # The nodes of the last line; unknown after a resume, where the next line names them again.
        self._everyone: list[list[int]] = [[self.nodes.start, self.nodes.stop - 1, 0]]
        self._of: list[list[int]] | None = None if written.lines else self._everyone
        self.next_draw = int(self._on_file.max())  # the first that no node had on file when it was opened
        self._sync = sync
        self._fd: int | None = fd

    @classmethod
    def create(cls, path: Path, nodes: range, headers: Headers, *, sync: bool) -> Ledger:
        """Start a new ledger; an existing file is never overwritten."""
        path.parent.mkdir(parents=True, exist_ok=True)
        header = header_of(nodes, headers)
        line = json.dumps(header, allow_nan=False).encode() + b"\n"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            raise LedgerError(f"{path} already exists; resume it or choose another directory") from None
        try:
            chain.write_line(fd, line, sync)
        except BaseException:
            os.close(fd)
            raise
        return cls(LedgerContent(path, nodes, header, [], chain.digest(line), b""), sync=sync, fd=fd)

    @classmethod
    def resume(
        cls,
        path: Path,
        nodes: range,
        headers: Headers,
        *,
        sync: bool,
        known: tuple[int, str] | None = None,
        repeats: bool = False,
    ) -> Ledger:
        """Verify a ledger and open it to append; see the module's text for a torn last line.

        `known` is the number of lines and the head hash that a checkpoint has: they must still be part of the chain,
        which shows a tail that was cut off since.
        """
        data = chain.content(path)
        written = parse_ledger(path, data, lenient=True)
        expected = json.loads(json.dumps(header_of(nodes, headers)))
        for key in {**written.header, **expected}:
            if written.header.get(key) != expected.get(key):
                raise LedgerError(f"{path} line 1 is of another configuration: its '{key}' differs; put it back")
        if known is not None and (
            len(written.lines) < known[0] or chain.digest(data.split(b"\n")[known[0]] + b"\n") != known[1]
        ):
            raise LedgerError(f"{path} no longer holds the {known[0]} lines that a checkpoint saw; put it back")
        fd = chain.open_to_extend(path, data, written.torn, sync)
        return cls(written, sync=sync, fd=fd, repeats=repeats)

    def write(self, releases: Sequence[Released]) -> None:
        """Write what the block's nodes release at once: one line, on file when this returns."""
        due = [(own, event) for nodes, event in releases if len(own := self._not_on_file(nodes, event))]
        if not due:
            return
        # A node that releases twice at once has two lines.
        twice = len(due) > 1 and int(np.bincount(np.concatenate([own for own, _ in due])).max()) > 1
        for together in [[one] for one in due] if twice else [due]:
            self._append(together)

    def _not_on_file(self, named: Sequence[int], event: Event) -> NDArray[np.int64]:
        """The block's nodes, from 0 on, for which this is new; one on file is refused, or with `repeats` the same."""
        nodes = np.asarray(named, dtype=np.int64) - self.nodes.start
        nodes = nodes[(nodes >= 0) & (nodes < len(self.nodes))]
        if event.draw >= self.next_draw or not len(old := nodes[self._on_file[nodes] > event.draw]):
            return nodes
        if not self._recorded:
            node = int(old[0]) + self.nodes.start
            raise LedgerError(f"draw {event.draw} of node {node} is on file: its noise is spent")
        for recorded, left in self._recorded.get(event.draw, []):
            again = old[left[old]]
            if len(again) and recorded != event:
                node = int(again[0]) + self.nodes.start
                raise LedgerError(f"draw {event.draw} of node {node} is on file as another release")
            left[again] = False
            old = np.setdiff1d(old, again, assume_unique=True)
        # The old nodes that remain were stopped between two events of this draw.
        return np.sort(np.concatenate([nodes[self._on_file[nodes] <= event.draw], old]))

    def _append(self, due: Sequence[tuple[NDArray[np.int64], Event]]) -> None:
        if self._fd is None:
            raise ValueError("the ledger is closed")
        numbers: dict[Event, int] = {}
        of_due = [numbers.setdefault(event, len(numbers)) for _, event in due]
        if len(numbers) == 1 and sum(len(own) for own, _ in due) == len(self.nodes):
            runs = self._everyone
        else:
            which = np.full(len(self.nodes), -1)
            for (own, _), number in zip(due, of_due, strict=True):
                which[own] = number
            runs = runs_of(which, self.nodes.start).tolist()
        text = _entry(list(numbers))
        if runs != self._of:
            text = f'{text[:-1]},"of":{json.dumps(runs, separators=(",", ":"))}}}'
        line = chain.chained(text, self.head)
        self._of = None  # until it is on file
        chain.write_line(self._fd, line, self._sync)
        self._of, self.head, self.length = runs, chain.digest(line), self.length + 1
        for own, _ in due:
            self.counts[own] += 1

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class LedgerBook:
    """The ledgers of all nodes hosted here: one, or several where a run resumes with fewer processes."""

    def __init__(self, ledgers: Sequence[Ledger]):
        self._ledgers = sorted(ledgers, key=lambda one: one.nodes.start)

    @classmethod
    def create(cls, path: Path, headers: Headers, *, sync: bool) -> LedgerBook:
        """Start the ledger of these nodes, which follow each other."""
        first = min(headers)
        return cls([Ledger.create(path, range(first, first + len(headers)), headers, sync=sync)])

    @classmethod
    def resume(
        cls,
        paths: Mapping[range, Path],
        headers: Headers,
        *,
        sync: bool,
        known: Mapping[int, tuple[int, str]] | None = None,
        repeats: bool = False,
    ) -> LedgerBook:
        """Open those of the run's ledgers whose nodes are hosted here, verified.

        `known`: first node of a ledger → as for `Ledger.resume`. With `repeats` (seeded noise) a draw that is on file
        may happen again, exactly as it is there: the same noise gives the same value, so it is one release. Otherwise
        such a draw is refused: its noise is gone with its key, and fresh noise would be a second release.
        """
        known = known or {}
        own = {nodes: path for nodes, path in paths.items() if any(node in headers for node in nodes)}
        for nodes, path in own.items():
            if not all(node in headers for node in nodes):
                raise LedgerError(
                    f"{path} is the ledger of nodes {nodes.start} to {nodes.stop - 1}, and a process is to host only "
                    "some of them; resume with as many processes as before, or fewer (runtime.ranks, runtime.blocks)"
                )
        if missing := set(headers).difference(*own):
            raise LedgerError(f"no ledger here is of node {min(missing)}; resume where the run began")
        ledgers: list[Ledger] = []
        try:
            # Not there, or stopped within its first line, so before any event.
            absent = {n: path for n, path in own.items() if not path.exists() or b"\n" not in chain.content(path)}
            for nodes, path in own.items():
                if nodes not in absent:
                    at = known.get(nodes.start)
                    ledgers.append(Ledger.resume(path, nodes, headers, sync=sync, known=at, repeats=repeats))
            # All headers are written before the first event: one can be absent only if nothing happened yet.
            begun = bool(known) or any(one.length for one in ledgers)
            for nodes, path in absent.items():
                if begun:
                    raise LedgerError(f"{path} is missing or empty although the run had begun; put it back")
                path.unlink(missing_ok=True)
                ledgers.append(Ledger.create(path, nodes, headers, sync=sync))
        except BaseException:
            cls(ledgers).close()
            raise
        return cls(ledgers)

    def write(self, releases: Sequence[Released]) -> None:
        """Write what nodes are about to release: every event with its nodes. On file when this returns."""
        for one in self._ledgers:
            one.write(releases)

    @property
    def next_draw(self) -> int:
        """The first draw that no node hosted here had on file when the book was opened."""
        # What is released before the first draw has a number below 0.
        return max(0, *(one.next_draw for one in self._ledgers))

    def marks(self) -> dict[int, tuple[int, str]]:
        """First node of each ledger → its lines and the hash of the last: what checkpoints keep."""
        return {one.nodes.start: (one.length, one.head) for one in self._ledgers}

    def heads(self) -> dict[int, str]:
        """node → hash of the last line of its ledger: what the certificate stores."""
        return {node: one.head for one in self._ledgers for node in one.nodes}

    def counts(self) -> dict[int, int]:
        """node → number of events."""
        counts = ((one.nodes, one.counts.tolist()) for one in self._ledgers)
        return {node: count for nodes, own in counts for node, count in zip(nodes, own, strict=True)}

    def close(self) -> None:
        for one in self._ledgers:
            one.close()

    def __enter__(self) -> LedgerBook:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ledger_paths(run: Path, blocks: Sequence[range]) -> dict[range, Path]:
    """Name the ledgers of the processes that share a run directory, by the nodes of each."""
    ordered = sorted(blocks, key=lambda nodes: nodes.start)
    return {
        nodes: run / (f"ledger-{nodes.start:03d}.jsonl" if place else "ledger.jsonl")
        for place, nodes in enumerate(ordered)
    }


def ledgers_in(run: Path) -> dict[range, Path]:
    """Find the ledgers of a run directory, by the nodes that their first lines name, in the order of the nodes."""
    blocks: dict[range, Path] = {}
    for path in sorted(run.glob("ledger*.jsonl")):
        if name := _NAME.fullmatch(path.name):
            nodes = _nodes_of(path)
            if (name[1] is not None and int(name[1]) != nodes.start) or nodes in blocks:
                raise LedgerError(f"{path} line 1 names other nodes than the file's name; rename it")
            blocks[nodes] = path
    ordered = sorted(blocks, key=lambda nodes: nodes.start)
    for before, after in itertools.pairwise(ordered):
        if after.start < before.stop:  # such a node would have spent what either says
            raise LedgerError(
                f"{blocks[after]} and {blocks[before]} are ledgers of the same nodes; remove the one that the run did "
                "not make"
            )
    return {nodes: blocks[nodes] for nodes in ordered}


def read_groups(run: Path, nodes: Iterable[int] | None = None) -> list[NodeGroup]:
    """Read the headers and events of these nodes (of all), chains verified; nodes that did the same come together."""
    wanted = None if nodes is None else set(nodes)
    groups: list[NodeGroup] = []
    for block, path in ledgers_in(run).items():
        if wanted is None or wanted.issuperset(block):
            groups += read_ledger(path).groups()
        elif not wanted.isdisjoint(block):
            of_block = [(one, [i for i in one.nodes if i in wanted]) for one in read_ledger(path).groups()]
            groups += [NodeGroup(g.path, own, g.header, g.events, g.head) for g, own in of_block if own]
    missing = () if wanted is None else wanted.difference(*(one.nodes for one in groups))
    if missing or not groups:
        of_node = f" of node {min(missing)}" if missing else ""
        raise LedgerError(f"{run} holds no ledger{of_node}; expected a file named ledger.jsonl")
    return groups


def read_all(run: Path) -> dict[int, tuple[dict[str, Any], list[Event]]]:
    """Map every node with a ledger in a run directory to (header, events); nodes that did the same share the list."""
    by_node = {node: (one.header, one.events) for one in read_groups(run) for node in one.nodes}
    return dict(sorted(by_node.items()))


def read_ledger(path: Path, *, lenient: bool = False) -> LedgerContent:
    """Read one ledger and verify its chain; `lenient` accepts a torn last line."""
    return parse_ledger(path, chain.content(path), lenient=lenient)


def parse_ledger(path: Path, data: bytes, *, lenient: bool) -> LedgerContent:
    """Parse the bytes of a ledger."""
    lines = _LineReader()
    header, entries, head, torn = chain.parse_chain(
        path, data, lenient=lenient, what="ledger", version=VERSION, read=lines.read, begin=lines.begin
    )
    return LedgerContent(path, lines.nodes, header, entries, head, torn)


def header_of(nodes: range, headers: Headers) -> dict[str, Any]:
    """Build the first line: what all nodes' headers share, and under `by_node` what differs."""
    by_node = packed([headers[node] for node in nodes], json.dumps, nodes.start)
    common, differing = _common_part(by_node["values"])
    header = {"version": VERSION, "nodes": [nodes.start, nodes.stop - 1], **common}
    return header if len(differing) == 1 else {**header, "by_node": {**by_node, "values": differing}}


def _common_part(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(what all rows share, the rest of each)."""
    first, *others = rows
    common = {k: v for k, v in first.items() if all(k in row and row[k] == v for row in others)}
    return common, [{key: value for key, value in row.items() if key not in common} for row in rows]


def _headers_by_node(
    path: Path, header: Mapping[str, Any], nodes: range
) -> tuple[list[dict[str, Any]], NDArray[np.int64]]:
    """(the different headers, which of them each node has)."""
    common = {key: value for key, value in header.items() if key != "by_node"}
    if "by_node" not in header:
        return [common], np.zeros(len(nodes), np.int64)
    try:
        values = header["by_node"]["values"]
        if any(own.keys() & common.keys() for own in values):
            raise ValueError("it repeats what is the same for all")
        numbers = spread({**header["by_node"], "values": list(range(len(values)))}, nodes)
        return [{**common, **own} for own in values], np.array(numbers, dtype=np.int64)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(f"{path} line 1 is damaged: its 'by_node' is wrong ({error}); put it back") from None


def _entry(events: Sequence[Event]) -> str:
    """A line without its nodes: what the events share, and columns of the rest; null where an event lacks a key."""
    if len(events) == 1:
        return events[0].to_json()
    common, rows = _common_part([json.loads(event.to_json()) for event in events])
    keys = dict.fromkeys(key for row in rows for key in row)
    entry = {**common, "columns": {key: [row.get(key) for row in rows] for key in keys}}
    return json.dumps(entry, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


class _LineReader:
    """Reads the lines in their order: one without `of` is about the nodes of the line before."""

    nodes = range(0)

    def begin(self, header: dict[str, Any]) -> None:
        self.nodes = _block(header)
        self._before = 1, np.array([[self.nodes.start, self.nodes.stop - 1, 0]], np.int64)

    def read(self, payload: bytes) -> Line:
        entry = json.loads(payload + b"}", object_pairs_hook=chain.no_name_twice)
        columns, of = entry.pop("columns", {}), entry.pop("of", None)
        if entry.keys() & columns.keys() or len({len(column) for column in columns.values()}) > 1:
            raise ValueError("its columns do not belong together")
        if any(type(column) is not list for column in columns.values()):
            raise ValueError("its columns are not lists")
        rows = zip(*columns.values(), strict=True) if columns else [()]
        own = [{key: value for key, value in zip(columns, row, strict=True) if value is not None} for row in rows]
        events = tuple(Event.from_json({**entry, **values}) for values in own)
        if of is not None:
            self._before = len(events), checked_runs(of, len(events), self.nodes)
        elif self._before[0] != len(events):
            raise ValueError("it does not say of which nodes it is")
        return Line(events, self._before[1])


def _block(header: Mapping[str, Any]) -> range:
    """The nodes that a first line names; a ValueError where it names none."""
    ends = header.get("nodes")
    if type(ends) is not list or len(ends) != 2 or any(type(end) is not int for end in ends):
        raise ValueError("its 'nodes' is not [first, last]")
    if not 0 <= ends[0] <= ends[1] < MOST_NODES:
        raise ValueError("its 'nodes' are no nodes of a run")
    return range(ends[0], ends[1] + 1)


def _nodes_of(path: Path) -> range:
    """The nodes of a ledger, from its first line alone."""
    try:
        with chain.open_to_read(path) as file:
            line = file.readline()
        if not line.endswith(b"\n"):
            raise ValueError("the run stopped while writing it; resume the run")
        return _block(json.loads(line))
    except LedgerError:
        raise
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, AttributeError, RecursionError) as error:
        raise LedgerError(f"{path} line 1 is not the header of a ledger ({error}); put it back") from None


def _as_range(nodes: NDArray[np.int64]) -> Sequence[int]:
    """In order; a range where there is no gap."""
    first, last = int(nodes[0]), int(nodes[-1])
    return range(first, last + 1) if last - first + 1 == len(nodes) else nodes.tolist()
