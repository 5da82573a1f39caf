"""Budget accounts of the user's own records: what a run spends on them is on file before its first release.

Every file of records has its account in a `budget.jsonl`: in the file's own folder, or where `data.budget` says. With a
file per node each node's host keeps its own nodes' accounts, and no other host sees them; of one file for all nodes
each machine that holds it keeps one account. A digest of a private file lets anyone who has it test guesses, so it is
written next to the file and into the user's own register only, and never sent. Public and made-up sets have no account.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from gossamer.accounting import budget
from gossamer.accounting.budget import History, Spending, Total, total
from gossamer.accounting.ledger import read_groups
from gossamer.accounting.releases import Event, collate
from gossamer.config.layers import stored
from gossamer.config.schema import RunConfig
from gossamer.data.own import OwnFile
from gossamer.data.partition import Even, Owner
from gossamer.errors import UserError
from gossamer.results.certificate import SEEDED
from gossamer.results.rundir import read_manifest
from gossamer.runtime.group import Group
from gossamer.training.plan import Plan

UNNAMED = "a run on one of the nodes' records is one without a proof"


@dataclass(frozen=True)
class Place:
    """A file of records, and where its account is."""

    file: Path
    account: Path
    nodes: tuple[int, ...]  # that hold its records
    holder: str | None  # the column that says which of them holds a record

    @property
    def records(self) -> str:
        """The file as its account names it."""
        return self.file.name if self.file.parent == self.account.parent else str(self.file)

    @property
    def digest(self) -> str | None:
        """As the account has it: only next to the file."""
        return self.listed()[2] if self.file.parent == self.account.parent else None

    def listed(self) -> budget.Listed:
        """As the user's register has it."""
        status = self.file.stat()
        digest = _digest(self.file, status.st_mtime_ns, status.st_size)
        return budget.register(digest), str(self.file), digest

    def known(self) -> tuple[list[Spending], float | None]:
        """(what was spent on these records by the account and the register, the owner's cap)"""
        own, listed = budget.read(self.account), budget.read(self.listed()[0])
        caps = [cap for cap in (own.cap, listed.cap) if cap is not None]
        return budget.joined(own.of(self.records, self.digest), listed.spendings), min(caps, default=None)


@lru_cache(maxsize=64)
def _digest(file: Path, changed: int, size: int) -> str:
    """Of its bytes; read again only where the file has changed since."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def places(
    config: RunConfig, data_dir: Path | None, nodes: Iterable[int], *, shared: bool = True
) -> list[Place]:
    """Those of the nodes hosted here; `shared`: also that of one file for all nodes."""
    data = config.data
    if not isinstance(data, OwnFile):
        return []

    def place(node: int | None, nodes: tuple[int, ...], holder: str | None = None) -> Place:
        file = data.file_of(node, data_dir)
        return Place(file, data.budget_of(node, file), nodes, holder)

    if data.file_per_node:
        return [place(i, (i,)) for i in (range(config.nodes) if config.baseline == "central" else nodes)]
    fixed = data.owner if data.partition in (Even(), Owner()) else None
    return [place(None, tuple(range(config.nodes)), fixed)] if shared else []


def spending(
    o: Plan,
    place: Place,
    run: str,
    at: str,
    *,
    times: int = 1,
    happened: Callable[[int, Event], bool] | None = None,
) -> Spending:
    """What the run releases about the place's records, as planned; `happened` leaves out what did not."""
    # The central baseline has one node for all records.
    plans = {i: o.privacy.nodes[0 if o.pool is not None else i] for i in place.nodes}
    planned: dict[tuple[Any, ...], list[Event]] = {}
    histories: dict[tuple[Any, ...], list[int]] = {}
    for i, node in plans.items():
        if node.spends not in planned:
            planned[node.spends] = o.privacy.planned(node)
        events = [event for event in planned[node.spends] if happened is None or happened(i, event)]
        histories.setdefault(tuple(collate(events)), []).append(i)
    return Spending(
        run=run,
        records=place.records,
        digest=place.digest,
        name=o.asked.name,
        at=at,
        delta=min(node.delta for node in plans.values()),
        adjacency=o.privacy.adjacency,
        no_privacy=SEEDED if o.seeded and o.privacy.noise.adds else None,
        holder=place.holder,
        times=times,
        histories=tuple(History(tuple(nodes), releases) for releases, nodes in histories.items()),
        settled=happened is not None,
        unit=o.privacy.unit,
    )


@dataclass
class Accounts:
    """The accounts that this process keeps of one run."""

    plan: Plan
    places: Sequence[Place]
    run: str
    times: int = 1
    reserved: list[Place] = field(default_factory=list)

    @classmethod
    def of_run(cls, o: Plan, group: Group, run: str, folder: Path) -> Accounts:
        """Those of a run's process; `folder` is searched for runs on the same records that no account lists."""
        accounts = cls(o, places(o.asked, o.data_dir, group.nodes, shared=group.first_here), run)
        if accounts.places:
            accounts._refuse_unlisted(folder)
        return accounts

    def reserve(self, at: str) -> list[Total]:
        """Before the first release; what was reserved by this very run counts once. Raises where it passes a cap."""
        totals = []
        for place in self.places:
            planned = spending(self.plan, place, self.run, at, times=self.times)
            totals.append(budget.reserve(place.account, planned, self.plan.asked.privacy.cap, place.listed()))
            self.reserved.append(place)
        return totals

    def _refuse_unlisted(self, folder: Path) -> None:
        """A run directory here whose run is in no account: then the account is not what it was."""
        runs = []  # before the accounts, which grow
        for manifest in sorted(folder.glob("*/manifest.json")):
            with suppress(UserError, OSError):  # not a run directory
                runs.append((str(read_manifest(manifest.parent)["run"]), manifest.parent))
        for place in self.places:
            listed = {s.run for s in place.known()[0]}
            for directory in (directory for run, directory in runs if run not in listed):
                if place.file in _files_of(directory, self.plan.data_dir):
                    raise UserError(
                        f"{directory} is a run on {place.file}, and {place.account} does not list it: put that file "
                        "back as it was, or, if the run was on other records, move its directory away."
                    )

    def settle(self, at: str, ledgers: Path | None) -> list[Total]:
        """What the ledgers here say happened; of nodes whose ledger is elsewhere, what was planned. None: nothing."""
        draws: dict[int, set[int]] = {}
        if ledgers is not None and self.reserved:
            for one in read_groups(ledgers):
                written = {event.draw for event in one.events}
                draws |= dict.fromkeys(one.nodes, written)

        def happened(i: int, event: Event) -> bool:
            node = 0 if self.plan.pool is not None else i
            return ledgers is not None and (node not in draws or event.draw in draws[node])

        return [
            budget.settle(
                place.account,
                spending(self.plan, place, self.run, at, times=self.times, happened=happened),
                place.listed(),
            )
            for place in self.reserved
        ]


def _files_of(directory: Path, data_dir: Path | None) -> list[Path]:
    """The records of a run, where they are the user's own and still there."""
    try:
        config = stored(directory / "config.toml")
        return [place.file for place in places(config, data_dir, range(config.nodes))]
    except (UserError, OSError):  # of another version, or half written
        return []


def charge(o: Plan, times: int, data_dir: Path | None) -> dict[str, Any] | None:
    """Reserve so many runs that leave no ledgers, in this process: an audit's trainings."""
    accounts = Accounts(o, places(o.asked, data_dir, range(o.asked.nodes)), secrets.token_hex(8), times)
    return worst(accounts.reserve(now()), o.asked.privacy.cap)


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def everyones(totals: Sequence[Total], group: Group) -> list[Total]:
    """All processes' totals. A host's earlier runs stay its own: of them only figures travel."""
    if group.size > 1:
        totals = [replace(t, because=t.because and UNNAMED, provable=None) for t in totals]
    return [Total(**total) for own in group.join([[asdict(t) for t in totals]]) for total in own]


def worst(totals: Sequence[Total], cap: float | None = None) -> dict[str, Any] | None:
    """The figures of the records on which most was spent; None where no account is kept."""
    most = max(totals, key=lambda t: t.epsilon, default=None)
    return None if most is None else {**asdict(most), "cap": cap}


@dataclass(frozen=True)
class Prospect:
    """The account of one file, with what runs would add to it."""

    account: Path
    before: Total
    together: Total
    cap: float | None  # of the runs
    owners: float | None  # the account's own


def prospects(
    wanted: Sequence[tuple[Plan, int]], data_dir: Path | None, nodes: Iterable[int] | None = None
) -> list[Prospect]:
    """Of every file of records: what was spent, and with these runs, each so many times. Writes nothing."""
    files: dict[Path, tuple[Place, list[Spending]]] = {}
    for k, (o, times) in enumerate(wanted):
        for place in places(o.asked, data_dir, range(o.asked.nodes) if nodes is None else nodes):
            _, planned = files.setdefault(place.file, (place, []))
            if times:
                planned.append(spending(o, place, f"planned {k}", "now", times=times))
    cap = min((o.asked.privacy.cap for o, _ in wanted if o.asked.privacy.cap is not None), default=None)
    known = [(place, *place.known(), planned) for place, planned in files.values()]
    return [
        Prospect(place.account, total(spent), total([*spent, *planned]), cap, owners)
        for place, spent, owners, planned in known
    ]


def preview(
    wanted: Sequence[tuple[Plan, int]], data_dir: Path | None, nodes: Iterable[int] | None = None
) -> dict[str, Any] | None:
    """The figures of the records on which most would be spent; None where no account is kept."""
    most = max(prospects(wanted, data_dir, nodes), key=lambda one: one.together.epsilon, default=None)
    if most is None:
        return None
    return {
        **asdict(most.together),
        "cap": min((cap for cap in (most.cap, most.owners) if cap is not None), default=None),
        "epsilon_before": most.before.epsilon,
        "runs_before": most.before.runs,
    }


def refuse_above_cap(wanted: Sequence[tuple[Plan, int]], data_dir: Path | None) -> None:
    """All of these runs, before the first of them begins."""
    for one in prospects(wanted, data_dir):
        budget.refuse_above(one.account, one.together, one.before, one.cap, one.owners)
