"""`budget.jsonl`: what was spent on records, kept where the records are. The lines are chained as a ledger's.

The first line says what the file is and may hold the owner's `cap`, the most that all runs may cost together. A run
*reserves* what it plans before its first release, and *settles* at its end for what its ledgers say happened; one that
crashes leaves its reservation, which is the pessimistic side. Both are a `Spending`; the last one of a run and a file
counts. Everything is done with the file locked: of two runs at once, the second sees the first.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from gossamer.accounting.chain import (
    LedgerError,
    content,
    digest,
    lock_in_turn,
    no_name_twice,
    parse_chain,
    write_line,
)
from gossamer.accounting.observers import EVERYONE, UNIT, against_all, in_common
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Event, Release, remember_listed
from gossamer.errors import UserError

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
    observer: str = EVERYONE.description
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


VERSION = 1
STATE, REGISTER = "GOSSAMER_STATE", "accounts"
Listed = tuple[Path, str, str]  # the register of the records, and their file and digest as it has them
PATIENCE = 300.0  # seconds to wait for others: each holds the file for as long as pricing takes


@dataclass(frozen=True)
class Budget:
    """What a budget file says."""

    cap: float | None
    spendings: tuple[Spending, ...]

    def of(self, records: str, digest: str | None, *, without: str | None = None) -> list[Spending]:
        """What was spent on these records, except by the run `without`."""
        return [s for s in same_records(self.spendings, records, digest) if s.run != without]

    def by(self, run: str, records: str) -> Spending | None:
        """What this run has on file about these records."""
        return next((s for s in self.spendings if s.run == run and s.records == records), None)


NOTHING = Budget(None, ())


def read(path: Path) -> Budget:
    """Verified; nothing was spent where there is no file, or one that somebody has just made and not written to."""
    data = content(path) if path.exists() else b""
    return _parsed(path, data)[0] if data else NOTHING


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
    """Put on file what a run is going to release, unless that would pass the cap; a run that did is not counted twice.

    The total with it comes back. `cap` is the run's own; the file's may be stricter.
    """
    with _both(path, spending, listed) as files:
        reserved, together = files.of_run, total([*files.others, spending])
        if reserved is None:
            refuse_above(files.capped or path, together, total(files.others), cap, files.cap)
        # One that was settled as it failed at its beginning and now resumes releases the rest of what was planned.
        again = reserved is None or (reserved.settled and reserved.histories != spending.histories)
        files.write(spending if again else None)
        return together


def settle(path: Path, spending: Spending, listed: Listed | None = None) -> Total:
    """Put what happened in the place of what had been reserved."""
    with _both(path, spending, listed) as files:
        if files.of_run is None:
            raise LedgerError(
                f"{path} no longer holds what this run had reserved; put the file back as it was"
            )
        files.write(spending)
        return total([*files.others, spending])


def refuse_above(
    path: Path, together: Total, before: Total, cap: float | None, owners: float | None = None
) -> None:
    """`cap` is the run's own, `owners` that of the file's first line."""
    least = min((one for one in (cap, owners) if one is not None), default=None)
    if least is None or together.epsilon <= least:
        return
    said = f"privacy.cap = {cap:g}" if least == cap else f"{path} has the cap {owners:g} in its first line"
    why = f" ({together.because})" if together.because else ""
    raise UserError(
        f"{said}: with this, all runs on these records have proven ε = {together.epsilon:.4g}{why} "
        f"after {before.epsilon:.4g} so far (δ = {together.delta:g}, {together.adjacency}, unit: {together.unit}; "
        f"observer: {together.observer}; {path}); ask for less privacy.epsilon or fewer rounds, or decide on a larger "
        "cap."
    )


def _parsed(path: Path, data: bytes) -> tuple[Budget, str, bytes]:
    """(what it says, the hash of its last line, the rest of a line within which a writer was stopped)."""
    entries = _Entries()
    header, _, head, rest = parse_chain(
        path, data, lenient=True, what="budget", version=VERSION, read=entries
    )
    cap = header.get("cap")
    if header.get("kind") != "budget" or not (cap is None or (isinstance(cap, int | float) and cap > 0)):
        raise LedgerError(
            f'{path} line 1 is not how a budget begins, for example {{"version": 1, "kind": "budget", "cap": 3.0}}'
        )
    return Budget(cap, tuple(entries.latest.values())), head, rest


class _Entries:
    """Lines as they come; one that settles for exactly what was reserved does not repeat it."""

    def __init__(self) -> None:
        self.latest: dict[tuple[str, str], Spending] = {}

    def __call__(self, payload: bytes) -> Spending:
        data = json.loads(payload + b"}", object_pairs_hook=no_name_twice)
        key = data["run"], data["records"]
        as_planned = data["histories"] is None
        try:
            found = Spending.from_json({**data, "histories": [] if as_planned else data["histories"]})
        except UserError as error:  # a release that cannot be
            raise ValueError(str(error)) from None
        self.latest[key] = replace(found, histories=self.latest[key].histories) if as_planned else found
        return self.latest[key]


class _File:
    """An open budget that nobody else writes meanwhile."""

    def __init__(self, fd: int, path: Path):
        self._fd, self.path, data = fd, path, content(path)
        self.budget, self._head, self._before = NOTHING, "", b""
        if not data:
            return
        self.budget, self._head, rest = _parsed(path, data)
        if rest:
            # Its writer was stopped before the write returned, so before anything was released: it counts as not there.
            os.truncate(path, len(data) - len(rest))
        elif not data.endswith(b"\n"):
            self._before = b"\n"

    def append(self, spending: Spending, cap: float | None = None) -> None:
        """`cap`: the owner's, in the first line of a new file."""
        before, self._before = self._before, b""
        if not self._head:
            first = {"version": VERSION, "kind": "budget", "unit": spending.unit, "cap": cap}
            before = json.dumps(first).encode() + b"\n"
            self._head = digest(before)
        said = spending.to_json()
        reserved = self.budget.by(spending.run, spending.records)
        if reserved is not None and reserved.histories == spending.histories:
            said["histories"] = None
        text = json.dumps(said, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        line = f'{text[:-1]},"prev":"{self._head}"}}\n'.encode()
        try:
            write_line(self._fd, before + line, sync=True)
        except OSError as error:
            raise _unwritable(self.path, error) from None
        self._head = digest(line)
        others = tuple(s for s in self.budget.spendings if s is not reserved)
        self.budget = Budget(self.budget.cap, (*others, spending))


class _Both:
    """An account and the register of its records, both locked."""

    def __init__(self, own: _File, other: _File | None, spending: Spending, listed: Listed | None):
        self._own, self._other, self._listed = own, other, listed
        here = own.budget.of(spending.records, spending.digest)
        self._known = joined(here, () if other is None else other.budget.spendings)
        self.others = [s for s in self._known if s.run != spending.run]
        self.of_run = next((s for s in self._known if _key(s) == _key(spending)), None)
        capped = [(f.budget.cap, f.path) for f in (own, other) if f is not None and f.budget.cap is not None]
        self.cap: float | None = min(capped)[0] if capped else None  # the owner's, and where it is
        self.capped: Path | None = min(capped)[1] if capped else None

    def write(self, spending: Spending | None) -> None:
        """What either lacks of the other, then this run's line."""
        if self._other is not None and self._listed is not None:
            _, file, content_digest = self._listed
            for s in _missing(self._known, self._other):
                self._other.append(replace(s, records=str(Path(file).parent / s.records)), self.cap)
            if spending is not None:
                self._other.append(replace(spending, records=file, digest=content_digest), self.cap)
        beside = self._listed is None or self._own.path.parent == Path(self._listed[1]).parent
        for s in _missing(self._known, self._own):
            # A digest of records stays where they are.
            self._own.append(
                replace(s, records=Path(s.records).name) if beside else replace(s, digest=None), self.cap
            )
        if spending is not None:
            self._own.append(spending, self.cap)


def _missing(known: Iterable[Spending], file: _File) -> list[Spending]:
    there = {(*_key(s), s.at, s.settled) for s in file.budget.spendings}
    return [s for s in known if (*_key(s), s.at, s.settled) not in there]


def _key(spending: Spending) -> tuple[str, str]:
    return spending.run, Path(spending.records).name  # the folder of records that were moved is another


@contextmanager
def _both(path: Path, spending: Spending, listed: Listed | None) -> Iterator[_Both]:
    if listed is None:
        with _locked(path) as own:
            yield _Both(own, None, spending, None)
        return
    with _locked(listed[0], private=True) as other, _locked(path) as own:
        yield _Both(own, other, spending, listed)


@contextmanager
def _locked(path: Path, *, private: bool = False) -> Iterator[_File]:
    """`private`: the user's own register."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if private else 0o777)
        fd = _opened(path, 0o600 if private else 0o644)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        yield _File(fd, path)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        if os.fstat(fd).st_size == 0:  # made here, and nothing came of it
            path.unlink(missing_ok=True)
        os.close(fd)


def _opened(path: Path, mode: int) -> int:
    """Open and locked. A file that was removed while we waited for our turn is made anew."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, mode)
        try:
            lock_in_turn(fd, path, PATIENCE)
            if path.exists() and path.stat().st_ino == os.fstat(fd).st_ino:
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _unwritable(path: Path, error: OSError) -> UserError:
    remedy = (
        f"name another folder of your own with the environment variable {STATE}."
        if path.parent.name == REGISTER
        else "name another place that all runs on them share, for example data.budget = '/home/me/study/budget.jsonl'."
    )
    return UserError(
        f"{path} cannot be written ({error.strerror or error}), and what is spent on records must be on file; {remedy}"
    )
