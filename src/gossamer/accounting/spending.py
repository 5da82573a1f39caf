"""What a run releases about records, and what all runs on the same records cost together.

A run on the user's own records is one `Spending` per file of theirs. Its nodes' releases are kept as `History`s: nodes
that release alike share one. All are composed numerically, never added up, at the smallest δ and the against_all
adjacency that any of the runs asked for: so no later run makes an earlier one look cheaper. Of runs that protect
records and others that protect persons, the total is of a record: see `units.in_common`.

Which of several histories is a record's? A record of a file that is dealt out at random may sit on any node, on another
one in every run: the total is the largest over all choices. Where an owner column says who holds it, and the file is
still the same, it stays with its node: the total is the largest over nodes.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from gossamer.accounting.observers import EVERYONE, UNIT, against_all
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Event, Release, remember_listed
from gossamer.accounting.units import in_common

Counted = tuple[Release, int]
Releases = tuple[Counted, ...]
Way = dict[Releases, int]  # which histories a record saw, and how often
MOST_WAYS = 24  # compositions of one total: each takes up to a second or so
STRICT, ONE_PASS = "replace-one", "one-pass"


@dataclass(frozen=True)
class History:
    """What nodes release that release alike."""

    nodes: tuple[int, ...]
    releases: Releases

    def to_json(self) -> dict[str, Any]:
        listed = next((edges for one, _ in self.releases if (edges := one.listed_secrets)), None)
        secrets = {"secrets": [list(edge) for edge in listed]} if listed else {}
        return {
            "nodes": list(self.nodes), "releases": [_written(*pair) for pair in self.releases], **secrets
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> History:
        releases = tuple(map(_read, data["releases"]))
        remember_listed(data.get("secrets"), [one for one, _ in releases])
        return cls(tuple(map(int, data["nodes"])), releases)


@dataclass(frozen=True)
class Spending:
    """What one run releases about the records of one file."""

    run: str  # its name for itself
    records: str  # the file's name
    digest: str | None  # of its bytes; only where it lies beside the file itself
    name: str  # what people call the run
    at: str
    delta: float
    adjacency: str
    no_privacy: str | None  # why nobody is protected whatever the releases say: seeded noise
    holder: str | None  # the column that says which node holds a record; None: any may
    times: int  # so many such runs: an audit trains again and again
    histories: tuple[History, ...]
    settled: bool = False  # what happened, not what was planned
    unit: str = UNIT  # what it protects, in words

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "histories": [history.to_json() for history in self.histories]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spending:
        # Before there were other units, nothing said which one it was.
        known = {key: data.get(key, UNIT) if key == "unit" else data[key] for key in cls.__dataclass_fields__}
        spending = cls(**{**known, "histories": tuple(map(History.from_json, data["histories"]))})
        if not (0 < spending.delta < 1 and spending.times >= 1):
            raise ValueError("its δ or its number of runs is none")
        return spending


@dataclass(frozen=True)
class Total:
    """All runs on the same records together. ε = ∞ comes with `because`."""

    epsilon: float
    runs: int
    delta: float | None  # None: nothing was released
    adjacency: str | None
    because: str | None = None
    provable: float | None = None  # ε of the runs about which something is proven, if others are among them
    observer: str = EVERYONE.describe()
    unit: str = UNIT

    def figures(self) -> dict[str, Any]:
        """ε with all it needs to be read."""
        return asdict(self)


def same_records(spendings: Iterable[Spending], records: str, digest: str | None) -> list[Spending]:
    """Those on a file of that name or with those bytes: a file may be renamed, and it may be edited in place."""
    left, found = list(spendings), []
    names, digests = {records}, {digest} - {None}
    while matching := [s for s in left if s.records in names or s.digest in digests]:
        found += matching
        names |= {s.records for s in matching}
        digests |= {s.digest for s in matching} - {None}
        left = [s for s in left if s not in matching]
    return sorted(found, key=lambda s: s.at)


def total(spendings: Sequence[Spending]) -> Total:
    """What these runs, all on the same records, cost together."""
    counted = [s for s in spendings if any(history.releases for history in s.histories)]
    runs = sum(s.times for s in counted)
    if not counted:
        return Total(0.0, 0, None, None)
    delta = min(s.delta for s in counted)
    unit, exchanged = in_common(s.unit for s in counted)
    strict = exchanged or any(s.adjacency == STRICT for s in counted)
    adjacency = STRICT if strict else counted[0].adjacency
    observer = against_all(
        one.planned_for for s in counted for h in s.histories for one, _ in h.releases
    ).describe()
    reasons = {s.run: why for s in counted if (why := _unprovable(s, adjacency)) is not None}
    if reasons:
        rest = [s for s in counted if s.run not in reasons]
        first = next(s for s in counted if s.run in reasons)
        because = f"{first.name} ({first.at}): {reasons[first.run]}"
        provable = _composed(rest, delta, adjacency) if rest else 0.0
        return Total(math.inf, runs, delta, adjacency, because, provable, observer, unit)
    epsilon = _composed(counted, delta, adjacency)
    nothing = "the composition has no finite ε at this δ" if math.isinf(epsilon) else None
    return Total(epsilon, runs, delta, adjacency, nothing, observer=observer, unit=unit)


def _unprovable(spending: Spending, adjacency: str) -> str | None:
    if spending.no_privacy is not None:
        return spending.no_privacy
    releases = (release for history in spending.histories for release, _ in history.releases)
    return next((reason for one in releases if (reason := one.unpriceable(adjacency))), None)


def _composed(spendings: Sequence[Spending], delta: float, adjacency: str) -> float:
    ways = _ways(spendings)
    if len(ways) > MOST_WAYS:
        # Each run at its share of δ, the worst of its nodes, added up: valid whichever node held the record in which
        # run (basic composition), and it needs as many prices as there are different histories.
        share = delta / sum(s.times for s in spendings)
        return math.fsum(
            s.times * max(_epsilon({h.releases: 1}, share, adjacency) for h in s.histories) for s in spendings
        )
    return max(_epsilon(way, delta, adjacency) for way in ways)


def _ways(spendings: Sequence[Spending]) -> list[Way]:
    """All the ways a record can be held in these runs; one more than `MOST_WAYS` stand for more than that."""
    holders = {(s.holder, s.digest) for s in spendings}
    if len(holders) == 1 and None not in next(iter(holders)):
        nodes = {i for s in spendings for history in s.histories for i in history.nodes}
        held = [({i: h.releases for h in s.histories for i in h.nodes}, s.times) for s in spendings]
        return _different(_way((by_node.get(i, ()), times) for by_node, times in held) for i in sorted(nodes))
    # Runs with the same histories are alike: it only matters how often a record was held in which way.
    alike: dict[tuple[Releases, ...], int] = {}
    for s in spendings:
        kinds = tuple(dict.fromkeys(h.releases for h in s.histories))
        alike[kinds] = alike.get(kinds, 0) + s.times
    if math.prod(math.comb(times + len(kinds) - 1, times) for kinds, times in alike.items()) > MOST_WAYS:
        return [{}] * (MOST_WAYS + 1)
    of_each = [itertools.combinations_with_replacement(kinds, times) for kinds, times in alike.items()]
    chosen = itertools.product(*of_each)
    return _different(_way((releases, 1) for part in way for releases in part) for way in chosen)


def _way(held: Iterable[tuple[Releases, int]]) -> Way:
    way: Way = {}
    for releases, times in held:
        way[releases] = way.get(releases, 0) + times
    return way


def _different(ways: Iterable[Way]) -> list[Way]:
    return list({frozenset(way.items()): way for way in ways}.values())


def _epsilon(way: Way, delta: float, adjacency: str) -> float:
    return _priced(frozenset(way.items()), delta, adjacency)


@lru_cache(maxsize=256)  # plan, reservation and settlement ask for the same
def _priced(way: frozenset[tuple[Releases, int]], delta: float, adjacency: str) -> float:
    together: dict[Release, int] = {}
    passes = 0  # a pass of one run is no pass of another: they are numbered apart
    for releases, times in way:
        once = [(one, count) for one, count in releases if _numbered(one)]
        for one, count in releases:
            if not _numbered(one):
                together[one] = together.get(one, 0) + count * times
        for _ in range(times if once else 0):
            together |= {replace(one, pass_number=passes + (one.pass_number or 0)): n for one, n in once}
            passes += 1 + max(one.pass_number or 0 for one, _ in once)
    return proven(together.items(), delta, adjacency).epsilon


def _numbered(one: Release) -> bool:
    """Is it of a pass? Balls-and-bins lots without a number are not, and count each."""
    return one.in_passes and (one.sampling == ONE_PASS or one.pass_number is not None)


def _written(release: Release, count: int) -> dict[str, Any]:
    """A release as a ledger has it, with how often it happens in place of when."""
    said = json.loads(Event(draw=0, release=release).to_json())
    return {"count": count, **{key: value for key, value in said.items() if key != "draw"}}


def _read(data: Mapping[str, Any]) -> Counted:
    count = int(data["count"])
    if count < 1:
        raise ValueError("a release happens at least once")
    return Event.from_json({**{k: v for k, v in data.items() if k != "count"}, "draw": 0}).release, count
