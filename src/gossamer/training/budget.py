"""Accounts of the user's own records: what a run spends on them is on file before its first release.

Accounts are in the folder `data.accounts`, or the user's own; `privacy.account` is the name of one. With a file per
node each node's host keeps its own nodes' accounts, and no other host sees them; of one file for all nodes each machine
that holds it keeps one account. A digest of a private file lets anyone who has it test guesses, so it is written into
accounts only, and never sent. Public and made-up sets have no account.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from gossamer.accounting import budget
from gossamer.accounting.budget import Account, History, Source, Spending, Total, default_folder, total
from gossamer.accounting.ledger import read_groups
from gossamer.accounting.releases import Event, collate
from gossamer.config.layers import stored
from gossamer.config.schema import RunConfig
from gossamer.data.own import PLACE, OwnFile
from gossamer.data.partition import Even, Owner
from gossamer.errors import UserError
from gossamer.results.certificate import SEEDED
from gossamer.results.rundir import OF_SITE, RUNS, read_manifest
from gossamer.runtime.group import Group
from gossamer.training.plan import Plan

NO_NOISE = "no noise: no privacy"
UNNAMED = "a run on one of the nodes' records is one without a proof"


@dataclass(frozen=True)
class Place:
    """A file of records: its account, and the nodes that hold them."""

    source: Source
    nodes: tuple[int, ...]
    holder: str | None  # the column that says which of them holds a record


@lru_cache(maxsize=64)
def _digest(file: Path, changed: int, size: int) -> str:
    """Of its bytes; read again only where the file has changed since."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def places(config: RunConfig, data_dir: Path | None, nodes: Iterable[int], *, shared: bool = True) -> list[Place]:
    """Those of the nodes hosted here; `shared`: also that of one file for all nodes."""
    data = config.data
    if not isinstance(data, OwnFile):
        return []

    def place(node: int | None, nodes: tuple[int, ...], holder: str | None = None) -> Place:
        file = data.file_of(node, data_dir)
        status, name = file.stat(), config.privacy.account
        digest = _digest(file, status.st_mtime_ns, status.st_size)
        if name is not None and node is not None:
            name = name.replace(PLACE, str(node))
        folder = default_folder() if data.accounts is None else Path(data.accounts).expanduser()
        return Place(Source(file, digest, folder.resolve(), name), nodes, holder)

    if data.file_per_node:
        return [place(i, (i,)) for i in (range(config.nodes) if config.baseline == "central" else nodes)]
    fixed = data.owner if data.partition in (Even(), Owner()) else None
    return [place(None, tuple(range(config.nodes)), fixed)] if shared else []


@dataclass
class Accounts:
    """The accounts that this process keeps of one run."""

    plan: Plan
    places: Sequence[Place]
    run: str
    times: int = 1
    directory: Path | None = None  # the run's
    reserved: list[Place] = field(default_factory=list)

    @classmethod
    def of_run(cls, o: Plan, group: Group, run: str, directory: Path) -> Accounts:
        """Those of a run's process; run directories next to its own show whether an account lacks their runs."""
        held = places(o.asked, o.data_dir, group.nodes, shared=group.first_here)
        accounts = cls(o, held, run, directory=directory)
        if held:
            refuse_unlisted(held, o.data_dir, directory.parent)
        return accounts

    def reserve(self, at: str) -> list[Total]:
        """Before the first release; what was reserved by this very run counts once. Raises where it passes a cap."""
        totals = []
        for place in self.places:
            planned = self.spending(place, at)
            name, together = budget.reserve(place.source, planned, self.plan.asked.privacy.cap)
            totals.append(together)
            # The file may change while the run is under way.
            self.reserved.append(replace(place, source=replace(place.source, name=name)))
        return totals

    def refuse_copy(self) -> None:
        """A directory to resume whose run has gone further elsewhere: what it would draw was never reserved."""
        for place in self.places:
            here = self.spending(place, now(), self.directory)
            listed = Account(place.source).of_run(here)
            if listed is None or here.no_privacy is not None:
                continue
            original = None if listed.directory is None else Path(listed.directory)
            if original is not None and str(original) != here.directory and _run_of(original) == self.run:
                raise UserError(
                    f"{self.directory} is a copy of {original}, and its run counts once; resume that one, or delete it "
                    "and this will do."
                )
            if listed.settled and listed.draws > here.draws:
                raise UserError(
                    f"{self.directory} has fewer draws in its ledgers than its run was settled for in the account: the "
                    "run ended elsewhere; use what it left there."
                )

    def settle(self, at: str, ledgers: Path | None) -> list[Total]:
        """Enter what the ledgers here state; of nodes with a ledger elsewhere, what was planned. None: nothing."""
        return [budget.settle(place.source, self.spending(place, at, ledgers, settled=True)) for place in self.reserved]

    def spending(self, place: Place, at: str, ledgers: Path | None = None, *, settled: bool = False) -> Spending:
        """Return the run's releases about the place's records: as planned, or as the ledgers here say that it happened.

        Of nodes whose ledger is elsewhere what was planned counts; settled without ledgers, nothing happened.
        """
        o, settled = self.plan, settled or ledgers is not None
        written: dict[int, set[int]] = {}  # node → draws on file
        for one in read_groups(ledgers) if ledgers is not None else ():
            on_file = {event.draw for event in one.events}
            written |= dict.fromkeys(one.nodes, on_file)
        planned: dict[tuple[Any, ...], list[Event]] = {}
        histories: dict[tuple[Any, ...], list[int]] = {}
        deltas = []
        for i in place.nodes:
            at_node = 0 if o.pool is not None else i  # the central baseline has one node for all records
            node = o.privacy.nodes[at_node]
            if node.spends not in planned:
                planned[node.spends] = o.privacy.planned(node)
            events = planned[node.spends]
            if settled:
                draws = written.get(at_node) if ledgers is not None else set()
                events = events if draws is None else [event for event in events if event.draw in draws]
            histories.setdefault(tuple(collate(events)), []).append(i)
            deltas.append(node.delta)
        return Spending(
            run=self.run,
            node=place.nodes[0],
            records=str(place.source.file),
            digest=place.source.digest,
            name=o.asked.name,
            at=at,
            delta=min(deltas),
            adjacency=o.privacy.adjacency,
            no_privacy=NO_NOISE if not o.privacy.noise.adds else SEEDED if o.seeded else None,
            holder=place.holder,
            times=self.times,
            histories=tuple(History(tuple(nodes), releases) for releases, nodes in histories.items()),
            settled=settled,
            unit=o.privacy.unit,
            directory=None if self.directory is None else str(self.directory.resolve()),
        )


def refuse_unlisted(held: Sequence[Place], data_dir: Path | None, folder: Path) -> None:
    """Refuse where a run directory in this folder was on the same records and their account does not list it.

    A site keeps each study in a folder of its own, with the run directory in it.
    """
    # Before the accounts, which grow.
    manifests = sorted({*folder.glob("*/manifest.json"), *folder.glob(f"*/{OF_SITE}/manifest.json")})
    directories = [manifest.parent for manifest in manifests]
    runs = {directory: run for directory in directories if (run := _run_of(directory)) is not None}
    for place in held:
        listed = {one.run for one in Account(place.source).spendings}
        for directory in (directory for directory, run in runs.items() if run not in listed):
            if any(place.source.is_of(other) for other in _sources_of(directory, data_dir)):
                raise UserError(
                    f"{directory} is a run on {place.source.file}, and no account of them in {place.source.folder} "
                    "lists it; put the account back as it was, name its folder (data.accounts), or, if the run was on "
                    "other people's records, move its directory away."
                )


def _run_of(directory: Path) -> str | None:
    try:
        return str(read_manifest(directory)["run"])
    except (UserError, OSError):  # not a run directory
        return None


def _sources_of(directory: Path, data_dir: Path | None) -> list[Source]:
    """The records of a run, where they are the user's own and still there."""
    with suppress(UserError, OSError):  # of another version, or half written
        config = stored(directory / "config.toml")
        return [source for node in range(config.nodes) for source in _sources_at(config, data_dir, node)]
    return []


def _sources_at(config: RunConfig, data_dir: Path | None, node: int) -> list[Source]:
    """A node's records; none where they are on another machine."""
    with suppress(UserError, OSError):
        return [place.source for place in places(config, data_dir, [node], shared=node == 0)]
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
    """An account, with what runs would add to it."""

    account: Account
    planned: Sequence[Spending]
    cap: float | None  # of the runs

    @cached_property
    def before(self) -> Total:
        return total(self.account.spendings)

    @cached_property
    def together(self) -> Total:
        return total([*self.account.spendings, *self.planned])

    def refuse_above_cap(self) -> None:
        budget.refuse_above(self.account, self.planned, self.together, self.before, self.cap)

    def figures(self) -> dict[str, Any]:
        return {
            **asdict(self.together),
            "account": self.name,
            "account_note": self.note,
            "cap": min((cap for cap in (self.cap, self.account.cap) if cap is not None), default=None),
            "epsilon_before": self.before.epsilon,
            "runs_before": self.before.runs,
        }

    @property
    def name(self) -> str | None:
        """A new account that was given none gets one when a run begins."""
        return self.account.source.name if self.account.is_new else self.account.name

    @property
    def note(self) -> str | None:
        account = self.account
        if account.is_new:
            return (
                f"new: {account.source.folder} has none of these records; if their people have an account, give its "
                "name as privacy.account"
            )
        if not account.lists_content:
            return "no run so far was on records with exactly this content; it counts them as the same people's"
        return None


def prospects(
    wanted: Sequence[tuple[Plan, int]],
    data_dir: Path | None,
    nodes: Iterable[int] | None = None,
    runs: Path = RUNS,
) -> list[Prospect]:
    """Of every account: what was spent, and with these runs, each so many times. Writes nothing.

    `runs`: the folder of earlier run directories.
    """
    accounts: dict[tuple[Path, str], tuple[Account, list[Spending]]] = {}
    for k, (o, times) in enumerate(wanted):
        held = places(o.asked, data_dir, range(o.asked.nodes) if nodes is None else nodes)
        refuse_unlisted(held, data_dir, runs)
        for place in held:
            account = Account(place.source)
            # A new account without a name is that of the content.
            key = place.source.folder, place.source.digest if account.is_new else account.name
            _, planned = accounts.setdefault(key, (account, []))
            if times:
                planned.append(Accounts(o, held, f"planned {k}", times).spending(place, "now"))
    cap = min((o.asked.privacy.cap for o, _ in wanted if o.asked.privacy.cap is not None), default=None)
    return [Prospect(account, planned, cap) for account, planned in accounts.values()]


def preview(
    wanted: Sequence[tuple[Plan, int]], data_dir: Path | None, nodes: Iterable[int] | None = None
) -> dict[str, Any] | None:
    """The figures of the account to which most would be charged; None where none is kept."""
    most = max(prospects(wanted, data_dir, nodes), key=lambda one: one.together.epsilon, default=None)
    return None if most is None else most.figures()


def refuse_above_cap(wanted: Sequence[tuple[Plan, int]], data_dir: Path | None) -> None:
    """All of these runs, before the first of them begins."""
    for one in prospects(wanted, data_dir):
        one.refuse_above_cap()
