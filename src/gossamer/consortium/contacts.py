"""A site's conversation with the others: frames in and out, where each site is, which ones are suspect."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from gossamer.consortium.frames import MAX_RATIO, Frame, Place, RefusedError, check_content, unpack
from gossamer.consortium.links import LOG, Arrival, Links, LogLimit
from gossamer.consortium.mass import KNOWN, Mass, Parcel

_EARLY = 4  # parcels of a site kept in memory for an exchange that has not begun here
_OFFERS = 4
_LOGGED = 20  # lines about one site's refused frames in a minute


@dataclass(frozen=True)
class Pace:
    """The time limits of an exchange."""

    deadline: float  # seconds that an exchange waits for its neighbours
    late: int = 4  # rounds after which a parcel goes back to its sender
    patience: float = math.inf  # seconds that a site without any neighbour waits for one
    tick: float = 0.0  # frames leave at multiples of so many seconds, which hides how long a batch took


@dataclass
class Contact:
    """State of one other site, since this one was started."""

    heard: Place | None = None  # its furthest place
    passed: Place | None = None  # its furthest place by a frame that was not the parcel of that place
    suspect: bool = False
    drained: bool = False  # everything that it sent here is settled
    ahead: tuple[int, int] | None = None  # (epoch, round), if it has left this epoch
    last_frame: float = -math.inf  # when anything was sent to it
    owes_greeting: bool = False  # it was new or suspect, and should learn that it was heard
    decisions_sent: frozenset[int] = frozenset()
    sent: dict[int, tuple[float, float, int]] = field(default_factory=dict)  # parcel → first and last time, round
    lost: set[int] = field(default_factory=set)  # parcels that seem lost: later ones have arrived
    offers: dict[Place, Frame] = field(default_factory=dict)
    early: list[Arrival] = field(default_factory=list)  # of a channel that has not begun here


@dataclass(kw_only=True)
class Contacts:
    """All other sites of an epoch."""

    study: str
    epoch: int
    sites: Sequence[str]
    mass: Mass
    links: Links
    pace: Pace
    weighted: bool
    model: Callable[[], Tensor]
    clock: Callable[[], float] = time.monotonic
    neighbours: Collection[str] | None = None  # by the graph; None: all
    rounds: int | None = None  # of the study
    bound: float = MAX_RATIO  # of a parcel's values

    def __post_init__(self) -> None:
        self.name, self.others = self.mass.name, [site for site in self.sites if site != self.mass.name]
        self._origin = self.clock()
        # All weights together: no parcel has more.
        self._limit = self.mass.limit = float(len(self.sites)) if self.weighted else None
        self._neighbours = self.others if self.neighbours is None else sorted(self.neighbours)
        self._contacts = {site: Contact() for site in self.others}
        self._model_asked_by: set[str] = set()
        # By channel: tensors of the shapes that a parcel must have.
        self.layout: dict[int, tuple[Tensor, ...]] = {}
        self.answer: Frame | None = None  # a neighbour's model
        self.urgent = False  # a site waits for a decision that is not on disk
        self.refused = 0  # frames
        self._log = LogLimit(_LOGGED, clock=self.clock)
        self.bytes_sent = 0

    def __getitem__(self, site: str) -> Contact:
        return self._contacts[site]

    # Presence

    def states(self) -> dict[str, str]:
        """Return "up", "suspect" or "down" for every other site."""
        links = {site: self.links.states().get(site, "down") for site in self.others}
        suspect = {site for site, state in links.items() if self[site].suspect and state != "down"}
        return {**links, **dict.fromkeys(suspect, "suspect")}

    def is_away(self, site: str) -> bool:
        contact = self._contacts.get(site)
        if contact is None or contact.heard is None or contact.ahead is not None:
            return True
        return contact.suspect or self._is_down(site)

    @property
    def ahead(self) -> tuple[int, int] | None:
        """(epoch, round) of the neighbours, if that is a later epoch than this one; see `_confirmed`."""
        here = [site for site in self._neighbours if self[site].ahead is not None or not self.is_away(site)]
        (reached, _) = self._confirmed({site: self[site].ahead or (self.epoch, 0) for site in here})
        return reached if reached is not None and reached[0] > self.epoch else None

    def is_expected(self, site: str) -> bool:
        """Tell whether the site is worth waiting for."""
        return not self[site].suspect and self[site].ahead is None and not self.is_cut_off(site)

    def is_cut_off(self, site: str) -> bool:
        """Tell whether a new roster took the site's link away."""
        return site not in self.links.states()

    def reaches(self, site: str) -> bool:
        """Tell whether a parcel made now would be taken there soon; if not, its share is better kept."""
        contact = self[site]
        if contact.suspect or contact.ahead is not None or self._is_down(site):
            return False
        if any(self.clock() - first > self.pace.deadline for first, _, _ in contact.sent.values()):
            return False
        heard = contact.heard
        return heard is not None and abs(heard.round - self.mass.place.round) <= self.pace.late

    def left_behind(self) -> tuple[int, list[str]] | None:
        """Return (round of the neighbours, which ones), if they are too far ahead to send parcels of this round."""
        here = [site for site in self._neighbours if not self.is_away(site)]
        claims = {site: (place.round, 0) for site in here if (place := self[site].heard)}
        reached, by = self._confirmed(claims)
        late = reached is not None and reached[0] > self.mass.place.round + self.pace.late
        return (reached[0], by) if reached is not None and late else None

    def _confirmed(self, claims: Mapping[str, tuple[int, int]]) -> tuple[tuple[int, int] | None, list[str]]:
        """Return how far the neighbours are and who claims it: two of them, or the only one that is here.

        A single site cannot make the others skip rounds by a false position.
        """
        ranked = sorted(claims, key=lambda site: claims[site], reverse=True)[:2]
        return (claims[ranked[-1]] if ranked else None), ranked

    def mark_suspect(self, sites: Iterable[str]) -> None:
        for site in sites:
            if not self[site].suspect:
                LOG.warning("%s missed a deadline: not waited for until it is heard again", site)
            self[site].suspect = True

    def _is_down(self, site: str) -> bool:
        return self.links.states().get(site, "down") == "down"

    # Sending

    def wait_for_tick(self) -> None:
        """Take in what arrives until the next multiple of the tick."""
        if self.pace.tick > 0:
            ticks = math.ceil((self.clock() - self._origin) / self.pace.tick)
            until = self._origin + ticks * self.pace.tick
            while self.clock() < until:
                self.listen(until)

    def flush(self) -> None:
        """Send what is due at the next tick: parcels, decisions that are on disk, greetings, models. Or nothing."""
        waits = any(self._due(site) or self._owes_answer(site) for site in self.others)
        if not self._model_asked_by and not waits:
            return
        self.wait_for_tick()
        for site in self.others:
            contact, due = self[site], self._due(site)
            # The newest first: its receiver waits for it, and not for those that were late before.
            for number in sorted(due, reverse=True):
                self.post(site, "share", parcel=self.mass.outbound[site].parcels[number])
                now = self.clock()
                contact.sent[number] = contact.sent.get(number, (now,))[0], now, self.mass.place.round
            if not due and self._owes_answer(site):
                self.post(site, "hello")
            contact.lost.clear()
        for site in self._model_asked_by:
            self.post(site, "model", content=(self.model().detach().reshape(-1),))
        self._model_asked_by.clear()

    def _due(self, site: str) -> list[int]:
        """Return the numbers of the parcels to send now: only of those that are on disk."""
        contact, parcels = self[site], self.mass.parcels_to(site)
        contact.sent = {n: sent for n, sent in contact.sent.items() if n in parcels}
        written = self.mass.durable_view(site).following
        return [n for n in parcels if n < written and (n in contact.lost or self._is_due(contact, n))]

    def _owes_answer(self, site: str) -> bool:
        """Tell whether the site waits for a decision, or to learn that it was heard."""
        decided = self.mass.durable_view(site).decisions
        untold = {*decided.taken, *decided.returned} - self[site].decisions_sent
        return self[site].owes_greeting or bool(untold)

    def _is_due(self, contact: Contact, number: int) -> bool:
        """Not sent yet, or so long ago that it must be lost; it should arrive before it is too late to be taken."""
        if number not in contact.sent:
            return True
        _, sent_at, sent_in = contact.sent[number]
        late = self.mass.place.round - sent_in >= max(2, self.pace.late // 2)
        return late or self.clock() - sent_at >= self.pace.deadline

    def greet(self, sites: Iterable[str], kind: str = "hello", *, every: float = 0.0) -> None:
        """Tell sites where this one is, at most once in `every` seconds."""
        for site in sites:
            if self.clock() >= self[site].last_frame + every:
                self.post(site, kind)

    def post(self, to: str, kind: str, parcel: Parcel | None = None, content: Sequence[Tensor] = ()) -> None:
        view, contact, place = self.mass.durable_view(to), self[to], self.mass.place
        mass = self.mass
        # Without a parcel the frame has the number 0, and its content is not mass.
        carried = parcel or Parcel(self.name, to, mass.incarnation, 0, place, mass.channel, tuple(content))
        header = {"kind": kind, "study": self.study, "epoch": self.epoch, "place": place, **vars(view)}
        frame = Frame(**header, **carried._asdict())
        contact.decisions_sent = frozenset((*view.decisions.taken, *view.decisions.returned))
        contact.owes_greeting, contact.last_frame = False, self.clock()
        raw = frame.pack()
        self.bytes_sent += len(raw)
        self.links.send(to, raw, self.clock() + self.pace.deadline)

    # Receiving

    def listen(self, until: float) -> None:
        """Wait for one frame, at most until then, and take in all that are there."""
        arrival = self.links.receive(until)
        while arrival is not None:
            self.handle(arrival)
            arrival = self.links.receive(self.clock())

    def open_channel(self, channel: int, layout: tuple[Tensor, ...]) -> None:
        """Check parcels of this channel from now on, those that came early first."""
        self.layout[channel] = layout
        for contact in self._contacts.values():
            early, contact.early = contact.early, []
            for arrival in early:
                self.handle(arrival)

    def handle(self, arrival: Arrival) -> None:
        """Use a frame or refuse it with one reason. For any bytes, nothing else happens."""
        try:
            frame = unpack(arrival.message, sender=arrival.sender, receiver=self.name, study=self.study)
            contact = self._contacts.get(arrival.sender)
            reached = max(frame.epoch, frame.place.round)
            if self.rounds is not None and reached > self.rounds:
                raise RefusedError(f"it claims to be in round {reached}; the study has {self.rounds}")
            if frame.epoch > self.epoch:  # it joins later, or is through with this epoch
                if contact is not None:
                    contact.drained, contact.ahead = True, (frame.epoch, frame.place.round)
                return
            if contact is None:
                raise RefusedError("it is not a site of this epoch")
            if frame.epoch < self.epoch:
                contact.owes_greeting = True  # so that it learns where the others are
                raise RefusedError(f"it is in epoch {frame.epoch}, which is over")
            self._apply(frame, arrival)
        except RefusedError as error:
            self.refused += 1
            self._log.warn(f"a frame of {arrival.sender} was refused: {error}", about=arrival.sender)

    def _apply(self, frame: Frame, arrival: Arrival) -> None:
        contact, mass, site = self[frame.sender], self.mass, frame.sender
        if frame.kind == "model":
            check_content(frame.content, (self.model().reshape(-1),), weight=None, bound=self.bound)
        elif frame.content and frame.channel not in self.layout:
            contact.early = [*contact.early, arrival][-_EARLY:]
            return
        elif frame.content:
            check_content(frame.content, self.layout[frame.channel], weight=self._limit, bound=self.bound)
        known = mass.inbound.get(site)
        mass.forget_settled(site, frame.incarnation, frame.oldest)  # an older incarnation is refused here
        if known is not None and known.incarnation < frame.incarnation:  # it starts again without its state
            contact.heard = contact.passed = None
        contact.lost |= mass.apply_decisions(site, frame.decisions)
        if contact.heard is None or contact.suspect:
            contact.owes_greeting = True
        contact.heard = frame.place if contact.heard is None else max(contact.heard, frame.place)
        contact.drained = frame.oldest == frame.following and frame.place >= mass.place
        if frame.place.round >= mass.place.round - 1:
            contact.suspect = False
        if frame.kind != "share" or frame.made != frame.place:
            contact.passed = frame.place if contact.passed is None else max(contact.passed, frame.place)
        if frame.kind == "share":
            self._accept_parcel(frame, contact)
        elif frame.kind == "offer" and frame.made >= mass.place:
            contact.offers = dict(sorted({**contact.offers, frame.made: frame}.items())[:_OFFERS])
        elif frame.kind == "ask":
            self._model_asked_by.add(site)
        elif frame.kind == "model":
            self.answer = frame
        elif frame.kind == "waiting":  # what was sent is lost; or nothing was, and then it should learn that
            parcels = mass.parcels_to(site)
            contact.lost |= {number for number, parcel in parcels.items() if parcel.made <= frame.place}
            contact.owes_greeting = True

    def _accept_parcel(self, frame: Frame, contact: Contact) -> None:
        parcel = Parcel(**{field: getattr(frame, field) for field in Parcel._fields})
        if self.mass.decide(parcel) == KNOWN:
            contact.decisions_sent = frozenset()  # the decision did not reach it
        if frame.made < self.mass.place:  # late, and so its sender waits
            self.urgent = True
