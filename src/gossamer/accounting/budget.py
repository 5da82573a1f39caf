"""Accounts of what was spent on people's records. The lines of an account are chained as a ledger's.

An account is a file `NAME.jsonl` in a folder of accounts. Its name is given, or it is found by the content of the
records: every line has the digest of their file. A *mark* next to the records, `FILE.account`, holds the hash of the
account's last line: an account that does not have that line is missing, older or cut. So a copy of the records finds
their account by content, an edited file by its mark, another version of them elsewhere by the name alone.

A run *reserves* what it plans before its first release, and *settles* at its end for what its ledgers say happened; one
that crashes leaves its reservation, which is the pessimistic side. Both are a `Spending`; the last one of a run and a
file counts. Everything is done under the folder's lock: of two runs at once, the second sees the first. The first line
of an account may hold the owner's `cap`, the most that all runs may cost together.

A run on the user's own records is one `Spending` per file of theirs. Its nodes' releases are kept as `History`s: nodes
that release alike share one. All are composed numerically, never added up, at the smallest δ and the strictest
adjacency that any of the runs asked for: so no later run makes an earlier one look cheaper. Of runs that protect
records and others that protect persons, the total is of a record: see `observers.in_common`. Runs without privacy are
listed and cost nothing: no ε covers what they release.

Which of several histories is a record's? A record of a file that is dealt out at random may sit on any node, on another
one in every run: the total is the largest over all choices. Where an owner column says who holds it, and the file is
still the same, it stays with its node: the total is the largest over nodes.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from gossamer.accounting import chain
from gossamer.accounting.chain import LedgerError
from gossamer.accounting.observers import EVERYONE, UNIT, against_all, in_common
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Counted, Event, Release, remember_listed
from gossamer.errors import UserError

Releases = tuple[Counted, ...]
Key = tuple[str, int]  # a run, and the first of the nodes that hold the records
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
    """The releases of one run about the records of one file."""

    run: str  # its name for itself
    node: int  # the first that holds the records
    records: str  # the file
    digest: str  # of its content
    name: str  # what people call the run
    at: str
    delta: float
    adjacency: str
    no_privacy: str | None  # why nothing is protected, no matter what the releases say: seeded noise, or none
    holder: str | None  # the column that says which node holds a record; None: any may
    times: int  # so many such runs: an audit trains again and again
    histories: tuple[History, ...]
    settled: bool = False  # what happened, not what was planned
    unit: str = UNIT  # what it protects, in words
    directory: str | None = None  # of the run
    entry: int = 0  # how often the run had written before

    @property
    def key(self) -> Key:
        return self.run, self.node

    @property
    def draws(self) -> int:
        """Of all nodes together."""
        return sum(len(one.nodes) * count for one in self.histories for _, count in one.releases)

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
    """All runs in an account together. ε = ∞ comes with `because`."""

    epsilon: float
    runs: int  # that ε is of
    delta: float | None  # None: nothing was released
    adjacency: str | None
    because: str | None = None
    provable: float | None = None  # ε of the runs about which something is proven, if others are among them
    observer: str = EVERYONE.description
    unit: str = UNIT
    unprotected: int = 0  # runs without privacy besides


def total(spendings: Sequence[Spending]) -> Total:
    """Return the cost of these runs together, all on the same people's records."""
    released = [s for s in spendings if any(history.releases for history in s.histories)]
    counted = [s for s in released if s.no_privacy is None]
    runs = sum({s.run: s.times for s in counted}.values())
    unprotected = sum({s.run: s.times for s in released if s.no_privacy is not None}.values())
    if not counted:
        return Total(0.0, 0, None, None, unprotected=unprotected)
    delta = min(s.delta for s in counted)
    unit, exchanged = in_common(s.unit for s in counted)
    strict = exchanged or any(s.adjacency == STRICT for s in counted)
    adjacency = STRICT if strict else counted[0].adjacency
    planned = (one.planned_for for s in counted for h in s.histories for one, _ in h.releases)
    observer = against_all(planned).description
    reasons = {s.run: why for s in counted if (why := _unprovable(s, adjacency)) is not None}
    if reasons:
        rest = [s for s in counted if s.run not in reasons]
        first = next(s for s in counted if s.run in reasons)
        because = f"{first.name} ({first.at}): {reasons[first.run]}"
        provable = _composed(rest, delta, adjacency) if rest else 0.0
        return Total(math.inf, runs, delta, adjacency, because, provable, observer, unit, unprotected)
    epsilon = _composed(counted, delta, adjacency)
    nothing = "the composition has no finite ε at this δ" if math.isinf(epsilon) else None
    return Total(epsilon, runs, delta, adjacency, nothing, None, observer, unit, unprotected)


def _unprovable(spending: Spending, adjacency: str) -> str | None:
    releases = (release for history in spending.histories for release, _ in history.releases)
    return next((reason for one in releases if (reason := one.unpriceable(adjacency))), None)


def _composed(spendings: Sequence[Spending], delta: float, adjacency: str) -> float:
    ways = _ways(spendings)
    if ways is None:
        # Each run at its share of δ, the worst of its nodes, added up: valid whichever node held the record in which
        # run (basic composition), and it needs as many prices as there are different histories.
        share = delta / sum(s.times for s in spendings)
        return math.fsum(
            s.times * max(_epsilon(_way([(h.releases, 1)]), share, adjacency) for h in s.histories) for s in spendings
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
STATE = "GOSSAMER_STATE"
PATIENCE = 300.0  # seconds to wait for others: each holds the lock for as long as pricing takes
MARK = ".account"  # what the file next to the records is called, after theirs


def default_folder() -> Path:
    """The user's own folder of accounts; GOSSAMER_STATE names another state folder."""
    if chosen := os.environ.get(STATE):
        state = Path(chosen).expanduser()
    elif shared := os.environ.get("XDG_STATE_HOME"):
        state = Path(shared).expanduser() / "gossamer"
    else:
        state = Path.home() / ".local" / "state" / "gossamer"
    return state / "accounts"


@dataclass(frozen=True)
class Source:
    """A file of records, and where its account is to be."""

    file: Path
    digest: str  # of its content
    folder: Path
    name: str | None  # of the account, where it was given one

    def is_of(self, other: Source) -> bool:
        """Return True if these are the same people's records, as far as two files tell."""
        return (
            self.file == other.file
            or self.digest == other.digest
            or (self.name is not None and self.name == other.name)
        )

    @property
    def mark(self) -> Path:
        """The file next to the records that says how far their account had come."""
        return self.file.with_name(self.file.name + MARK)

    def marked(self) -> tuple[str, str] | None:
        """(hash of the account's last line, path of the account) as the mark has them."""
        if not os.path.exists(self.mark):  # a folder that cannot be read has no mark either
            return None
        try:
            entry = json.loads(chain.content(self.mark), object_pairs_hook=chain.no_name_twice)
            return str(entry["head"]), str(entry["account"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise LedgerError(f"{self.mark} is damaged; put it back; or delete it, if the account is whole") from None


class Account:
    """All that was spent on the people of a file of records; to be appended to under the folder's lock only.

    Accounts of the folder that list the file's content, or that hold the line its mark names, count with the one that
    has the given name. What they have is copied into the one that is written to.
    """

    def __init__(self, source: Source):
        self.source = source
        marked = source.marked()
        named = None if source.name is None else source.folder / f"{source.name}.jsonl"
        files = []
        for path in sorted(source.folder.glob("*.jsonl")):
            data = chain.content(path)
            if path == named or source.digest.encode() in data or (marked and marked[0] in _heads(data)):
                files.append(_File(path, data))
        if marked and not any(marked[0] in file.heads for file in files):
            raise UserError(
                f"{source.file} was counted in the account {marked[1]}, and none in {source.folder} goes as far: it "
                "is missing, older or cut. Put it back as it was; if it is kept elsewhere, name its folder "
                f"(data.accounts, or the environment variable {STATE}), or copy it into this one under a name of its "
                f"own. Only if these are other people's records now, delete {source.mark}."
            )
        if named is None and files:
            named = max(files, key=lambda file: len(file.latest)).path
        elif named is None:
            named = source.folder / f"{source.file.stem[:40]}-{secrets.token_hex(4)}.jsonl"
        self._own = next((file for file in files if file.path == named), None) or _File(named, b"")
        self.name = self._own.path.stem
        self.is_new = not files
        latest: dict[Key, Spending] = {}
        for one in (one for file in files for one in file.latest.values()):
            latest[one.key] = max(latest.get(one.key, one), one, key=lambda s: (s.entry, not s.settled))
        self.spendings = list(latest.values())
        caps = [(file.cap, file.path) for file in files if file.cap is not None]
        self.cap: float | None
        self.capped: Path | None  # the account that has it
        self.cap, self.capped = min(caps, default=(None, None))

    @property
    def lists_content(self) -> bool:
        """Return True if an earlier run was on records with exactly this content."""
        return any(one.digest == self.source.digest for one in self.spendings)

    def of_run(self, spending: Spending) -> Spending | None:
        return next((one for one in self.spendings if one.key == spending.key), None)

    def others(self, spending: Spending) -> list[Spending]:
        return [one for one in self.spendings if one.key != spending.key]

    def write(self, spending: Spending) -> None:
        """Write what only the other accounts have, then this, and how far the account has come."""
        for one in self.spendings:
            if self._own.latest.get(one.key) != one:
                self._own.append(one, self.cap)
        before = self.of_run(spending)
        self._own.append(replace(spending, entry=0 if before is None else before.entry + 1), self.cap)
        mark, new = self.source.mark, self.source.mark.with_name(f".{self.source.mark.name}.new")
        with suppress(OSError):  # records in a folder that is read only are marked nowhere
            new.write_text(json.dumps({"account": str(self._own.path), "head": self._own.head}) + "\n")
            new.replace(mark)


def reserve(source: Source, spending: Spending, cap: float | None) -> tuple[str, Total]:
    """Write what a run is going to release, unless that would pass the cap; a run is not counted twice.

    Return the account's name and the total with it. `cap` is the run's own; the account's may be stricter.
    """
    with _locked(source.folder):
        account = Account(source)
        reserved, others = account.of_run(spending), account.others(spending)
        together = total([*others, spending])
        if reserved is None:
            refuse_above(account, [spending], together, total(others), cap)
        # One that was settled as it failed at its beginning and now resumes releases the rest of what was planned.
        if reserved is None or (reserved.settled and reserved.histories != spending.histories):
            account.write(spending)
        return account.name, together


def settle(source: Source, spending: Spending) -> Total:
    """Write what happened in the place of what had been reserved; return the total with it."""
    with _locked(source.folder):
        account = Account(source)
        if account.of_run(spending) is None:
            raise LedgerError(
                f"{source.folder / account.name}.jsonl no longer holds what this run had reserved; put the file back "
                "as it was"
            )
        account.write(spending)
        return total([*account.others(spending), spending])


def refuse_above(
    account: Account, planned: Sequence[Spending], together: Total, before: Total, cap: float | None
) -> None:
    """Refuse a total above the run's own `cap` or the account's, and a run without privacy where there is one."""
    least = min((one for one in (cap, account.cap) if one is not None), default=None)
    unprotected = next((one.no_privacy for one in planned if one.no_privacy is not None), None)
    if least is None or (together.epsilon <= least and unprotected is None):
        return
    limit = f"{account.capped} has the cap {least:g} in its first line"
    if least == cap:
        limit = f"privacy.cap = {cap:g}"
    if unprotected is not None:
        raise UserError(f"{limit}, and this run has {unprotected}; leave it out, or protect the records.")
    why = f" ({together.because})" if together.because else ""
    raise UserError(
        f"{limit}: with this, all runs in the account {account.name!r} have proven ε = {together.epsilon:.4g}{why} "
        f"after {before.epsilon:.4g} so far (δ = {together.delta:g}, {together.adjacency}, unit: {together.unit}; "
        f"observer: {together.observer}); ask for less privacy.epsilon or fewer rounds, or decide on a larger cap."
    )


class _File:
    """The lines of one account; the last one of a run and a file of records counts."""

    def __init__(self, path: Path, data: bytes):
        self.path, self.head, self._whole = path, "", b""
        self.cap: float | None = None
        self.latest: dict[Key, Spending] = {}
        self.heads = _heads(data)
        if not data:
            return

        def read_entry(payload: bytes) -> None:
            entry = json.loads(payload + b"}", object_pairs_hook=chain.no_name_twice)
            try:
                one = Spending.from_json(entry, self.latest.get((entry["run"], entry["node"])))
            except UserError as error:  # a release that cannot be
                raise ValueError(str(error)) from None
            self.latest[one.key] = one

        header, _, self.head, torn = chain.parse_chain(
            path, data, lenient=True, what="budget", version=VERSION, read=read_entry
        )
        self.cap = header.get("cap")
        if header.get("kind") != "budget" or not (
            self.cap is None or (isinstance(self.cap, int | float) and self.cap > 0)
        ):
            raise LedgerError(
                f'{path} line 1 is not how a budget begins, for example {{"version": 1, "kind": "budget", "cap": 3.0}}'
            )
        # The writer of a torn line was stopped before the write returned, so before anything was released.
        self._whole = data.removesuffix(torn)

    def append(self, spending: Spending, cap: float | None) -> None:
        """`cap`: the owner's, in the first line of a new file."""
        first = b"\n" if self._whole and not self._whole.endswith(b"\n") else b""
        if not self.head:
            header = {"version": VERSION, "kind": "budget", "unit": spending.unit, "cap": cap}
            first = json.dumps(header).encode() + b"\n"
            self.head = chain.digest(first)
        entry, reserved = spending.to_json(), self.latest.get(spending.key)
        if reserved is not None and reserved.histories == spending.histories:
            entry["histories"] = None
        text = json.dumps(entry, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        line = chain.chained(text, self.head)
        with _writable(self.path):
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.truncate(fd, len(self._whole))
                chain.write_line(fd, first + line, sync=True)
            finally:
                os.close(fd)
        self.head, self._whole = chain.digest(line), self._whole + first + line
        self.latest[spending.key] = spending


def _heads(data: bytes) -> set[str]:
    return {chain.digest(line + b"\n") for line in data.split(b"\n")}


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One run at a time reads and writes the accounts of a folder; one that is made here is its maker's alone."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock", timeout=PATIENCE, mode=0o666)
    with _writable(folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            lock.acquire()
        except Timeout:
            raise LedgerError(f"{folder} is held by another run; try again when it has ended") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """Turn an OSError into a sentence about the account that must be on file."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror or error}), and what is spent on records must be on file; name "
            f"a folder that all runs on them share: data.accounts, or the environment variable {STATE}."
        ) from None
