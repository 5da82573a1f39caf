"""`budget.jsonl`: what was spent on records, kept where the records are. The lines are chained as a ledger's.

The first line says what the file is and may hold the owner's `cap`, the most that all runs may cost together; who wants
one begins the file with it. A run
*reserves* what it plans before its first release, and *settles* at its end for what its ledgers say happened; one that
crashes leaves its reservation, which is the pessimistic side. Both are a `Spending`; the last one of a run and a file
counts. Everything is done with the file locked: of two runs at once, the second sees the first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
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


def reserve(path: Path, spending: Spending, cap: float | None) -> Total:
    """Put on file what a run is going to release, unless that would pass the cap; a run that did is not counted twice.

    The total with it comes back. `cap` is the run's own; the file's may be stricter.
    """
    with _locked(path) as file:
        found = file.budget
        spent = found.of(spending.records, spending.digest, without=spending.run)
        together = total([*spent, spending])
        if found.by(spending.run, spending.records) is None:
            refuse_above(path, together, total(spent), cap, found.cap)
            file.append(spending)
        return together


def settle(path: Path, spending: Spending) -> Total:
    """Put what happened in the place of what had been reserved."""
    with _locked(path) as file:
        if file.budget.by(spending.run, spending.records) is None:
            raise LedgerError(
                f"{path} no longer holds what this run had reserved; put the file back as it was"
            )
        file.append(spending)
        return total([*file.budget.of(spending.records, spending.digest, without=spending.run), spending])


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
        path, data, lenient=True, what="budget", readable=(VERSION,), read=entries
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
        self._fd, data = fd, content(path)
        self.budget, self._head, self._before = NOTHING, "", b""
        if not data:
            return
        self.budget, self._head, rest = _parsed(path, data)
        if rest:
            # Its writer was stopped before the write returned, so before anything was released: it counts as not there.
            os.truncate(path, len(data) - len(rest))
        elif not data.endswith(b"\n"):
            self._before = b"\n"

    def append(self, spending: Spending) -> None:
        before = self._before
        if not self._head:
            first = {"version": VERSION, "kind": "budget", "unit": spending.unit, "cap": None}
            before = json.dumps(first).encode() + b"\n"
            self._head = digest(before)
        said = spending.to_json()
        reserved = self.budget.by(spending.run, spending.records)
        if reserved is not None and reserved.histories == spending.histories:
            said["histories"] = None
        text = json.dumps(said, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        line = f'{text[:-1]},"prev":"{self._head}"}}\n'.encode()
        write_line(self._fd, before + line, sync=True)
        self._head = digest(line)


@contextmanager
def _locked(path: Path) -> Iterator[_File]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = _opened(path)
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


def _opened(path: Path) -> int:
    """Open and locked. A file that was removed while we waited for our turn is made anew."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            lock_in_turn(fd, path, PATIENCE)
            if path.exists() and path.stat().st_ino == os.fstat(fd).st_ino:
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(
        f"{path} cannot be written ({error.strerror or error}), and what is spent on records must be on file; name "
        "another place that all runs on them share, for example data.budget = '/home/me/study/budget.jsonl'."
    )
