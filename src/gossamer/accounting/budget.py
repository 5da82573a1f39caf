"""`budget.jsonl`, the account of what was spent on records, next to them. Its lines are chained as a ledger's.

The first line says what the file is and may hold the owner's `cap`, the most that all runs may cost together. A run
*reserves* what it plans before its first release, and *settles* at its end for what its ledgers say happened; one that
crashes leaves its reservation, which is the pessimistic side. Both are a `Spending`; the last one of a run and a file
counts. Everything is done under a lock (`.budget.jsonl.lock`): of two runs at once, the second sees the first.

A *register* in the user's own state folder holds the same lines by the content of the records, `accounts/DIGEST.jsonl`.
Each of the two files gets the lines that it lacks from the other, so what was spent is still counted where the records
were copied or moved, or where the account was deleted or replaced by an older one.

A run on the user's own records is one `Spending` per file of theirs. Its nodes' releases are kept as `History`s: nodes
that release alike share one. All are composed numerically, never added up, at the smallest δ and the strictest
adjacency that any of the runs asked for: so no later run makes an earlier one look cheaper. Of runs that protect
records and others that protect persons, the total is of a record: see `observers.in_common`.

Which of several histories is a record's? A record of a file that is dealt out at random may sit on any node, on another
one in every run: the total is the largest over all choices. Where an owner column says who holds it, and the file is
still the same, it stays with its node: the total is the largest over nodes.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from gossamer.accounting.chain import (
    LedgerError,
    chained,
    content,
    digest,
    no_name_twice,
    parse_chain,
    write_line,
)
from gossamer.accounting.observers import EVERYONE, UNIT, against_all, in_common
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Counted, Event, Release, remember_listed
from gossamer.errors import UserError

Releases = tuple[Counted, ...]
Way = frozenset[tuple[Releases, int]]  # which histories a record was in, and how often
MOST_WAYS = 24  # compositions of one total: each takes up to a second or so
STRICT = "replace-one"


@dataclass(frozen=True)
class History:
    """A release shared by several nodes."""

    nodes: tuple[int, ...]
    releases: Releases

    def to_json(self) -> dict[str, Any]:
        """Releases as events of a ledger, each with how often it happens."""
        listed = next((edges for one, _ in self.releases if (edges := one.listed_secrets)), None)
        secrets = {"secrets": [list(edge) for edge in listed]} if listed else {}
        releases = [[count, json.loads(Event(0, one).to_json())] for one, count in self.releases]
        return {"nodes": list(self.nodes), "releases": releases, **secrets}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> History:
        releases = tuple((Event.from_json(event).release, int(count)) for count, event in data["releases"])
        if any(count < 1 for _, count in releases):
            raise ValueError("a release happens at least once")
        remember_listed(data.get("secrets"), [one for one, _ in releases])
        return cls(tuple(map(int, data["nodes"])), releases)


@dataclass(frozen=True)
class Spending:
    """What one run releases about the records of one file."""

    run: str  # its name for itself
    records: str  # the file's name
    digest: str | None  # of its bytes; only in an account next to the file itself
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
    def from_json(cls, data: Mapping[str, Any], reserved: Spending | None = None) -> Spending:
        """Read a line; one that settles for exactly what was `reserved` does not repeat its histories."""
        if data["histories"] is not None:
            histories = tuple(map(History.from_json, data["histories"]))
        elif reserved is not None:
            histories = reserved.histories
        else:
            raise ValueError("it names no histories")
        spending = cls(**{**{key: data[key] for key in cls.__dataclass_fields__}, "histories": histories})
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
    observer: str = EVERYONE.description
    unit: str = UNIT


def same_records(spendings: Iterable[Spending], records: str, digest: str | None) -> list[Spending]:
    """Those on a file of that name or with those bytes: a file may be renamed, and it may be edited in place."""
    left, same = list(spendings), []
    names, digests = {records}, {digest} - {None}
    while matching := [s for s in left if s.records in names or s.digest in digests]:
        same += matching
        names |= {s.records for s in matching}
        digests |= {s.digest for s in matching} - {None}
        left = [s for s in left if s not in matching]
    return sorted(same, key=lambda s: s.at)


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
    ).description
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
    if ways is None:
        # Each run at its share of δ, the worst of its nodes, added up: valid whichever node held the record in which
        # run (basic composition), and it needs as many prices as there are different histories.
        share = delta / sum(s.times for s in spendings)
        return math.fsum(
            s.times * max(_epsilon(_way([(h.releases, 1)]), share, adjacency) for h in s.histories)
            for s in spendings
        )
    return max(_epsilon(way, delta, adjacency) for way in ways)


def _ways(spendings: Sequence[Spending]) -> set[Way] | None:
    """All the ways a record can be held in these runs; None if there are more than `MOST_WAYS`."""
    holders = {(s.holder, s.digest) for s in spendings}
    if len(holders) == 1 and None not in next(iter(holders)):
        by_node = [({i: h.releases for h in s.histories for i in h.nodes}, s.times) for s in spendings]
        nodes = {i for releases, _ in by_node for i in releases}
        ways = {_way((releases.get(i, ()), times) for releases, times in by_node) for i in nodes}
        return ways if len(ways) <= MOST_WAYS else None
    # Runs with the same histories are alike: it only matters how often a record was held in which way.
    alike: Counter[tuple[Releases, ...]] = Counter()
    for s in spendings:
        alike[tuple(dict.fromkeys(h.releases for h in s.histories))] += s.times
    if math.prod(math.comb(times + len(kinds) - 1, times) for kinds, times in alike.items()) > MOST_WAYS:
        return None
    of_each = [itertools.combinations_with_replacement(kinds, times) for kinds, times in alike.items()]
    chosen = itertools.product(*of_each)
    return {_way((releases, 1) for part in parts for releases in part) for parts in chosen}


def _way(held: Iterable[tuple[Releases, int]]) -> Way:
    counts: Counter[Releases] = Counter()
    for releases, times in held:
        counts[releases] += times
    return frozenset(counts.items())


@lru_cache(maxsize=256)  # plan, reservation and settlement ask for the same
def _epsilon(way: Way, delta: float, adjacency: str) -> float:
    together: Counter[Release] = Counter()
    passes = 0  # a pass of one run is no pass of another: they are numbered apart
    for releases, times in way:
        in_passes = [(one, count) for one, count in releases if one.in_numbered_pass]
        for one, count in releases:
            if not one.in_numbered_pass:
                together[one] += count * times
        for _ in range(times if in_passes else 0):
            together.update({one.renumbered(passes): count for one, count in in_passes})
            passes += 1 + max(one.pass_number or 0 for one, _ in in_passes)
    return proven(together.items(), delta, adjacency).epsilon


VERSION = 1
STATE, REGISTER = "GOSSAMER_STATE", "accounts"
Listed = tuple[Path, str, str]  # the register of the records, and their file and digest as it has them
PATIENCE = 300.0  # seconds to wait for others: each holds the lock for as long as pricing takes


@dataclass(frozen=True)
class Budget:
    """The content of a budget file."""

    cap: float | None
    spendings: tuple[Spending, ...]

    def of(self, records: str, digest: str | None) -> list[Spending]:
        """What was spent on these records."""
        return same_records(self.spendings, records, digest)


NOTHING = Budget(None, ())


def read(path: Path) -> Budget:
    """Read and verify a budget file; nothing was spent where there is no file, or an empty one."""
    return _Account(path).budget


def register(digest: str) -> Path:
    """The user's own account of records with this content; GOSSAMER_STATE names another folder than the user's."""
    if chosen := os.environ.get(STATE):
        folder = Path(chosen).expanduser()
    elif shared := os.environ.get("XDG_STATE_HOME"):
        folder = Path(shared).expanduser() / "gossamer"
    else:
        folder = Path.home() / ".local" / "state" / "gossamer"
    return folder / REGISTER / f"{digest}.jsonl"


def joined(own: Iterable[Spending], others: Iterable[Spending]) -> list[Spending]:
    """Each run once: its later line; of two at the same time the reservation, which is not less."""
    latest: dict[tuple[str, str], Spending] = {}
    for one in (*own, *others):
        latest[_key(one)] = max(latest.get(_key(one), one), one, key=lambda s: (s.at, not s.settled))
    return sorted(latest.values(), key=lambda s: s.at)


def reserve(path: Path, spending: Spending, cap: float | None, listed: Listed | None = None) -> Total:
    """Write what a run is going to release, unless that would pass the cap; a run is not counted twice.

    Return the total with it. `cap` is the run's own; the file's may be stricter.
    """
    with _both(path, spending, listed) as both:
        reserved, together = both.of_run, total([*both.others, spending])
        if reserved is None:
            owners, capped = min(both.caps, default=(None, path))
            refuse_above(capped, together, total(both.others), cap, owners)
        # One that was settled as it failed at its beginning and now resumes releases the rest of what was planned.
        again = reserved is None or (reserved.settled and reserved.histories != spending.histories)
        both.write(spending if again else None)
        return together


def settle(path: Path, spending: Spending, listed: Listed | None = None) -> Total:
    """Write what happened in the place of what had been reserved; return the total with it."""
    with _both(path, spending, listed) as both:
        if both.of_run is None:
            raise LedgerError(
                f"{path} no longer holds what this run had reserved; put the file back as it was"
            )
        both.write(spending)
        return total([*both.others, spending])


def refuse_above(
    path: Path, together: Total, before: Total, cap: float | None, owners: float | None = None
) -> None:
    """Refuse a total above the run's own `cap` or that of the file's first line, `owners`."""
    least = min((one for one in (cap, owners) if one is not None), default=None)
    if least is None or together.epsilon <= least:
        return
    limit = f"privacy.cap = {cap:g}" if least == cap else f"{path} has the cap {owners:g} in its first line"
    why = f" ({together.because})" if together.because else ""
    raise UserError(
        f"{limit}: with this, all runs on these records have proven ε = {together.epsilon:.4g}{why} "
        f"after {before.epsilon:.4g} so far (δ = {together.delta:g}, {together.adjacency}, unit: {together.unit}; "
        f"observer: {together.observer}; {path}); ask for less privacy.epsilon or fewer rounds, or decide on a larger "
        "cap."
    )


class _Account:
    """A budget file; to be appended to under its lock only."""

    def __init__(self, path: Path):
        self.path, self.budget, self._head, self._whole = path, NOTHING, "", b""
        data = content(path) if path.exists() else b""
        if not data:
            return
        latest: dict[tuple[str, str], Spending] = {}

        def read_entry(payload: bytes) -> None:
            entry = json.loads(payload + b"}", object_pairs_hook=no_name_twice)
            key = entry["run"], entry["records"]
            try:
                latest[key] = Spending.from_json(entry, latest.get(key))
            except UserError as error:  # a release that cannot be
                raise ValueError(str(error)) from None

        header, _, self._head, torn = parse_chain(
            path, data, lenient=True, what="budget", version=VERSION, read=read_entry
        )
        cap = header.get("cap")
        if header.get("kind") != "budget" or not (cap is None or (isinstance(cap, int | float) and cap > 0)):
            raise LedgerError(
                f'{path} line 1 is not how a budget begins, for example {{"version": 1, "kind": "budget", "cap": 3.0}}'
            )
        self.budget = Budget(cap, tuple(latest.values()))
        # The writer of a torn line was stopped before the write returned, so before anything was released.
        self._whole = data.removesuffix(torn)

    def append(self, spending: Spending, cap: float | None) -> None:
        """`cap`: the owner's, in the first line of a new file."""
        first = b"\n" if self._whole and not self._whole.endswith(b"\n") else b""
        if not self._head:
            header = {"version": VERSION, "kind": "budget", "unit": spending.unit, "cap": cap}
            first = json.dumps(header).encode() + b"\n"
            self._head = digest(first)
        entry = spending.to_json()
        reserved = next((s for s in self.budget.spendings if _same_line(s, spending)), None)
        if reserved is not None and reserved.histories == spending.histories:
            entry["histories"] = None
        text = json.dumps(entry, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        line = chained(text, self._head)
        private = self.path.parent.name == REGISTER  # the user's own
        with _writable(self.path):
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600 if private else 0o644)
            try:
                os.truncate(fd, len(self._whole))
                write_line(fd, first + line, sync=True)
            finally:
                os.close(fd)
        self._head, self._whole = digest(line), self._whole + first + line
        others = tuple(s for s in self.budget.spendings if s is not reserved)
        self.budget = Budget(self.budget.cap, (*others, spending))

    def missing(self, known: Iterable[Spending]) -> list[Spending]:
        here = {(*_key(s), s.at, s.settled) for s in self.budget.spendings}
        return [s for s in known if (*_key(s), s.at, s.settled) not in here]


class _Both:
    """An account and the register of its records, both locked."""

    def __init__(self, path: Path, spending: Spending, listed: Listed | None):
        self._own, self._listed = _Account(path), listed
        self._register = None if listed is None else _Account(listed[0])
        accounts = [self._own] if self._register is None else [self._own, self._register]
        here = self._own.budget.of(spending.records, spending.digest)
        self._known = joined(here, () if self._register is None else self._register.budget.spendings)
        self.others = [s for s in self._known if s.run != spending.run]
        self.of_run = next((s for s in self._known if _key(s) == _key(spending)), None)
        # The owner's, and where they are.
        self.caps = [(one.budget.cap, one.path) for one in accounts if one.budget.cap is not None]

    def write(self, spending: Spending | None) -> None:
        """Write what either lacks of the other, then this run's line."""
        cap = min(self.caps)[0] if self.caps else None
        next_to_records = True
        if self._register is not None and self._listed is not None:
            _, file, content_digest = self._listed
            next_to_records = self._own.path.parent == Path(file).parent
            for s in self._register.missing(self._known):
                self._register.append(replace(s, records=str(Path(file).parent / s.records)), cap)
            if spending is not None:
                self._register.append(replace(spending, records=file, digest=content_digest), cap)
        for s in self._own.missing(self._known):
            # A digest of records stays where they are.
            self._own.append(
                replace(s, records=Path(s.records).name) if next_to_records else replace(s, digest=None), cap
            )
        if spending is not None:
            self._own.append(spending, cap)


def _key(spending: Spending) -> tuple[str, str]:
    return spending.run, Path(spending.records).name  # the folder of records that were moved is another


def _same_line(one: Spending, other: Spending) -> bool:
    return (one.run, one.records) == (other.run, other.records)


@contextmanager
def _both(path: Path, spending: Spending, listed: Listed | None) -> Iterator[_Both]:
    from filelock import FileLock, Timeout

    with ExitStack() as locks:
        for file in [path] if listed is None else [listed[0], path]:
            with _writable(file):
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if file is not path else 0o777)
                lock = FileLock(file.with_name(f".{file.name}.lock"), timeout=PATIENCE)
                try:
                    locks.enter_context(lock)
                except Timeout:
                    raise LedgerError(
                        f"{file} is held by another run for over {PATIENCE:g} s; wait until it has ended"
                    ) from None
        yield _Both(path, spending, listed)


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """Turn an OSError into a sentence about the account that must be on file."""
    try:
        yield
    except OSError as error:
        remedy = (
            f"name another folder of your own with the environment variable {STATE}."
            if path.parent.name == REGISTER
            else "name another place that all runs on them share, for example "
            "data.budget = '/home/me/study/budget.jsonl'."
        )
        raise UserError(
            f"{path} cannot be written ({error.strerror or error}), and what is spent on records must be on file; "
            f"{remedy}"
        ) from None
