"""When a release happened, how it is written into a ledger, and how releases are counted."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from typing import Any

from gossamer.accounting.releases.base import KINDS, Release, not_one_of
from gossamer.errors import UserError

_FIRST = ("sigma", "sensitivity", "sampling", "rate", "adjacency")  # on a line of the ledger
_LAST = {"pass_number": "pass", "lot_number": "lot", "clipped": "clipped"}  # and their keys


def _number(value: Any) -> float:
    """JSON has no infinity: that one is text, and no other number is."""
    if isinstance(value, str) and value not in ("inf", "-inf"):
        raise ValueError(f"{value!r} is text where a number stands")
    return float(value)


_READ: dict[object, Callable[[Any], Any]] = {
    float: _number, int: int, str: str, int | None: int, str | None: str,
}  # fmt: skip


FIRST_DRAW = -1000  # releases before the first draw (preprocessing) have numbers from here to −1


@dataclass(frozen=True, slots=True)
class Event:
    """One release of one node, in its draw 0, 1, 2, …; numbers below 0 are preprocessing."""

    draw: int
    release: Release

    def to_json(self) -> str:
        """One line of strict JSON; floats are written so that they read back exactly."""
        values = ((key, getattr(self.release, name)) for name, key, _ in _columns(self.release.kind))
        written = "".join(f',"{key}":{_text(value)}' for key, value in values if value is not None)
        return f'{{"draw":{self.draw},"kind":"{self.release.kind}"{written}}}'

    @classmethod
    def from_json(cls, line: str | Mapping[str, Any]) -> "Event":
        """Read what `to_json` wrote; a key that no such event has is refused: nobody could price what it says."""
        data = json.loads(line) if isinstance(line, str) else line
        kind = data["kind"]
        columns = _columns(kind)
        if unknown := data.keys() - {"draw", "kind", *(key for _, key, _ in columns)}:
            raise ValueError(f"an event of kind {kind!r} has no {min(unknown)!r}")
        values = {name: read(data[key]) for name, key, read in columns if key in data}
        return cls(int(data["draw"]), _make(kind, values))


def release(
    kind: str,
    *,
    sigma: float = 0.0,
    sensitivity: float,
    sampling: str,
    rate: float,
    adjacency: str,
    pass_number: int | None = None,
    lot_number: int | None = None,
    **constants: float,
) -> Release:
    """A release by the name of its kind; `sigma` is left out of kinds that have no noise."""
    readers = {name: read for name, _, read in _columns(kind)}
    for name, value in constants.items():
        if name not in readers:
            raise UserError(f"event {name} = {value!r} is no constant of a release of kind '{kind}'")
    common = {
        "sensitivity": sensitivity,
        "sampling": sampling,
        "rate": rate,
        "adjacency": adjacency,
        "pass_number": pass_number,
        "lot_number": lot_number,
    }
    own = {"sigma": sigma, **constants} if "sigma" in readers else constants
    return _make(kind, {**common, **{name: readers[name](value) for name, value in own.items()}})


def constants_of(kind: str) -> tuple[str, ...]:
    """The names of what a kind has beyond σ and what all releases have: bound, shape, dimensions."""
    common = (*_FIRST, *_LAST)
    return tuple(name for name, _, _ in _columns(kind) if name not in common)


def collate(items: Iterable[Event | Release]) -> list[tuple[Release, int]]:
    """Equal releases counted, in order of first appearance."""
    counts: dict[Release, int] = {}
    for item in items:
        one = item.release if isinstance(item, Event) else item
        counts[one] = counts.get(one, 0) + 1
    return list(counts.items())


def of_several_runs(runs: Iterable[Sequence[Event]]) -> list[Event]:
    """The events of runs on the same records: a pass of one run is no pass of another, so they are numbered apart."""
    together: list[Event] = []
    first = 0
    for events in runs:
        for event in events:
            one = event.release
            apart = one.pass_number
            if one.sampling == "one-pass" or (one.in_passes and apart is not None):
                apart = first + (apart or 0)
            together.append(replace(event, release=replace(one, pass_number=apart)))
        first += 1 + max((event.release.pass_number or 0 for event in events), default=0)
    return together


def on_several_nodes(events: Sequence[Event], nodes: int) -> list[Event]:
    """The events of so many nodes that do the same with copies of one record, draw by draw.

    Each node draws its lots for itself: a pass of one is no pass of another.
    """
    together: list[Event] = []
    for event in events:
        one = event.release
        for copy in range(nodes):
            apart = one.pass_number
            if one.sampling == "one-pass" or (one.in_passes and apart is not None):
                apart = nodes * (apart or 0) + copy
            together.append(replace(event, release=replace(one, pass_number=apart)))
    return together


def _make(kind: str, values: Mapping[str, Any]) -> Release:
    for name in _required(kind):
        if name not in values:
            raise UserError(f"event of kind '{kind}' lacks the constant '{name}'")
    return KINDS[kind](**values)


@cache
def _required(kind: str) -> tuple[str, ...]:
    return tuple(field.name for field in fields(KINDS[kind]) if field.default is MISSING)


@cache
def _columns(kind: str) -> list[tuple[str, str, Callable[[Any], Any]]]:
    """(field, its key in the ledger, how it is read) in the order of a line."""
    if kind not in KINDS:
        raise UserError(not_one_of("kind", kind, KINDS))
    types = {field.name: _READ[field.type] for field in fields(KINDS[kind])}
    middle = [name for name in types if name not in (*_FIRST, *_LAST)]
    order = [name for name in (*_FIRST, *middle, *_LAST) if name in types]
    return [(name, _LAST.get(name, name), types[name]) for name in order]


def _text(value: float | int | str) -> str:
    # JSON has no infinity; a string keeps the line strict, and float("inf") reads it back.
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else f'"{float(value)!r}"'
    return json.dumps(value)
