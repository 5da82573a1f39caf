"""A site's part in a study: the checks before it, its roster, and its run among other organisations' processes.

    OUT/records-2    a link to the site's own file; 2 is its node
    OUT/journal      what the site may not forget: mass, outbox, released gradients
    OUT/run          a run directory like any other, with the ledger of this node

A step is the simulator's: the same loop, algorithm and reader. Only the exchange differs, and a gradient is in ledger
and journal before it is used. Started again with the same OUT, a site resumes where its disk says it was. Sites that
join, leave or are revoked change the exchange and nothing else: plan, ledger and certificate are this site's own.
"""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import gossamer
from gossamer.config.schema import RunConfig
from gossamer.consortium.authority import days_left
from gossamer.consortium.certificates import signed_by_site
from gossamer.consortium.contacts import Pace
from gossamer.consortium.exchange import AloneError, Epoch, LeftBehindError, PeerExchange
from gossamer.consortium.files import now
from gossamer.consortium.folders import KEY, ROSTER, Site
from gossamer.consortium.frames import largest_frame
from gossamer.consortium.journal import FileStorage, Journal, JournaledGradient
from gossamer.consortium.links import Links
from gossamer.consortium.roster import Roster, Span
from gossamer.consortium.study import Study
from gossamer.errors import UserError
from gossamer.results.certificate import account
from gossamer.results.headline import headline, title
from gossamer.results.rundir import OF_SITE, write_atomically
from gossamer.runtime.group import Alone
from gossamer.runtime.loop import run as run_loop
from gossamer.training.assemble import Parts, assemble
from gossamer.training.budget import places, prospects, refuse_unlisted
from gossamer.training.evaluate import Evaluation
from gossamer.training.plan import Plan
from gossamer.training.run import Outcome, Run

JOURNAL, LINKS_FILE = "journal", "links.json"
PLANNED = "the study's plan"  # the source of figures about other sites
_REMEDY = "its state is on disk: start it again when others are up, or let `gossamer peer leave` certify what was spent"
T = TypeVar("T")


@dataclass(frozen=True)
class Participation:
    """A site that can take part in a study; `open` makes all checks that need no connection."""

    site: Site
    study: Study
    roster: Roster  # the newest that the operator accepted
    config: RunConfig  # the recipe with this site's file and cap
    first: Span  # the epoch in which it begins
    sites: tuple[str, ...]  # in the order of their nodes
    warnings: tuple[str, ...]

    @classmethod
    def open(cls, study_file: Path, site_file: Path, folder: Path, at: datetime | None = None) -> Self:
        """`folder`: where this site keeps what belongs to the study; a link to its records is put there."""
        site = Site.read(site_file)
        warnings = site.check(at or now())
        roster = site.roster()
        study = Study.read(study_file, site.authority)
        study.check_accepted(roster)
        first = study.first_epoch(roster, site.name)
        if first is None:
            raise UserError(f"{site.name} is not in the study {study.name} of {', '.join(study.sites)}.")
        if study.gossamer != gossamer.__version__:
            versions = f"{study.gossamer!r}, and this site runs {gossamer.__version__}"
            warnings.append(f"{study.where} was packed by gossamer {versions}: run the same at all sites.")
        sites = study.nodes_for(site.name)
        config = study.config_at(site, folder, roster.site(site.name).records)
        return cls(site, study, roster, config, first, sites, tuple(warnings))

    @property
    def name(self) -> str:
        return self.site.name

    @property
    def revoked(self) -> bool:
        return self.roster.site(self.name).revoked

    @property
    def node(self) -> int:
        return self.sites.index(self.name)

    @property
    def nodes(self) -> range:
        """Hosted here."""
        return range(self.node, self.node + 1)

    def plan(self) -> Plan:
        """Plan the run; refuse where this machine would begin with another model than the others."""
        plan = Plan.of(self.config, nodes=self.nodes)
        self.study.check_first_model(plan)
        return plan

    def open_links(self) -> Links:
        """Open links to all sites of the roster over mutual TLS."""
        try:
            from gossamer.consortium.grpc_links import GrpcLinks, Identity
        except ModuleNotFoundError as error:
            raise UserError(f'{error.name} is not installed; pip install "gossamer[peers]".') from None
        site, roster = self.site, self.roster
        certificate = roster.site(site.name).certificate.encode()
        identity = Identity(site.name, roster.authority.encode(), certificate, site.file(KEY).read_bytes())
        members = self.study.members(roster).values()
        largest = largest_frame(self.study.model.parameters)
        return GrpcLinks(identity, members, site.listener, largest, version=gossamer.__version__)

    def check(self) -> list[str]:
        """Check all that needs no connection, and describe it; draws nothing and spends nothing."""
        study, site, roster = self.study, self.site, self.roster
        if self.revoked:
            raise UserError(f"{site.name} was revoked; `gossamer peer leave` certifies what it has spent.")
        plan = self.plan()
        privacy = plan.privacy
        parts = assemble(plan, nodes=self.nodes)
        later = study.epochs(roster)[1:]
        for number, sites in later:
            if site.name in sites and len(sites) > 1:
                epoch_with_graph(plan, number, sites)
        days = days_left(roster.site(site.name).parsed, now())
        lines = [
            f"study {study.name}, version {study.version}: signed by the authority that {site.name} knows",
            f"roster {roster.version}: {site.name} is node {self.node} of {', '.join(self.sites)}",
            *(f"from round {number} on: {', '.join(sites)}" for number, sites in later),
            f"certificate: good for {days} more days",
            f"records: {site.data_file()} can be read and fits; {privacy.nodes[self.node].records:,} are declared",
            f"first model: {study.model.digest[:16]}, as packed",
        ]
        if len(parts.test[0]):
            lines.append(f"test rows: {len(parts.test[0]):,}, as packed")
        for one in prospects([(plan, 1)], None, self.nodes, self.site.file(".")):
            one.refuse_above_cap()
            lines += account(one.figures())
        return lines

    def try_links(self, seconds: float, open_links: Callable[[], Links] | None = None) -> dict[str, str]:
        """Return each other site's link state once all are up or the time is over, and its version if another."""
        links = (open_links or self.open_links)()
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end and any(state != "up" for state in links.states().values()):
                time.sleep(0.05)
            here, versions = gossamer.__version__, links.versions()
            others = {name: f", gossamer {v} (here {here})" for name, v in versions.items() if v != here}
            return {name: state + others.get(name, "") for name, state in links.states().items()}
        finally:
            links.close()


def epoch_with_graph(plan: Plan, number: int, sites: tuple[str, ...]) -> Epoch:
    """Build the recipe's graph for the sites of an epoch."""
    config = plan.config
    try:
        graph = config.topology.build(nodes=len(sites), weights=plan.algorithm.weights, seed=config.seed)
    except UserError as error:
        what = f"from round {number} on the recipe has no graph for the sites {', '.join(sites)}"
        remedy = "let others join or leave, or pack the study again"
        raise UserError(f"{what}: {str(error).rstrip('.')}; {remedy}.") from None
    return Epoch(number, sites, graph)


class RosterFollower:
    """The roster that the operator accepted last, followed while the site takes part.

    A revoked site must lose its link within seconds, however long a round takes: call `update` in a thread of its own.
    """

    def __init__(self, participation: Participation, links: Links, say: Callable[[str], None]):
        self._site, self._study, self._roster = participation.site, participation.study, participation.roster
        self._links, self._say = links, say
        self._seen: tuple[int, int] | None = None
        self._failed: UserError | None = None
        self._lock = threading.Lock()

    def newest(self) -> Roster:
        """Return the newest roster, or raise what is wrong with it."""
        self.update()
        if self._failed is not None:
            raise self._failed
        return self._roster

    def update(self) -> None:
        """Look at the file, and change the links if there is a newer roster."""
        with self._lock:
            if self._failed is not None:
                return
            try:
                self._read()
            except UserError as error:
                self._failed = error
                self._links.close()  # a site that lost its right to a link has none, also after an error

    def _read(self) -> None:
        try:
            status = self._site.file(ROSTER).stat()
            mark = status.st_mtime_ns, status.st_ino
        except OSError:
            mark = None
        if mark is not None and mark == self._seen:
            return
        self._seen, roster = mark, self._site.roster()
        if roster.version <= self._roster.version:
            return
        if roster.site(self._site.name).revoked:
            self._links.close()
        else:
            self._links.update(self._study.members(roster).values())
        self._roster = roster
        self._say(f"roster {roster.version} is accepted and in force")


@contextmanager
def repeated(work: Callable[[], None], every: float = 1.0) -> Iterator[None]:
    """Call `work` every so many seconds in a thread of its own, and once at the end."""
    ended = threading.Event()

    def call() -> None:
        is_last = False
        while not is_last:
            is_last = ended.wait(every)
            work()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def take_part(
    participation: Participation,
    out: Path,
    *,
    wait: float = 3600.0,
    leaving: bool = False,
    open_links: Callable[[], Links] | None = None,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Train until the study's end and certify what was spent. `out` is the folder that `Participation.open` was given.

    `wait`: seconds, at the start for all others and later for anybody; `leaving`: run no further round, hand over what
    can be handed over and certify.
    """
    name = participation.name
    if (out / OF_SITE / "certificate.json").exists():
        raise UserError(f"{out / OF_SITE} holds the certificate of {name}: its part is done.")
    open_links = open_links or participation.open_links
    if participation.revoked:
        say(f"{name} was revoked: no link is opened, and what was spent is certified")
        leaving, open_links = True, Links
    plan = participation.plan()
    if not leaving:
        refuse_unlisted(places(plan.asked, None, participation.nodes), None, out.parent)
    parts = assemble(plan, nodes=participation.nodes)
    with ExitStack() as stack:
        storage = FileStorage(out / JOURNAL)  # a second process is refused here
        stack.callback(storage.close)
        journal = Journal(storage)
        group = OneSite(name, participation.node, len(participation.sites))
        run = _begin_or_resume(parts, group, out / OF_SITE, journal, leaving, participation.first[0])
        stack.enter_context(closing(run))
        links = open_links()
        stack.callback(links.close)
        roster = RosterFollower(participation, links, say)
        peer = _Peer(participation, run, journal, links, roster, wait, clock, say)
        with repeated(roster.update):
            peer.train(leaving=leaving)
        return peer.certify()


def _begin_or_resume(parts: Parts, group: OneSite, folder: Path, journal: Journal, leaving: bool, first: int) -> Run:
    """Begin a run, or resume the one that was stopped here; `first`: the first round of this site.

    A site that joins in the middle takes the noise and clip that the others have in that round; what was planned for
    the rounds before is not drawn, and not spent.
    """
    plan = parts.plan.privacy
    skipped = plan.draws_before + first * plan.draws_per_round if first else 0
    if not (folder / "manifest.json").exists():
        if leaving:
            raise UserError(f"{folder} holds no run: nothing was drawn, and there is nothing to leave.")
        shutil.rmtree(folder, ignore_errors=True)  # stopped before the manifest, so nothing is in the ledger
        run = Run.begin(parts, folder, group)
        run.done, run.reader.draws = first, skipped
        return run

    def restore(run: Run) -> None:
        contents, paid = journal.contents, sum(run.book.counts().values())
        # One draw may be in the ledger and not yet in the journal: nothing has been sent by then.
        if contents.meta is None and not contents.released and paid > 1 and not leaving:
            what = f"{folder.parent / JOURNAL} is empty, and {paid} draws were paid for"
            raise UserError(f"{what}; restore it, or let `gossamer peer leave` certify what was spent.")
        run.done = first if contents.meta is None else contents.meta["round"]
        run.reader.draws = skipped
        if contents.released:
            run.reader.restore(contents.released[max(contents.released)].after)

    return Run.resume(parts, folder, group, restore)


class OneSite(Alone):
    """A `Group` of one node without a barrier: what other nodes would report is None, and the plan is used instead."""

    spread = True

    def __init__(self, name: str, node: int, of: int):
        super().__init__(1)
        self.name, self.machine, self.size, self.nodes = name, name, of, range(node, node + 1)
        self.blocks = [self.nodes]

    def whose(self, node: int) -> str:
        return self.name if node in self.nodes else PLANNED

    def join(self, items: Sequence[T], *, per_node: bool = False) -> list[Any]:
        if not per_node:
            return list(items)
        return [items[0] if i in self.nodes else None for i in range(self.size)]


class _EpochDueError(Exception):
    """Another epoch has begun, here or where the others are."""

    def __init__(self, span: Span, round: int):
        super().__init__(f"an epoch begins with round {span[0]}")
        self.span, self.round = span, round


class _PartEndedError(Exception):
    """This site takes part no longer; the text is the reason."""


@dataclass
class _Peer:
    """A site from its first greeting to its certificate."""

    participation: Participation
    run: Run
    journal: Journal
    links: Links
    roster: RosterFollower
    wait: float
    clock: Callable[[], float]
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self._study, self._name = self.participation.study, self.participation.name
        self._plan = self.run.parts.plan
        self._rounds = self._plan.config.rounds
        self._reminder = ""  # printed once
        meta = self.journal.contents.meta
        span = self.participation.first if meta is None else (meta["epoch"], tuple(meta["sites"]))
        self._grad = JournaledGradient(self.run.reader, self.journal, paid=self.run.book.next_draw)
        self._exchange = self._exchange_in(span, span[0])
        self._first, self._state, self._grad.uses = self._exchange.resume()
        self._evaluate = Evaluation(self.run, Alone(1))

    def _exchange_in(self, span: Span, start: int) -> PeerExchange:
        """Make the exchange as the journal left it, or from round `start` on."""
        plan, terms = self._plan, self._study.terms
        self._scale = self._scale_in(span)
        return PeerExchange(
            name=self._name, study=self._study.digest, epoch=epoch_with_graph(plan, *span),
            algorithm=plan.algorithm, initial=self.run.state, start=start, rounds=self._rounds,
            links=self.links, journal=self.journal, clock=self.clock, uses=lambda: self._grad.uses,
            pace=Pace(terms.deadline, terms.late, self.wait, terms.tick), between=self._check_epoch,
        )  # fmt: skip

    def _scale_in(self, span: Span) -> float:
        roster = self.roster.newest()
        records = [roster.site(name).records for name in span[1]]
        return gradient_scale(self._plan, self.participation.node, records)

    def train(self, *, leaving: bool) -> None:
        """Run the remaining rounds; or greet the others before leaving, so that what is under way can be settled."""
        if leaving:
            if not self.participation.revoked:
                self._exchange.meet(self.clock() + self._study.terms.deadline)
            return
        folder = self.run.directory.path
        with repeated(lambda: write_links(folder, self._name, self._exchange.contacts.states())):
            self._state = self._train()

    def _begin(self) -> None:
        """Wait for everybody the first time; a site that comes back finds the others where they are.

        A site that joins takes the model of a neighbour, once that has begun the epoch too.
        """
        if self._exchange.epoch.number > 0 and not self._exchange.begun:
            self._join()
        else:
            self._meet()
        self.say(f"round {self._first} of {self._rounds}")

    def _meet(self) -> None:
        others, begun = self._exchange.contacts.others, self._exchange.begun
        self.say(f"{self._name} waits for {', '.join(others)}")
        missing = self._exchange.meet(self.clock() + (self._study.terms.deadline if begun else self.wait))
        if not begun and len(missing) == len(others) and self._exchange.contacts.ahead is None:
            raise UserError(f"none of {', '.join(missing)} was heard; start again when they are up.")
        if len(missing) == len(others):  # after a power cut all come back one by one
            self.say(f"not heard yet: {', '.join(missing)}; nothing is drawn until one of them is up")
        elif missing:
            self.say(f"not heard yet: {', '.join(missing)}; the others begin")

    def _join(self) -> None:
        number = self._exchange.epoch.number
        self.say(f"{self._name} joins at round {number} and waits for a neighbour's model")
        at, model = self._exchange.ask_model(self.clock() + self.wait)
        there = self._exchange.contacts.left_behind()  # the word of the model's sender alone is not enough
        furthest = there[0] if there is not None else number + self._study.terms.late
        self._first = min(max(at, number), furthest, self._rounds)
        self._state = self._plan.algorithm.init(model.to(self.run.parts.x0))
        self._exchange.adopt(self._state)

    def _train(self) -> Any:
        prepare: Callable[[], None] | None = self._begin
        while True:
            try:
                if prepare is not None:
                    prepare()
                    prepare = None
                return run_loop(
                    self._plan.algorithm, self._state, self._gradient, self._exchange,
                    rounds=self._rounds, start=self._first,
                    before_round=self._exchange.before_round, after_round=self._after_round,
                )  # fmt: skip
            except LeftBehindError as left:
                if len(left.by) == 1 and left.round >= self._rounds - self._study.terms.late:
                    here = f"{self._name} is in round {self._exchange.place.round}"
                    what = f"{left} of {self._rounds}, which no other site confirms; {here}"
                    raise UserError(f"{what}; {_REMEDY}.") from None
                self._first, self._state = left.round, left.state
                self.say(f"{left}: rounds before it are skipped and not paid")
            except _EpochDueError as change:
                prepare = partial(self._enter, change)
            except _PartEndedError as ended:
                self.say(str(ended))
                return self._state
            except AloneError as alone:
                if not self._others_finished():
                    raise UserError(f"{alone}; {_REMEDY}.") from None
                return self._state

    def _gradient(self, points: Any) -> Any:
        released = self._grad(points)
        return released if self._scale == 1.0 else self._scale * released

    def _check_epoch(self, t: int) -> None:
        """Before round t, and while this site waits there: look whether another epoch has begun."""
        exchange, roster = self._exchange, self.roster.newest()
        if roster.site(self._name).revoked:
            raise _PartEndedError(f"{self._name} was revoked: what was spent is certified")
        at, reached, ahead = t, t, exchange.contacts.ahead
        if ahead is not None and not (exchange.isolated or ahead[1] > t + self._study.terms.late):
            ahead = None  # the others still exchange with this site
        if ahead is not None:
            reached, at = max(t, ahead[0]), max(t, *ahead)
        span = self._study.later_epoch(roster, exchange.epoch.number, reached)
        if span is not None:
            raise _EpochDueError(span, min(at, self._rounds))
        if ahead is not None:
            message = f"the others are in the epoch of round {ahead[0]}: accept the newest roster"
            if message != self._reminder:
                self._reminder = message
                self.say(message)

    def _enter(self, change: _EpochDueError) -> None:
        """Enter the next epoch. A site that has nothing on disk yet begins with it."""
        number, sites = change.span
        if self._name not in sites:
            self._state = self._exchange.leave(change.round, self._state)
            raise _PartEndedError(f"{self._name} leaves at round {number}")
        if len(sites) < 2:
            raise _PartEndedError(f"no other site is left from round {number} on")
        self.say(f"from round {number} on: {', '.join(sites)}")
        self._first = change.round
        if self._exchange.begun:
            self._scale = self._scale_in(change.span)
            epoch = epoch_with_graph(self._plan, number, sites)
            self._state = self._exchange.enter(epoch, change.round, self._state)
        else:
            self._exchange = self._exchange_in(change.span, change.round)
            self._begin()

    def _others_finished(self) -> bool:
        """Tell whether only the last few rounds are missing here."""
        contacts, at = self._exchange.contacts, self._exchange.place.round
        heard = [contacts[site].heard for site in contacts.others]
        furthest = max((place.round for place in heard if place is not None), default=0)
        return max(min(furthest, at + self._study.terms.late), at) >= self._rounds - 1

    def _after_round(self, t: int, state: Any) -> None:
        self._exchange.after_round(t, state)
        self._state, self.run.done = state, t + 1
        if t + 1 not in self._evaluate.rounds:
            return
        row = self._evaluate(t + 1, state)
        figures = {
            **own_figures(row),
            "links": self._exchange.contacts.states(),
            "bytes_sent": self._exchange.contacts.bytes_sent,
            "seconds": self.run.elapsed,
        }
        self.run.directory.append_metrics(figures)
        self.say(progress_line(figures, self._rounds))

    def certify(self) -> Outcome:
        """Settle what is still under way, then certify: this site is done, also if others are not."""
        self._exchange.finish()
        run, node = self.run, self.participation.node
        run.state = self._state

        def sign(certificate: dict[str, Any]) -> dict[str, Any]:
            return signed_by_site(
                certificate, self._study, self._name, self.participation.site.key(),
                ledger_head=run.book.heads()[node], events=run.book.counts()[node], at=now(),
            )  # fmt: skip

        return run.finish(rounds=self._exchange.rounds_run, average=False, sign=sign)


def write_links(folder: Path, site: str, states: Mapping[str, str]) -> None:
    """Keep links.json up to date for the live page. A full disk stops nothing else."""
    path, text = folder / LINKS_FILE, json.dumps({"site": site, "links": dict(states)}) + "\n"
    with suppress(OSError):
        if not path.exists() or path.read_text() != text:
            write_atomically(path, text.encode())  # the page may be reading


def gradient_scale(plan: Plan, node: int, records: Sequence[int]) -> float:
    """Return how much more than planned a node's gradient counts among sites with so many records.

    With weighting = "size" a site counts by its share of all records, which changes with the sites.
    """
    if plan.config.weighting != "size":
        return 1.0
    planned = plan.privacy.nodes[node]
    return planned.records * len(records) / sum(records) / planned.weight


def own_figures(row: dict[str, Any]) -> dict[str, Any]:
    """Select the figures of one node's evaluation that do not speak for all nodes."""
    about_all = ("consensus_distance", "push_sum_mass")
    shared = [key for key in row if key in about_all or key.endswith("_average_model")]
    own = {key: value for key, value in row.items() if key not in shared}
    return own if "push_sum_mass" not in row else {**own, "push_sum_weight": row["push_sum_mass"]}


def progress_line(row: dict[str, Any], rounds: int) -> str:
    name = headline(row)
    quality = f", {title(name)} {row[f'{name}_mean']:.3f}" if name and f"{name}_mean" in row else ""
    away = [f"{site} {state}" for site, state in row["links"].items() if state != "up"]
    spent = row["epsilon_proven"]
    epsilon = f", planned ε {spent:.3g}" if spent is not None and math.isfinite(spent) else ""
    return f"round {row['round']} of {rounds}{quality}{epsilon}{'; ' if away else ''}{', '.join(away)}"
