"""One site's part in a study: `gossamer run` of one node, whose neighbours are other organisations' processes.

    OUT/records-2    a link to the site's own file; 2 is its node
    OUT/journal      what the site may not forget: mass, outbox, released gradients
    OUT/run          a run directory like any other, with the ledger of this node

A step is the simulator's: the same loop, algorithm and reader. What differs is the exchange, and that a gradient is in
ledger and journal before it is used. Started again with the same OUT, a site goes on where its disk says it was. Sites
that join, leave or are revoked change the exchange and nothing else: plan, ledger and certificate are this site's own.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gossamer
from gossamer.consortium.accepted import AcceptedRoster
from gossamer.consortium.authority import pem
from gossamer.consortium.certificates import signed_by_site
from gossamer.consortium.contacts import Pace
from gossamer.consortium.epochs import Span, built, due, members_of, rescaled
from gossamer.consortium.exchange import AloneError, LeftBehindError, PeerExchange
from gossamer.consortium.figures import line, own_figures
from gossamer.consortium.frames import longest
from gossamer.consortium.group import OneSite
from gossamer.consortium.journal import FileStorage, Journal, NoStorage
from gossamer.consortium.links import Links, NoLinks
from gossamer.consortium.names import now
from gossamer.consortium.ready import Ready
from gossamer.consortium.released import Replayed
from gossamer.consortium.rules import Averages, channel_of, rule_of
from gossamer.consortium.shown_links import shown_links
from gossamer.errors import UserError
from gossamer.methods.km.algorithm import KM
from gossamer.results.files import read_object
from gossamer.results.seals import CHECKPOINT, STOPPED
from gossamer.runtime.group import Alone
from gossamer.runtime.loop import run as run_loop
from gossamer.training.assemble import Parts, assemble
from gossamer.training.evaluate import Evaluation
from gossamer.training.run import Run

JOURNAL, RUN = "journal", "run"
_HOW_ON = "its state is on disk: start it again when others are up, or let `gossamer peer leave` certify what was spent"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What one site has at the end."""

    certificate: dict[str, Any]
    figures: dict[str, Any]  # of its own model, on the study's public rows
    directory: Path


@dataclass(frozen=True)
class Manner:
    """How a site takes part, besides what the study says."""

    wait: float = 3600.0  # seconds: at the start for all others, later for anybody
    leaving: bool = False  # no further round: hand over what can be handed over, and certify what was spent
    clock: Callable[[], float] = time.monotonic
    say: Say = lambda sentence: None


def open_links(found: Ready) -> Links:
    """To all sites of the roster, over mutual TLS."""
    try:
        from gossamer.consortium.grpc_links import GrpcLinks
        from gossamer.consortium.identity import Identity
    except ModuleNotFoundError as error:
        raise UserError(
            f'{error.name} is not installed: links between sites need it; pip install "gossamer[peers]".'
        ) from None
    site = found.site
    identity = Identity(
        pem(found.roster.authority).encode(), site.certificate_file.read_bytes(), site.key_file.read_bytes()
    )
    members, most = members_of(found.study, found.roster).values(), longest(found.study.body.model.parameters)
    return GrpcLinks(identity, members, site.listen, most, version=gossamer.__version__)


def take_part(
    found: Ready,
    out: Path,
    manner: Manner | None = None,
    links: Callable[[Ready], Links] = open_links,
) -> Outcome:
    """Until the study's end and this site's certificate. `out` is the folder that `ready` was given."""
    if (out / RUN / "certificate.json").exists():
        raise UserError(f"{out / RUN} holds the certificate of {found.site.name}: its part is done.")
    manner = manner or Manner()
    if found.revoked:
        manner.say(f"{found.site.name} was revoked: no link is opened, and what was spent is certified")
        manner, links = replace(manner, leaving=True), lambda found: NoLinks()
    parts = assemble(found.plan(), nodes=found.nodes)
    durable = found.site.asked.durable == "on"
    storage = FileStorage(out / JOURNAL) if durable else NoStorage()  # a second process is refused here
    open_still = ExitStack()
    try:
        open_still.callback(storage.close)
        journal = Journal(storage)
        group = OneSite(found.site.name, found.node, len(found.sites))
        start = found.first[0]
        with closing(_begun(parts, group, out / RUN, journal, durable, manner.leaving, start)) as run:
            carrier = links(found)
            open_still.callback(carrier.close)
            accepted = AcceptedRoster(found, carrier, manner.say)
            open_still.callback(accepted.close)
            peer = _Peer(found, run, group, journal, carrier, accepted, manner)
            peer.train()
            accepted.close()
            peer.hand_over()
            open_still.pop_all()  # all are closed
            return peer.certified()
    finally:
        open_still.close()


def _begun(
    parts: Parts, group: OneSite, folder: Path, journal: Journal, durable: bool, leaving: bool, start: int
) -> Run:
    """A new run, or the one that was stopped here; `start`: the first round of this site.

    Who joins in the middle takes the noise and clip that the others have in that round; what was planned for the rounds
    before is not drawn, and not spent.
    """
    plan = parts.plan.privacy
    skipped = plan.draws_before + start * plan.draws_per_round if start else 0
    if not (folder / "manifest.json").exists():
        if leaving:
            raise UserError(f"{folder} holds no run: nothing was drawn, and there is nothing to leave.")
        shutil.rmtree(
            folder, ignore_errors=True
        )  # stopped before it began: a ledger comes after the manifest
        run = Run.begin(parts, folder, group)
        run.done, run.reader.draws = start, skipped
        return run

    def take_up(run: Run) -> None:
        held, paid = journal.contents, sum(run.book.counts().values())
        # One draw may be in the ledger and not yet in the journal: nothing has been sent by then.
        if held.meta is None and not held.released and paid > 1 and not leaving:
            why = "is missing or empty" if durable else 'was not kept (durable = "off")'
            raise UserError(
                f"{folder.parent / JOURNAL} {why}, and {paid} draws were paid for: a site that begins "
                "anew would bring mass that others hold; put it back, or let `gossamer peer leave` certify what was "
                "spent."
            )
        run.done = start if held.meta is None else held.meta["round"]
        run.reader.draws = skipped
        if held.released:
            run.reader.restore(held.released[max(held.released)].after)

    return Run.resume(parts, folder, group, take_up)


class _EpochDueError(Exception):
    """Another epoch has begun, here or where the others are."""

    def __init__(self, span: Span, round: int):
        super().__init__(f"an epoch begins with round {span[0]}")
        self.span, self.round = span, round


class _PartEndedError(Exception):
    """This site takes part no longer; why, in a sentence."""


class _Peer:
    """A site from its first greeting to its certificate."""

    def __init__(
        self,
        found: Ready,
        run: Run,
        group: OneSite,
        journal: Journal,
        links: Links,
        accepted: AcceptedRoster,
        manner: Manner,
    ):
        self._found, self._run, self._group, self._manner = found, run, group, manner
        self._parts = parts = run.parts
        self._links, self._journal, self._accepted = links, journal, accepted
        self._plan, self._rounds = parts.plan, parts.plan.config.rounds
        self._said: set[str] = set()
        held = journal.contents.meta
        span = found.first if held is None else (held["epoch"], tuple(held.get("sites", found.study.sites)))
        self._grad = Replayed(run.reader, journal, paid=run.book.next_draw)
        self._exchange = self._exchange_in(span, span[0])
        self._first, self._state, self._grad.uses = self._exchange.resume()
        self._evaluate = Evaluation(run, Alone(1))
        self._figures: dict[str, Any] = run.directory.last_metrics()

    def _exchange_in(self, span: Span, start: int) -> PeerExchange:
        """As the journal left it, or from round `start` on."""
        found, o, terms = self._found, self._plan, self._found.study.terms
        self._count(span)
        return PeerExchange(
            name=found.site.name,
            study=bytes.fromhex(found.study.identity),
            epoch=built(o, *span),
            rule=rule_of(o.algorithm, {KM: Averages(tracks=False)}),
            links=self._links,
            journal=self._journal,
            pace=Pace(terms.deadline, terms.late, self._manner.wait, terms.tick),
            initial=self._run.state,
            start=start,
            channels=lambda t, call: channel_of(o.algorithm, t, call),
            uses=lambda: self._grad.uses,
            model=o.algorithm.model,
            between=self._between,
            clock=self._manner.clock,
            rounds=self._rounds,
        )

    def _count(self, span: Span) -> None:
        roster = self._accepted.newest()
        records = [roster.site(name).records for name in span[1]]
        self._scale = rescaled(self._plan, self._found.node, records)

    def train(self) -> None:
        """The rounds that are left; of a site that leaves, none."""
        if self._manner.leaving:
            if not self._found.revoked:
                self._exchange.meet(self._manner.clock() + self._found.study.terms.deadline)
            return
        try:
            with shown_links(self._run.directory.path, self._found.site.name, self._exchange.states):
                self._state = self._train()
        except (KeyboardInterrupt, OSError):
            with suppress(OSError):
                self._run.seal(STOPPED, self._run.done, {})
            raise

    def hand_over(self) -> None:
        """What is still under way; then this site is done, whatever the others do."""
        self._exchange.finish()

    def _begin(self) -> None:
        """The first time everybody is waited for; one that comes back finds the others where they are.

        Who joins takes the model of a neighbour, once that has begun the epoch too.
        """
        if self._exchange.epoch.number > 0 and not self._exchange.begun:
            self._join()
        else:
            self._meet()
        self._manner.say(f"round {self._first} of {self._rounds}")

    def _meet(self) -> None:
        deadline = self._found.study.terms.deadline
        others = self._exchange.contacts.others
        self._manner.say(f"{self._found.site.name} waits for {', '.join(others)}")
        begun = self._exchange.begun
        missing = self._exchange.meet(self._manner.clock() + (deadline if begun else self._manner.wait))
        if not begun and len(missing) == len(others) and self._exchange.contacts.ahead is None:
            raise UserError(
                f"none of {', '.join(missing)} was heard; nothing was drawn: start again when they are up."
            )
        if len(missing) == len(others):  # after a power cut all come back one by one
            self._manner.say(f"not heard yet: {', '.join(missing)}; nothing is drawn until one of them is up")
        elif missing:
            self._manner.say(f"not heard yet: {', '.join(missing)}; the others begin")

    def _join(self) -> None:
        number = self._exchange.epoch.number
        self._manner.say(f"{self._found.site.name} joins at round {number} and waits for a neighbour's model")
        at, model = self._exchange.ask_model(self._manner.clock() + self._manner.wait)
        there = self._exchange.contacts.left_behind()  # what the model's sender alone says is not enough
        furthest = there[0] if there is not None else number + self._found.study.terms.late
        self._first = min(max(at, number), furthest, self._rounds)
        self._state = self._plan.algorithm.init(model.to(self._parts.x0))
        self._exchange.adopt(self._state)

    def _train(self) -> Any:
        ahead: Callable[[], None] | None = self._begin  # of the rounds that follow
        while True:
            try:
                if ahead is not None:
                    ahead()
                    ahead = None
                return run_loop(
                    self._plan.algorithm, self._state, self._gradient, self._exchange,
                    rounds=self._rounds, start=self._first,
                    before_round=self._exchange.before_round, after_round=self._after_round,
                )  # fmt: skip
            except LeftBehindError as left:
                if len(left.by) == 1 and left.round >= self._rounds - self._found.study.terms.late:
                    raise UserError(
                        f"{left} of {self._rounds} by its own word alone, and {self._found.site.name} in round "
                        f"{self._exchange.place.round}; {_HOW_ON}."
                    ) from None
                self._first, self._state = left.round, left.state
                self._manner.say(f"{left}: rounds before it are skipped and not paid")
            except _EpochDueError as change:
                ahead = partial(self._enter, change)
            except _PartEndedError as ended:
                self._manner.say(str(ended))
                return self._state
            except AloneError as alone:
                if not self._others_are_through():
                    raise UserError(f"{alone}; {_HOW_ON}.") from None
                return self._state

    def _gradient(self, points: Any) -> Any:
        released = self._grad(points)
        return released if self._scale == 1.0 else self._scale * released

    def _between(self, t: int) -> None:
        """Ahead of round t and while this site waits there: has its roster, or have the others, another epoch?"""
        name, study, exchange = self._found.site.name, self._found.study, self._exchange
        roster = self._accepted.newest()
        if roster.site(name).revoked:
            raise _PartEndedError(f"{name} was revoked: what was spent is certified")
        at, reached, ahead = t, t, exchange.contacts.ahead
        gone_on = ahead is not None and (exchange.isolated or ahead[1] > t + study.terms.late)
        if ahead is not None and gone_on:
            reached, at = max(t, ahead[0]), max(t, *ahead)
        span = due(study, roster, exchange.epoch.number, reached)
        if span is not None:
            raise _EpochDueError(span, min(at, self._rounds))
        if ahead is not None and gone_on:
            self._say_once(
                f"the others are in the epoch from round {ahead[0]} on, which roster {roster.version} does not have: "
                "accept the newest one"
            )

    def _enter(self, change: _EpochDueError) -> None:
        """The next epoch. A site that has nothing on disk yet begins with it."""
        (number, sites), name = change.span, self._found.site.name
        if name not in sites:
            self._state = self._exchange.leave(change.round, self._state)
            raise _PartEndedError(f"{name} leaves at round {number}")
        if len(sites) < 2:
            raise _PartEndedError(f"no other site is left from round {number} on")
        self._manner.say(f"from round {number} on: {', '.join(sites)}")
        self._first = change.round
        if self._exchange.begun:
            self._count(change.span)
            self._state = self._exchange.enter(built(self._plan, number, sites), change.round, self._state)
        else:
            self._exchange = self._exchange_in(change.span, change.round)
            self._begin()

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._manner.say(sentence)

    def _others_are_through(self) -> bool:
        """Are the last few rounds all that is missing here?"""
        contacts, at = self._exchange.contacts, self._exchange.place.round
        heard = [contacts[site].heard for site in contacts.others]
        furthest = max((place.round for place in heard if place is not None), default=0)
        return max(min(furthest, at + self._found.study.terms.late), at) >= self._rounds - 1

    def _after_round(self, t: int, state: Any) -> None:
        self._exchange.after_round(t, state)
        self._state, self._run.done = state, t + 1
        row = self._evaluate(t + 1, state)
        if row is None:
            return
        self._figures = {
            **own_figures(row),
            "links": self._exchange.states(),
            "bytes_sent": self._exchange.bytes_sent,
            "seconds": self._run.elapsed,
        }
        self._run.directory.append_metrics(self._figures)
        self._run.seal(CHECKPOINT, t + 1, {})
        self._manner.say(line(self._figures, self._rounds))

    def certified(self) -> Outcome:
        found, run = self._found, self._run
        run.state = self._state

        def sign(certificate: dict[str, Any]) -> dict[str, Any]:
            return signed_by_site(
                certificate, found.study, found.site.name, found.site.key(), node=found.node,
                ledger_head=run.book.heads()[found.node], events=run.book.counts()[found.node], at=now(),
            )  # fmt: skip

        run.finish(rounds=self._exchange.rounds_run, average=False, sign=sign)
        directory = run.directory.path
        return Outcome(read_object(directory / "certificate.json"), self._figures, directory)
