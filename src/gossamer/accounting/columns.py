"""One ledger for many nodes: a line per draw, with columns over the nodes; the lines are chained as in `chain`.

    {"version": 4, "nodes": [0, 99999], "run": …, "delta": 1e-05, …, "each": {"values": […], "of": […]}}
    {"alike": {"step": 0, "kind": "gaussian", "sigma": 1.4, …}, "of": [[0, 99999, 0]], "prev": "…"}
    {"alike": {"step": 1, …}, "each": {"sigma": [1.4, 1.5]}, "of": [[0, 7, 0], [9, 9, 1]], "prev": "…"}

The first line is what the nodes' own headers would say: what is the same for all, and under `each` the rest. A later
line is what nodes released together, in one write: `alike` is what all these events have in common, `each` has the
values in which they differ, one per different event, `of` the nodes by runs (`alike.py`); a node that is not named
released nothing. Without `of` they are the nodes of the line before. So an event of a node is in its ledger as it would
be in one of its own, and everything that prices, compares or refuses reads either (`ledger.py`).

What is promised is what `ledger.py` promises, and by the same code: the chain, the torn last line, the head.
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

from gossamer.accounting.alike import MOST_NODES, Runs, checked_runs, packed, runs_of, spread
from gossamer.accounting.chain import (
    LedgerError,
    check_header,
    content,
    digest,
    no_name_twice,
    open_to_append,
    parse_chain,
    write_line,
)
from gossamer.accounting.releases import FIRST_STEP, Event

VERSION = 4
_NAME = re.compile(r"nodes-(\d{3,7})-(\d{3,7})\.jsonl")
Released = tuple[Sequence[int], Event]  # nodes, and what each of them releases


@dataclass(frozen=True)
class Line:
    """Events, and the nodes of each."""

    events: tuple[Event, ...]
    of: Runs

    @property
    def nodes(self) -> int:
        """How many it is about."""
        return int((self.of[:, 1] - self.of[:, 0] + 1).sum())

    def parts(self, first: int) -> Iterable[tuple[Event, NDArray[np.int64]]]:
        """Every event with its nodes, counted from `first`."""
        for number, event in enumerate(self.events):
            runs = self.of[self.of[:, 2] == number]
            lengths = runs[:, 1] - runs[:, 0] + 1
            within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            yield event, np.repeat(runs[:, 0] - first, lengths) + within


@dataclass(frozen=True)
class Alike:
    """Nodes with the same header and the same events, of one ledger."""

    path: Path
    nodes: Sequence[int]
    header: dict[str, Any]
    events: list[Event]
    head: str  # the hash of the ledger's last line


@dataclass(frozen=True)
class Columns:
    """What such a file says, its chain verified."""

    path: Path
    nodes: range
    header: dict[str, Any]
    lines: list[Line]
    head: str
    torn: bytes

    def groups(self) -> list[Alike]:
        """The nodes, by what they did: every event is looked at once for all nodes that share their past."""
        headers, start = _headers(self.path, self.header, self.nodes)
        slot = start.copy()
        size = np.bincount(slot, minlength=len(headers)).tolist()
        past: list[list[Event]] = [[] for _ in headers]
        origin = list(range(len(headers)))
        for line in self.lines:
            if len(line.events) == 1 and line.nodes == len(self.nodes):
                for own in past:
                    own.append(line.events[0])
                continue
            for event, nodes in line.parts(self.nodes.start):
                where = slot[nodes]
                found, counts = np.unique(where, return_counts=True)
                for s, count in zip(found.tolist(), counts.tolist(), strict=True):
                    if count == size[s]:
                        past[s].append(event)
                        continue
                    slot[nodes[where == s]] = len(past)
                    size[s] -= count
                    size.append(count)
                    past.append([*past[s], event])
                    origin.append(origin[s])
        order = np.argsort(slot, kind="stable") + self.nodes.start
        apart = np.split(order, np.cumsum(size)[:-1])
        return [
            Alike(self.path, _shortest(own), headers[origin[s]], past[s], self.head)
            for s, own in enumerate(apart)
        ]


def _shortest(nodes: NDArray[np.int64]) -> Sequence[int]:
    """In order; a range where there is no gap."""
    first, last = int(nodes[0]), int(nodes[-1])
    return range(first, last + 1) if last - first + 1 == len(nodes) else nodes.tolist()


def columns_path(directory: Path | str, nodes: range) -> Path:
    return Path(directory) / f"nodes-{nodes.start:03d}-{nodes.stop - 1:03d}.jsonl"


def columns_in(directory: Path | str) -> dict[range, Path]:
    """The nodes of every such ledger of a directory, in their order."""
    found = {}
    for path in Path(directory).glob("nodes-*.jsonl"):
        if said := _NAME.fullmatch(path.name):
            nodes = range(int(said[1]), int(said[2]) + 1)
            if len(nodes) < 2 or nodes.stop > MOST_NODES or path != columns_path(directory, nodes):
                raise LedgerError(f"{path} is named as no ledger of several nodes is")
            found[nodes] = path
    ranges = sorted(found, key=lambda nodes: nodes.start)
    for before, after in itertools.pairwise(ranges):
        if after.start < before.stop:
            raise LedgerError(f"{found[after]} and {found[before]} are ledgers of the same nodes; remove one")
    return {nodes: found[nodes] for nodes in ranges}


def read_columns(path: Path, nodes: range, *, lenient: bool = False) -> Columns:
    return _parsed(path, nodes, content(path), lenient=lenient)


def parse_columns(path: Path, data: bytes, *, lenient: bool) -> Columns:
    """Of bytes that were read elsewhere; the nodes are those of the file's name."""
    said = _NAME.fullmatch(path.name)
    if said is None:
        raise LedgerError(f"{path} is named as no ledger of several nodes is")
    return _parsed(path, range(int(said[1]), int(said[2]) + 1), data, lenient=lenient)


class ColumnLedger:
    """The open ledger of many nodes. Make it with `create` or `resume`."""

    def __init__(self, found: Columns, *, sync: bool, fd: int, repeats: bool = False):
        self.path, self.nodes, self.head, self.torn = found.path, found.nodes, found.head, found.torn
        self.length = len(found.lines)  # lines, the header not counted
        self.counts = np.zeros(len(found.nodes), np.int64)  # events of every node
        # 1 + the largest step that was there when it was opened.
        self._on_file = np.full(len(found.nodes), FIRST_STEP)
        self._recorded: dict[int, list[tuple[Event, NDArray[np.bool_]]]] = {}
        for line in found.lines:
            for event, own in line.parts(self.nodes.start):
                self.counts[own] += 1
                self._on_file[own] = np.maximum(self._on_file[own], 1 + event.step)
                if repeats:
                    left = np.zeros(len(found.nodes), bool)
                    left[own] = True
                    self._recorded.setdefault(event.step, []).append((event, left))
        self._of: list[list[int]] | None = None  # the nodes of the last line that was written here
        self._sync = sync
        self._fd: int | None = fd

    @classmethod
    def create(
        cls, path: Path, nodes: range, headers: Mapping[int, Mapping[str, Any]], *, sync: bool
    ) -> ColumnLedger:
        """Start a new ledger; an existing file is never overwritten."""
        path.parent.mkdir(parents=True, exist_ok=True)
        header = header_of(nodes, headers)
        line = json.dumps(header, allow_nan=False).encode() + b"\n"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            raise LedgerError(f"{path} already exists; resume it or choose another directory") from None
        try:
            write_line(fd, line, sync)
        except BaseException:
            os.close(fd)
            raise
        return cls(Columns(path, nodes, header, [], digest(line), b""), sync=sync, fd=fd)

    @classmethod
    def resume(
        cls,
        path: Path,
        nodes: range,
        headers: Mapping[int, Mapping[str, Any]],
        *,
        sync: bool,
        known: tuple[int, str] | None = None,
        repeats: bool = False,
    ) -> ColumnLedger:
        """Verify what is there and go on behind it; `known`: lines and head hash of an earlier time."""
        fd = open_to_append(path)
        try:
            data = content(path)
            found = _parsed(path, nodes, data, lenient=True)
            check_header(path, found.header, header_of(nodes, headers))
            if known is not None and (
                len(found.lines) < known[0] or digest(data.split(b"\n")[known[0]] + b"\n") != known[1]
            ):
                raise LedgerError(f"{path} no longer holds the {known[0]} lines that a checkpoint saw there")
            if found.torn:
                path.with_suffix(path.suffix + ".torn").write_bytes(found.torn)
                os.truncate(path, len(data) - len(found.torn))
            elif not data.endswith(b"\n"):
                write_line(fd, b"\n", sync)
        except BaseException:
            os.close(fd)
            raise
        return cls(found, sync=sync, fd=fd, repeats=repeats)

    @property
    def next_step(self) -> int:
        """The first step that no node had on file when it was opened."""
        return int(self._on_file.max())

    def write(self, releases: Sequence[tuple[NDArray[np.int64], Event]]) -> None:
        """What nodes (counted from the first) release at once: one line, on file when this returns."""
        due = [(own, event) for nodes, event in releases if len(own := self._new(nodes, event))]
        if not due:
            return
        which = np.full(len(self.nodes), -1)
        for number, (own, _) in enumerate(due):
            which[own] = number
        if int((which >= 0).sum()) != sum(len(own) for own, _ in due):
            for one in due:  # a node that releases twice at once has two lines
                self._append([one], runs_of_nodes(one[0], len(self.nodes), self.nodes.start))
            return
        self._append(due, runs_of(which, self.nodes.start))

    def _new(self, nodes: NDArray[np.int64], event: Event) -> NDArray[np.int64]:
        """Those for whom this is not on file yet; a step that is on file is refused, or found again with `repeats`."""
        old = nodes[self._on_file[nodes] > event.step]
        if not len(old):
            return nodes
        if not self._recorded:
            node = int(old[0]) + self.nodes.start
            raise LedgerError(
                f"step {event.step} of node {node} is on file: its noise was drawn and is spent"
            )
        for recorded, left in self._recorded.get(event.step, []):
            again = old[left[old]]
            if len(again) and recorded != event:
                node = int(again[0]) + self.nodes.start
                raise LedgerError(f"step {event.step} of node {node} is on file as another release")
            left[again] = False
            old = np.setdiff1d(old, again, assume_unique=True)
        # What is left of the old ones: their step had been stopped between two of its events.
        return np.sort(np.concatenate([nodes[self._on_file[nodes] <= event.step], old]))

    def _append(self, due: Sequence[tuple[NDArray[np.int64], Event]], of: Runs) -> None:
        if self._fd is None:
            raise ValueError("the ledger is closed")
        entry, said = _columns([event for _, event in due]), of.tolist()
        if said != self._of:
            entry["of"] = said
        text = json.dumps(entry, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        line = f'{text[:-1]},"prev":"{self.head}"}}\n'.encode()
        self._of = None  # until it is on file
        write_line(self._fd, line, self._sync)
        self._of, self.head, self.length = said, digest(line), self.length + 1
        for own, _ in due:
            self.counts[own] += 1

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def header_of(nodes: range, headers: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """The first line: what all nodes' headers say, and under `each` in what they differ."""
    said = packed([headers[node] for node in nodes], lambda header: json.dumps(header, allow_nan=False))
    different = said["values"]
    common = {
        key: value
        for key, value in different[0].items()
        if all(key in other and other[key] == value for other in different)
    }
    first, last = nodes.start, nodes.stop - 1
    header: dict[str, Any] = {"version": VERSION, "nodes": [first, last], **common}
    if len(different) > 1:
        values = [{k: v for k, v in one.items() if k not in common} for one in different]
        of = [[a + first, b + first, which] for a, b, which in said["of"]]
        header["each"] = {"values": values, "of": of}
    return header


def _headers(
    path: Path, header: Mapping[str, Any], nodes: range
) -> tuple[list[dict[str, Any]], NDArray[np.int64]]:
    """(the different headers, which of them each node has)."""
    common = {key: value for key, value in header.items() if key != "each"}
    if "each" not in header:
        return [common], np.zeros(len(nodes), np.int64)
    try:
        if any(own.keys() & common.keys() for own in header["each"]["values"]):
            raise ValueError("it says again what is the same for all")
        numbers = spread({**header["each"], "values": list(range(len(header["each"]["values"])))}, nodes)
        return [{**common, **own} for own in header["each"]["values"]], np.array(numbers, dtype=np.int64)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(
            f"{path} line 1 is damaged: its 'each' is not what a ledger has ({error})"
        ) from None


def runs_of_nodes(nodes: NDArray[np.int64], count: int, first: int) -> Runs:
    which = np.full(count, -1)
    which[nodes] = 0
    return runs_of(which, first)


def _columns(events: Sequence[Event]) -> dict[str, Any]:
    """What the events have in common, and columns of the rest; null where an event does not have it."""
    said = [json.loads(event.to_json()) for event in events]
    keys = list(dict.fromkeys(key for one in said for key in one))
    columns = {key: [one.get(key) for one in said] for key in keys}
    alike = {key: column[0] for key, column in columns.items() if all(value == column[0] for value in column)}
    each = {key: column for key, column in columns.items() if key not in alike}
    return {"alike": alike, **({"each": each} if each else {})}


class _Lines:
    """Reads the lines as they come: one without `of` is about the nodes of the line before."""

    def __init__(self, nodes: range):
        self._nodes, self._before = nodes, (-1, np.empty((0, 3), np.int64))

    def __call__(self, payload: bytes) -> Line:
        data = json.loads(payload + b"}", object_pairs_hook=no_name_twice)
        if not isinstance(data, dict) or data.keys() - {"alike", "each", "of"}:
            raise ValueError("it is not what nodes released together")
        alike, each = data["alike"], data.get("each", {})
        if alike.keys() & each.keys() or (each and len({len(column) for column in each.values()}) != 1):
            raise ValueError("its columns do not belong together")
        if any(type(column) is not list for column in each.values()):
            raise ValueError("its columns are not lists")
        rows = (
            [dict(zip(each, row, strict=True)) for row in zip(*each.values(), strict=True)] if each else [{}]
        )
        events = tuple(
            Event.from_json({**alike, **{key: value for key, value in row.items() if value is not None}})
            for row in rows
        )
        if "of" in data:
            self._before = len(events), checked_runs(data["of"], len(events), self._nodes)
        elif self._before[0] != len(events):
            raise ValueError("it does not say of which nodes it is")
        return Line(events, self._before[1])


def _parsed(path: Path, nodes: range, data: bytes, *, lenient: bool) -> Columns:
    header, lines, head, torn = parse_chain(
        path, data, lenient=lenient, what="ledger", readable=(VERSION,), read=_Lines(nodes)
    )
    if header.get("nodes") != [nodes.start, nodes.stop - 1]:
        raise LedgerError(f"{path} line 1 is of other nodes than its name says")
    return Columns(path, nodes, header, lines, head, torn)
