"""A site's conversation with the others: frames in and out, who was heard where, who is suspect."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from gossamer.consortium.frame_refusals import Refusals
from gossamer.consortium.frames import (
    ASK,
    FAR,
    HELLO,
    MODEL,
    OFFER,
    SHARE,
    WAITING,
    Frame,
    Place,
    RefusedError,
    check_content,
    unpack,
)
from gossamer.consortium.links import MOST, Arrival, Links
from gossamer.consortium.mass import KNOWN, Mass, Parcel

LOG = logging.getLogger("gossamer.peers")
_UNKNOWN = 4  # parcels of a site that wait in memory for an exchange that has not begun here
_OFFERS = 4


@dataclass(frozen=True)
class Pace:
    """How long things may take."""

    deadline: float  # seconds that an exchange waits for its neighbours
    late: int = 4  # rounds after which a parcel goes back to its sender
    patience: float = math.inf  # seconds that a site without any neighbour waits for one
    tick: float = 0.0  # messages leave at multiples of so many seconds: the time that a lot took stays here


@dataclass
class Contact:
    """What this site knows of another one since it was started."""

    heard: Place | None = None  # where it was when it was last heard
    said: Place | None = None  # the same, of frames that were not the parcel of that place
    suspect: bool = False
    drained: bool = False  # everything that it sent here is settled
    ahead: tuple[int, int] | None = None  # (epoch, round) of one that has left this epoch behind
    greeted: float = -math.inf  # when anything was sent to it last
    greet: bool = False  # it was new or suspect, and should know that it was heard
    told: frozenset[int] = frozenset()  # the decisions it was told last
    left: dict[int, tuple[float, int]] = field(
        default_factory=dict
    )  # number of a parcel → time, round it left last
    first: dict[int, float] = field(default_factory=dict)  # … and when it left first
    lost: set[int] = field(default_factory=set)  # parcels that seem lost: later ones have arrived
    offers: dict[Place, Frame] = field(default_factory=dict)
    unknown: list[Arrival] = field(default_factory=list)  # of a channel to which this site has not come


class Contacts:
    """All other sites of an epoch. `layout` has, by channel, tensors such as a parcel must hold."""

    def __init__(
        self,
        *,
        study: bytes,
        epoch: int,
        sites: Sequence[str],
        mass: Mass,
        links: Links,
        pace: Pace,
        weighted: bool,
        model: Callable[[], Tensor],
        clock: Callable[[], float] = time.monotonic,
        most: int = MOST,
        neighbours: Collection[str] | None = None,
        rounds: int | None = None,
        bound: float = FAR,
    ):
        """`neighbours`: by the graph (default: all); `rounds`: of the study; `bound`: of a parcel's values."""
        self.name, self.others = mass.name, [site for site in sites if site != mass.name]
        self._study, self.epoch, self._mass, self._links = study, epoch, mass, links
        self._pace, self._model, self._clock, self._most = pace, model, clock, most
        self._origin = clock()
        self._limit = float(len(sites)) if weighted else None  # all weights together: no parcel has more
        mass.limit = self._limit
        self._neighbours = self.others if neighbours is None else sorted(neighbours)
        self._rounds, self._bound = rounds, bound
        self._contacts = {site: Contact() for site in self.others}
        self._asked: set[str] = set()
        self.layout: dict[int, tuple[Tensor, ...]] = {}
        self.answer: Frame | None = None
        self.urgent = False  # somebody waits for a decision that is not on disk
        self._refusals = Refusals(clock)
        self.bytes_sent = 0

    def __getitem__(self, site: str) -> Contact:
        return self._contacts[site]

    @property
    def refused(self) -> int:
        """Frames so far."""
        return self._refusals.count

    # Who is there

    def states(self) -> dict[str, str]:
        """Every other site: "up", "suspect" or "down"."""
        links = {site: self._links.states().get(site, "down") for site in self.others}
        return {
            site: "suspect" if self[site].suspect and state != "down" else state
            for site, state in links.items()
        }

    def away(self, site: str) -> bool:
        contact = self._contacts.get(site)
        if contact is None or contact.heard is None or contact.ahead is not None:
            return True
        return contact.suspect or self._down(site)

    @property
    def ahead(self) -> tuple[int, int] | None:
        """(epoch, round) of the neighbours, if that is a later epoch than this one; see `_vouched`."""
        here = [site for site in self._neighbours if self[site].ahead is not None or not self.away(site)]
        (found, _) = self._vouched({site: self[site].ahead or (self.epoch, 0) for site in here})
        return found if found is not None and found[0] > self.epoch else None

    def expected(self, site: str) -> bool:
        """Is it worth waiting for?"""
        return not self[site].suspect and self[site].ahead is None and not self.cut(site)

    def cut(self, site: str) -> bool:
        """Has it no link any more, by a new roster?"""
        return site not in self._links.states()

    def reaches(self, site: str) -> bool:
        """Would a parcel that is made now be taken there soon? Otherwise its share is better kept."""
        contact = self[site]
        if contact.suspect or contact.ahead is not None or self._down(site):
            return False
        if any(self._clock() - first > self._pace.deadline for first in contact.first.values()):
            return False
        return (
            contact.heard is not None and abs(contact.heard.round - self._mass.place.round) <= self._pace.late
        )

    def left_behind(self) -> tuple[int, list[str]] | None:
        """(round of the neighbours, who says so), if they are so far ahead that nobody sends parcels of this one."""
        heard = {site: self[site].heard for site in self._neighbours if not self.away(site)}
        found, by = self._vouched(
            {site: (place.round, 0) for site, place in heard.items() if place is not None}
        )
        late = found is not None and found[0] > self._mass.place.round + self._pace.late
        return (found[0], by) if found is not None and late else None

    def _vouched(self, said: Mapping[str, tuple[int, int]]) -> tuple[tuple[int, int] | None, list[str]]:
        """(how far the neighbours are, who says so): by the word of two of them, or of the only one that is here.

        One that makes up where it is takes nobody along.
        """
        ranked = sorted(said, key=lambda site: said[site], reverse=True)[:2]
        return (said[ranked[-1]] if ranked else None), ranked

    def suspect(self, sites: Iterable[str]) -> None:
        for site in sites:
            if not self[site].suspect:
                LOG.warning("%s missed a deadline: not waited for until it is heard again", site)
            self[site].suspect = True

    def _down(self, site: str) -> bool:
        return self._links.states().get(site, "down") == "down"

    # Out

    def wait_for_tick(self) -> None:
        """Take in what comes until the next multiple of the tick."""
        if self._pace.tick > 0:
            ticks = math.ceil((self._clock() - self._origin) / self._pace.tick)
            until = self._origin + ticks * self._pace.tick
            while self._clock() < until:
                self.listen(until)

    def leave(self) -> None:
        """Send what is due at the next tick: parcels, decisions that are on disk, greetings, answers. Or nothing."""
        if not self._asked and not any(self._due(site) or self._owes(site) for site in self.others):
            return
        self.wait_for_tick()
        for site in self.others:
            contact, due = self[site], self._due(site)
            # The newest first: its receiver waits for it, and for nothing that was late before.
            for number in sorted(due, reverse=True):
                self.post(site, SHARE, parcel=self._mass.outbound[site].parcels[number])
                contact.left[number] = self._clock(), self._mass.place.round
                contact.first.setdefault(number, self._clock())
            if not due and self._owes(site):
                self.post(site, HELLO)
            contact.lost.clear()
        for site in self._asked:
            self.post(site, MODEL, content=(self._model().detach().reshape(-1),))
        self._asked.clear()

    def _due(self, site: str) -> list[int]:
        """The parcels that should leave now."""
        contact, link = self[site], self._mass.outbound.get(site)
        parcels = {} if link is None else link.parcels
        contact.left = {number: at for number, at in contact.left.items() if number in parcels}
        contact.first = {number: at for number, at in contact.first.items() if number in parcels}
        written = self._mass.told(site).following
        return [n for n in parcels if n < written and (n in contact.lost or self._is_due(contact, n))]

    def _owes(self, site: str) -> bool:
        """Does it wait for a decision, or for a sign that it was heard?"""
        decided = self._mass.told(site).decisions
        return self[site].greet or not {*decided.taken, *decided.returned} <= self[site].told

    def _is_due(self, contact: Contact, number: int) -> bool:
        """Not sent yet, or so long ago that it must be lost; it should arrive before it is too late to be taken."""
        if number not in contact.left:
            return True
        at, round = contact.left[number]
        late = self._mass.place.round - round >= max(2, self._pace.late // 2)
        return late or self._clock() - at >= self._pace.deadline

    def greet(self, sites: Iterable[str], kind: int = HELLO, *, every: float = 0.0) -> None:
        """Say where this site is; at most so often, in seconds."""
        for site in sites:
            if self._clock() >= self[site].greeted + every:
                self.post(site, kind)

    def post(
        self, to: str, kind: int, *, parcel: Parcel | None = None, content: tuple[Tensor, ...] = ()
    ) -> None:
        told, contact, place = self._mass.told(to), self[to], self._mass.place
        frame = Frame(
            kind=kind,
            study=self._study,
            epoch=self.epoch,
            sender=self.name,
            receiver=to,
            place=place,
            incarnation=self._mass.incarnation,
            oldest=told.oldest,
            following=told.following,
            decisions=told.decisions,
            channel=self._mass.channel if parcel is None else parcel.channel,
            sequence=0 if parcel is None else parcel.sequence,
            made=place if parcel is None else parcel.made,
            content=content if parcel is None else parcel.content,
        )
        contact.told = frozenset((*told.decisions.taken, *told.decisions.returned))
        contact.greet, contact.greeted = False, self._clock()
        raw = frame.pack()
        self.bytes_sent += len(raw)
        self._links.send(to, raw, self._clock() + self._pace.deadline)

    # In

    def listen(self, until: float) -> None:
        """Wait for one frame, at most until then, and take in all that are there."""
        arrival = self._links.receive(until)
        while arrival is not None:
            self.take(arrival)
            arrival = self._links.receive(self._clock())

    def begin(self, channel: int, layout: tuple[Tensor, ...]) -> None:
        """Parcels of this channel can be checked from now on."""
        self.layout[channel] = layout
        for contact in self._contacts.values():
            waiting, contact.unknown = contact.unknown, []
            for arrival in waiting:
                self.take(arrival)

    def take(self, arrival: Arrival) -> None:
        """One frame: used, or refused in one sentence. Whatever its bytes are, nothing else happens."""
        try:
            frame = unpack(
                arrival.parcel, sender=arrival.sender, receiver=self.name, study=self._study, most=self._most
            )
            contact = self._contacts.get(arrival.sender)
            if self._rounds is not None and max(frame.epoch, frame.place.round) > self._rounds:
                raise RefusedError(
                    f"it says that it is in round {max(frame.epoch, frame.place.round)}; the study has {self._rounds}"
                )
            if (
                frame.epoch > self.epoch
            ):  # it joins later, or is through with this one; it will send this again
                if contact is not None:
                    contact.drained, contact.ahead = True, (frame.epoch, frame.place.round)
                return
            if contact is None:
                raise RefusedError("it is no site of this epoch")
            if frame.epoch < self.epoch:
                contact.greet = True  # so that it knows where the others are
                raise RefusedError(f"it is in epoch {frame.epoch}, which is over")
            self._use(frame, arrival)
        except RefusedError as error:
            self._refusals.say(arrival.sender, error)

    def _use(self, frame: Frame, arrival: Arrival) -> None:
        contact, mass, site = self[frame.sender], self._mass, frame.sender
        if frame.kind == MODEL:
            check_content(frame.content, (self._model().reshape(-1),), weight=None, bound=self._bound)
        elif frame.content and frame.channel not in self.layout:
            contact.unknown = [*contact.unknown, arrival][-_UNKNOWN:]
            return
        elif frame.content:
            check_content(frame.content, self.layout[frame.channel], weight=self._limit, bound=self._bound)
        known = mass.inbound.get(site)
        mass.forgotten(site, frame.incarnation, frame.oldest)  # an older incarnation is refused here
        if known is not None and known.incarnation < frame.incarnation:  # it begins anew
            contact.heard = contact.said = None
        contact.lost |= mass.decided(site, frame.decisions)
        if contact.heard is None or contact.suspect:
            contact.greet = True
        contact.heard = frame.place if contact.heard is None else max(contact.heard, frame.place)
        contact.drained = frame.oldest == frame.following and frame.place >= mass.place
        if frame.place.round >= mass.place.round - 1:
            contact.suspect = False
        if frame.kind != SHARE or frame.made != frame.place:
            contact.said = frame.place if contact.said is None else max(contact.said, frame.place)
        if frame.kind == SHARE:
            self._parcel(frame, contact)
        elif frame.kind == OFFER and frame.made >= mass.place:
            contact.offers = dict(sorted({**contact.offers, frame.made: frame}.items())[:_OFFERS])
        elif frame.kind == ASK:
            self._asked.add(site)
        elif frame.kind == MODEL:
            self.answer = frame
        elif frame.kind == WAITING:
            self._reminded(frame, contact)

    def _reminded(self, frame: Frame, contact: Contact) -> None:
        """It waits: what was sent is lost, or nothing was sent, and then it should know."""
        link = self._mass.outbound.get(frame.sender)
        parcels = {} if link is None else link.parcels
        contact.lost |= {number for number, parcel in parcels.items() if parcel.made <= frame.place}
        contact.greet = True

    def _parcel(self, frame: Frame, contact: Contact) -> None:
        parcel = Parcel(
            frame.sender,
            frame.receiver,
            frame.incarnation,
            frame.sequence,
            frame.made,
            frame.channel,
            frame.content,
        )
        decision = self._mass.arrived(parcel)
        if decision == KNOWN:
            contact.told = frozenset()  # it has not heard of the decision
        if frame.made < self._mass.place:  # late, and so its sender waits
            self.urgent = True
