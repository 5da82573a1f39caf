"""`budget.jsonl`: what was spent on records, kept where the records are. The lines are chained as a ledger's.

The first line says what the file is and may hold the owner's `cap`, the most that all runs may cost together; who wants
one begins the file with it. A run
*reserves* what it plans before its first release, and *settles* at its end for what its ledgers say happened; one that
crashes leaves its reservation, which is the pessimistic side. Both are a `Spending`; the last one of a run and a file
counts. Everything is done with the file locked: of two runs at once, the second sees the first.

A *register* in the user's own state folder holds the same lines by the content of the records, `accounts/DIGEST.jsonl`.
Each of the two files gets the lines that it lacks from the other, so what was spent is still counted where the records
were copied or moved, or where the account was deleted or replaced by an older one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gossamer.accounting.chain import (
    LedgerError,
    content,
    digest,
    lock_in_turn,
    no_name_twice,
    parse_chain,
    write_line,
)
from gossamer.accounting.spending import Spending, Total, same_records, total
from gossamer.errors import UserError

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
