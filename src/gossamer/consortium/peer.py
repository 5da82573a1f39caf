"""One site's part in a study: `gossamer run` of one node, whose neighbours are other organisations' processes.

    OUT/records-2    a link to the site's own file; 2 is its node
    OUT/journal      what the site may not forget: mass, outbox, released gradients
    OUT/run          a run directory like any other, with the ledger of this node

A step is the simulator's: the same loop, algorithm and reader. What differs is the exchange, and that a gradient is in
ledger and journal before it is used. Started again with the same OUT, a site goes on where its disk says it was.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.consortium.authority import pem
from gossamer.consortium.certificates import signed_by_site
from gossamer.consortium.names import now
from gossamer.consortium.ready import Ready
from gossamer.consortium.shown_links import shown_links
from gossamer.errors import UserError
from gossamer.methods.km.algorithm import KM
from gossamer.results.certificate_page import page
from gossamer.results.files import read_object
from gossamer.results.seals import CHECKPOINT, END, STOPPED
from gossamer.results.verify import end_digests
from gossamer.run.assemble import Parts, assemble
from gossamer.run.begin import Run, begin
from gossamer.run.certify import certify
from gossamer.run.evaluate import evaluation_of
from gossamer.run.models import keep_models
from gossamer.run.resume import resume, seal
from gossamer.runtime.group import Alone
from gossamer.runtime.loop import run as run_loop
from gossamer.runtime.peers.base import Links
from gossamer.runtime.peers.contacts import Pace
from gossamer.runtime.peers.exchange import AloneError, Epoch, LeftBehindError, PeerExchange
from gossamer.runtime.peers.group import OneSite
from gossamer.runtime.peers.journal import FileStorage, Journal, NoStorage
from gossamer.runtime.peers.released import Replayed
from gossamer.runtime.peers.rules import Averages, channel_of, rule_of

JOURNAL, RUN = "journal", "run"
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
        from gossamer.runtime.transport.grpc.identity import Identity
        from gossamer.runtime.transport.grpc.links import GrpcLinks
    except ModuleNotFoundError as error:
        raise UserError(
            f'{error.name} is not installed: links between sites need it; pip install "gossamer[peers]".'
        ) from None
    site = found.site
    identity = Identity(
        pem(found.roster.authority).encode(), site.certificate_file.read_bytes(), site.key_file.read_bytes()
    )
    return GrpcLinks(identity, found.roster.members().values(), site.listen)


def take_part(
    found: Ready,
    out: Path,
    manner: Manner | None = None,
    links: Callable[[Ready], Links] = open_links,
) -> Outcome:
    """Until the study's end and this site's certificate. `out` is the folder that `ready` was given."""
    refuse_other_epochs(found)
    if (out / RUN / "certificate.json").exists():
        raise UserError(f"{out / RUN} holds the certificate of {found.site.name}: its part is done.")
    manner = manner or Manner()
    parts = assemble(found.outline(), nodes=found.nodes)
    durable = found.site.asked.durable == "on"
    storage = FileStorage(out / JOURNAL) if durable else NoStorage()  # a second process is refused here
    open_still = ExitStack()
    try:
        open_still.callback(storage.close)
        journal = Journal(storage)
        group = OneSite(found.site.name, found.node, len(found.sites))
        with closing(_begun(parts, group, out / RUN, journal, durable, manner.leaving)) as run:
            carrier = links(found)
            open_still.callback(carrier.close)
            peer = _Peer(found, run, group, journal, carrier, manner)
            peer.train()
            peer.hand_over()
            open_still.pop_all()  # that closed both
            return peer.certified()
    finally:
        open_still.close()


def refuse_other_epochs(found: Ready) -> None:
    """A site that comes or goes in the middle changes the graph, and this program does not follow that yet."""
    epochs = found.roster.epochs(found.study.roster.version, found.study.config.rounds)
    if len(epochs) > 1:
        raise UserError(
            f"roster {found.roster.version} changes the sites of {found.study.name} at round {epochs[1][0]}, and a "
            "study that has begun keeps its sites here; pack it anew for the sites there are."
        )


def _begun(parts: Parts, group: OneSite, folder: Path, journal: Journal, durable: bool, leaving: bool) -> Run:
    """A new run, or the one that was stopped here."""
    if not (folder / "manifest.json").exists():
        if leaving:
            raise UserError(f"{folder} holds no run: nothing was drawn, and there is nothing to leave.")
        shutil.rmtree(
            folder, ignore_errors=True
        )  # stopped before it began: a ledger comes after the manifest
        return begin(parts, group, folder)

    def take_up(run: Run) -> None:
        held = journal.contents
        # One draw may be in the ledger and not yet in the journal: nothing has been sent by then.
        if held.meta is None and not held.released and run.book.next_step > 1 and not leaving:
            why = "is missing or empty" if durable else 'was not kept (durable = "off")'
            raise UserError(
                f"{folder.parent / JOURNAL} {why}, and {run.book.next_step} draws were paid for: a site that begins "
                "anew would bring mass that others hold; put it back, or let `gossamer peer leave` certify what was "
                "spent."
            )
        run.done = 0 if held.meta is None else held.meta["round"]
        if held.released:
            run.reader.restore(held.released[max(held.released)].after)

    return resume(parts, group, folder, take_up)


class _Peer:
    """A site from its first greeting to its certificate."""

    def __init__(
        self,
        found: Ready,
        run: Run,
        group: OneSite,
        journal: Journal,
        links: Links,
        manner: Manner,
    ):
        self._found, self._run, self._group, self._manner = found, run, group, manner
        self._parts = parts = run.parts
        self._links, self._roster = links, _Accepted(found)
        o, terms = parts.outline, found.study.terms
        self._outline, self._rounds = o, o.config.rounds
        self._begins = journal.contents.meta is None
        self._exchange = PeerExchange(
            name=found.site.name,
            study=bytes.fromhex(found.study.identity),
            epoch=Epoch(0, found.sites, o.topology),
            rule=rule_of(o.algorithm, {KM: Averages(tracks=False)}),
            links=links,
            journal=journal,
            pace=Pace(terms.deadline, terms.late, manner.wait, terms.tick),
            initial=run.state,
            channels=lambda t, call: channel_of(o.algorithm, t, call),
            model=o.algorithm.model,
            clock=manner.clock,
        )
        self._first, self._state, uses = self._exchange.resume()
        self._grad = Replayed(run.reader, journal, uses=uses, paid=run.book.next_step)
        self._exchange.uses = lambda: self._grad.uses
        self._evaluate = evaluation_of(parts, run, Alone(1))
        self._figures: dict[str, Any] = run.directory.last_metrics()
        self._start = time.perf_counter()

    def train(self) -> None:
        """The rounds that are left; of a site that leaves, none."""
        if self._manner.leaving:
            self._exchange.meet(self._manner.clock() + self._found.study.terms.deadline)
            return
        try:
            with shown_links(self._run.directory.path, self._found.site.name, self._exchange.states):
                self._meet()
                self._state = self._train()
        except (KeyboardInterrupt, OSError):
            with suppress(OSError):
                seal(self._run, self._group, STOPPED, self._run.done, {})
            raise

    def hand_over(self) -> None:
        """What is still under way; then this site is done, whatever the others do."""
        self._exchange.finish()

    def _meet(self) -> None:
        """The first time everybody is waited for; one that comes back finds the others where they are."""
        deadline = self._found.study.terms.deadline
        others = [name for name in self._found.sites if name != self._found.site.name]
        self._manner.say(f"{self._found.site.name} waits for {', '.join(others)}")
        missing = self._exchange.meet(
            self._manner.clock() + (self._manner.wait if self._begins else deadline)
        )
        if self._begins and len(missing) == len(others):
            raise UserError(
                f"none of {', '.join(missing)} was heard; nothing was drawn: start again when they are up."
            )
        if len(missing) == len(others):  # after a power cut all come back one by one
            self._manner.say(f"not heard yet: {', '.join(missing)}; nothing is drawn until one of them is up")
        elif missing:
            self._manner.say(f"not heard yet: {', '.join(missing)}; the others begin")
        self._manner.say(f"round {self._first} of {self._rounds}")

    def _train(self) -> Any:
        first, state = self._first, self._state
        while True:
            try:
                return run_loop(
                    self._outline.algorithm, state, self._grad, self._exchange,
                    rounds=self._rounds, start=first,
                    before_round=self._before_round, after_round=self._after_round,
                )  # fmt: skip
            except LeftBehindError as ahead:
                first, state = min(ahead.round, self._rounds), ahead.state
                self._manner.say(
                    f"the others are in round {first}: rounds before it are skipped and not paid"
                )
            except AloneError as alone:
                if not self._others_are_through():
                    raise UserError(
                        f"{alone}; its state is on disk: start it again when others are up, or let `gossamer peer "
                        "leave` certify what was spent."
                    ) from None
                return self._state

    def _others_are_through(self) -> bool:
        """Are the last rounds all that is missing here?"""
        contacts = self._exchange.contacts
        heard = [contacts[site].heard for site in contacts.others]
        furthest = max((place.round for place in heard if place is not None), default=0)
        return max(furthest, self._exchange.place.round) >= self._rounds - 1

    def _before_round(self, t: int) -> None:
        if (roster := self._roster.changed()) is not None:
            update = getattr(self._links, "update", None)
            if update is not None:
                update(roster.members().values())
            self._manner.say(f"roster {roster.version} holds from here on")
        self._exchange.before_round(t)

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
            "seconds": time.perf_counter() - self._start,
        }
        self._run.directory.append_metrics(self._figures)
        seal(self._run, self._group, CHECKPOINT, t + 1, {})
        self._manner.say(_line(self._figures, self._rounds))

    def certified(self) -> Outcome:
        found, run, group = self._found, self._run, self._group
        run.book.close()
        run.seconds = time.perf_counter() - self._start
        _, points, files = keep_models(self._parts, run, group, self._state, average=False)
        certificate = certify(self._parts, run, group, points)
        directory, config = run.directory, self._outline.config
        directory.write_text("certificate.html", page(certificate, config.name))
        seal(run, group, END, config.rounds, files, folder="", **end_digests(directory.path, certificate))
        signed = signed_by_site(
            certificate, found.study, found.site.name, found.site.key(),
            ledger_head=run.book.heads()[found.node], events=run.book.counts()[found.node], at=now(),
        )  # fmt: skip
        directory.write_json("certificate.json", signed)
        if run.sealer is not None:
            run.sealer.destroy()
        return Outcome(read_object(directory.path / "certificate.json"), self._figures, directory.path)


class _Accepted:
    """The roster that the operator accepted last, looked at before every round."""

    def __init__(self, found: Ready):
        self._site, self._version = found.site, found.roster.version
        self._seen = self._mark()

    def _mark(self) -> tuple[int, int]:
        said = self._site.roster_file.stat()
        return said.st_mtime_ns, said.st_ino

    def changed(self) -> Any:
        """A newer one, once."""
        if (mark := self._mark()) == self._seen:
            return None
        self._seen, roster = mark, self._site.roster()
        if roster.version <= self._version:
            return None
        self._version = roster.version
        return roster


def own_figures(row: dict[str, Any]) -> dict[str, Any]:
    """Of an evaluation of one node: a site knows its own model alone, so nothing is said about all."""
    about_all = ("consensus_distance", "push_sum_mass")
    kept = {
        key: value
        for key, value in row.items()
        if key not in about_all and not key.endswith("_average_model")
    }
    return kept if "push_sum_mass" not in row else {**kept, "push_sum_weight": row["push_sum_mass"]}


def _line(row: dict[str, Any], rounds: int) -> str:
    quality = next(
        (f", {key} {row[f'{key}_mean']:.3f}" for key in ("accuracy", "rmse") if f"{key}_mean" in row), ""
    )
    away = [f"{site} {state}" for site, state in row["links"].items() if state != "up"]
    spent = row["epsilon_proven"]
    epsilon = f", planned ε {spent:.3g}" if spent is not None and math.isfinite(spent) else ""
    return f"round {row['round']} of {rounds}{quality}{epsilon}{'; ' if away else ''}{', '.join(away)}"
