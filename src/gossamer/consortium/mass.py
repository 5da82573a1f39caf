"""Mass that is never lost: what one site keeps, has sent, has taken. A state machine without files, clocks or links.

What a site sends is taken out of what it keeps, x ← x − parcel, and stays in its outbox until the receiver's
decision is known: taken, or returned because it came too late, and then it is added back. A receiver decides once about
every parcel, by its number, and remembers the decision until the sender has forgotten the parcel. So

    Σ over sites of (kept + parcels taken but not yet added) + parcels in an outbox that are undecided

never changes, even if messages are lost, repeated or reordered. A crash takes a site back to its last `snapshot`;
for that to be safe, others may learn of a decision or a settled parcel only once a snapshot with it is on disk:
`durable_view` is what they may learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from gossamer.consortium.frames import MAX_DECISIONS, Decisions, Place, RefusedError

MAX_WAITING = 64  # parcels of one site in memory: an honest one sends far fewer ahead
TAKEN, RETURNED, KNOWN = "taken", "returned", "known"


class Parcel(NamedTuple):
    """Mass on its way, known by (sender, incarnation, sequence) on the link to its receiver."""

    sender: str
    receiver: str
    incarnation: int
    sequence: int
    made: Place
    channel: int
    content: tuple[Tensor, ...]


@dataclass
class Inbound:
    """Decisions about the parcels of one sender."""

    incarnation: int
    oldest: int = 0  # the sender has forgotten all below
    taken: set[int] = field(default_factory=set)
    returned: set[int] = field(default_factory=set)

    def decisions(self) -> Decisions:
        return Decisions(self.incarnation, tuple(sorted(self.taken)), tuple(sorted(self.returned)))


@dataclass
class Outbound:
    """The parcels of one receiver that are not settled, by number."""

    following: int = 0
    parcels: dict[int, Parcel] = field(default_factory=dict)

    @property
    def oldest(self) -> int:
        return min(self.parcels, default=self.following)


@dataclass(frozen=True)
class DurableView:
    """The part of the mass that a frame to one other site may tell: nothing that a crash could still undo."""

    decisions: Decisions = field(default_factory=Decisions)
    oldest: int = 0
    following: int = 0


class Mass:
    """One site's part of the mass; `late` is the number of rounds after which a parcel is returned."""

    def __init__(self, name: str, incarnation: int, *, late: int, start: int = 0):
        self.name, self.incarnation, self._late = name, incarnation, late
        self.place = Place(start, -1)
        self.channel = 0
        self.outbound: dict[str, Outbound] = {}
        self.inbound: dict[str, Inbound] = {}
        self.inbox: list[Parcel] = []  # taken, not yet added
        self.moves = 0  # parcels made in this exchange
        self.limit: float | None = None  # of the push-sum weight, the last tensor: that of all sites together
        self._net_weight: dict[str, float] = {}  # from a site since the start, less what it took from here
        self.like: tuple[Tensor, ...] = ()  # shapes and dtypes of the present exchange
        self._kept: tuple[Tensor, ...] = ()  # in double precision, and so rounded once an exchange
        self._added: list[Parcel] = []
        self._durable: dict[str, DurableView] = {}

    def begin(self, place: Place, channel: int, tensors: Sequence[Tensor]) -> None:
        """Begin the next exchange with the algorithm's tensors, which by now include what the last one added."""
        assert place > self.place
        added = {id(parcel) for parcel in self._added}
        self.inbox = [parcel for parcel in self.inbox if id(parcel) not in added]
        self._added, self.moves = [], 0
        self.place, self.channel = place, channel
        self.like = tuple(tensors)
        self._kept = tuple(tensor.detach().double().clone() for tensor in tensors)

    def send(self, to: str, content: Sequence[Tensor]) -> Parcel:
        """Take this much out of what is kept. It leaves after the next snapshot."""
        pairs = zip(content, self.like, strict=True)
        rounded = tuple(part.detach().to(like.dtype).reshape(-1) for part, like in pairs)
        parts = zip(self._kept, rounded, strict=True)
        self._kept = tuple(kept - part.double().view(kept.shape) for kept, part in parts)
        link = self.outbound.setdefault(to, Outbound())
        parcel = Parcel(self.name, to, self.incarnation, link.following, self.place, self.channel, rounded)
        link.parcels[link.following] = parcel
        link.following += 1
        self.moves += 1
        return parcel

    def decide(self, parcel: Parcel) -> str:
        """Decide about a parcel, for good: taken, returned, or known from before."""
        link = self._inbound(parcel.sender, parcel.incarnation)
        number = parcel.sequence
        if number < link.oldest or number in link.taken or number in link.returned:
            return KNOWN
        count = sum(waiting.sender == parcel.sender for waiting in self.inbox)
        if count >= MAX_WAITING or len(link.taken) + len(link.returned) >= MAX_DECISIONS:
            raise RefusedError("too many parcels of its sender wait here")
        if parcel.made.round < self.place.round - self._late:
            link.returned.add(number)
            return RETURNED
        self._check_weight(parcel)
        link.taken.add(number)
        self.inbox.append(parcel)
        return TAKEN

    def _check_weight(self, parcel: Parcel) -> None:
        """Refuse more than all sites have: what is here and what comes are different parts of that, however late.

        Only the largest contributor is refused: the others may merely forward its excess.
        """
        if self.limit is None:
            return
        weight = float(parcel.content[-1])
        here = sum(float(taken.content[-1]) for taken in self.inbox if taken.channel == parcel.channel)
        # An epoch's pause counts all again.
        if self._kept and parcel.channel == self.channel and self.place.call >= 0:
            here += float(self._kept[-1])
        given = self._net_weight.get(parcel.sender, 0.0) + weight
        if here + weight > self.limit * (1 + 1e-9) and given >= max(self._net_weight.values(), default=0.0):
            raise RefusedError(f"its weight {weight:g} and {here:g} here are more than all sites have")
        self._net_weight[parcel.sender] = given

    def forget_settled(self, by: str, incarnation: int, oldest: int) -> None:
        """Forget decisions about parcels below `oldest`, which their sender has forgotten."""
        link = self._inbound(by, incarnation)
        if oldest > link.oldest:
            link.oldest = oldest
            link.taken = {number for number in link.taken if number >= oldest}
            link.returned = {number for number in link.returned if number >= oldest}

    def apply_decisions(self, by: str, decisions: Decisions) -> set[int]:
        """Apply a site's decisions about parcels from here: they leave the outbox, and come back if they were returned.

        Return the numbers of parcels that seem lost: later ones have arrived.
        """
        if decisions.incarnation != self.incarnation:
            return set()
        link = self.outbound.setdefault(by, Outbound())
        numbers = {*decisions.taken, *decisions.returned}
        if numbers and max(numbers) >= link.following:
            raise RefusedError(f"it decides about parcels never made: is {self.name}'s journal old?")
        for number in decisions.taken:
            parcel = link.parcels.pop(number, None)
            if parcel is not None and self.limit is not None:
                self._net_weight[by] = self._net_weight.get(by, 0.0) - float(parcel.content[-1])
        for number in decisions.returned:
            parcel = link.parcels.pop(number, None)
            if parcel is not None:
                self.inbox.append(parcel)
        return {number for number in link.parcels if numbers and number < max(numbers)}

    def sum_due(self) -> tuple[tuple[Tensor, ...], list[Parcel]]:
        """Return (kept + all parcels due by now, these parcels); again with more, when more have come."""
        self._added = [p for p in self.inbox if p.made <= self.place and p.channel == self.channel]
        total = [kept.clone() for kept in self._kept]
        for parcel in self._added:
            for into, content in zip(total, parcel.content, strict=True):
                into.add_(content.double().view(into.shape))
        return tuple(total), self._added

    def parcels_to(self, site: str) -> dict[int, Parcel]:
        """Return the parcels to a site that are not settled, by number."""
        return self.outbound[site].parcels if site in self.outbound else {}

    def has_parcel(self, sender: str, place: Place) -> bool:
        return any(parcel.sender == sender and parcel.made == place for parcel in self.inbox)

    @property
    def has_unwritten_decisions(self) -> bool:
        """Tell whether there are decisions that are not on disk, so that others may not learn of them yet."""
        return any(self._news(site, link) for site, link in self.inbound.items())

    @property
    def has_unwritten(self) -> bool:
        """Tell whether there are those, or parcels that are settled here and not on disk."""
        oldest = any(link.oldest != self.durable_view(site).oldest for site, link in self.outbound.items())
        return oldest or self.has_unwritten_decisions

    def durable_view(self, to: str) -> DurableView:
        """Return what a frame to that site may tell."""
        return self._durable.get(to, DurableView())

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return everything as a JSON object and tensors. Call `mark_written` once it is on disk."""
        pairs = zip(self._kept, self.like, strict=True)
        tensors = {f"kept.{i}": kept.to(like.dtype) for i, (kept, like) in enumerate(pairs)}
        parcels = [(True, parcel) for parcel in self.inbox]
        parcels += [(False, parcel) for link in self.outbound.values() for parcel in link.parcels.values()]
        for i, (_, parcel) in enumerate(parcels):
            tensors |= {f"parcel.{i}.{k}": content for k, content in enumerate(parcel.content)}
        meta = {
            "name": self.name,
            "incarnation": self.incarnation,
            "place": self.place,
            "channel": self.channel,
            "moves": self.moves,
            "following": {to: link.following for to, link in self.outbound.items()},
            "inbound": {
                by: [link.incarnation, link.oldest, sorted(link.taken), sorted(link.returned)]
                for by, link in self.inbound.items()
            },
            "parcels": [[inside, *parcel[:-1], len(parcel.content)] for inside, parcel in parcels],
        }
        return meta, tensors

    def mark_written(self) -> None:
        """Note that the last snapshot is on disk."""
        for site in {*self.outbound, *self.inbound}:
            out, into = self.outbound.get(site, Outbound()), self.inbound.get(site)
            decisions = into.decisions() if into is not None else Decisions()
            self._durable[site] = DurableView(decisions, out.oldest, out.following)

    @classmethod
    def restore(cls, meta: dict[str, Any], tensors: dict[str, Tensor], *, late: int) -> Mass:
        mass = cls(meta["name"], meta["incarnation"], late=late)
        mass.place, mass.channel, mass.moves = Place(*meta["place"]), meta["channel"], meta["moves"]
        kept = sum(1 for key in tensors if key.startswith("kept."))
        mass.like = tuple(tensors[f"kept.{i}"] for i in range(kept))
        mass._kept = tuple(tensor.double() for tensor in mass.like)
        mass.outbound = {to: Outbound(following) for to, following in meta["following"].items()}
        for by, (incarnation, oldest, taken, returned) in meta["inbound"].items():
            mass.inbound[by] = Inbound(incarnation, oldest, set(taken), set(returned))
        for i, (inside, *header, count) in enumerate(meta["parcels"]):
            content = tuple(tensors[f"parcel.{i}.{k}"] for k in range(count))
            parcel = Parcel._make([*header, content])
            parcel = parcel._replace(made=Place(*parcel.made))
            if inside:
                mass.inbox.append(parcel)
            else:
                mass.outbound[parcel.receiver].parcels[parcel.sequence] = parcel
        mass.mark_written()
        return mass

    def reset_links(self) -> None:
        """Begin a new epoch: all mass is counted again, so nothing on its way is owed to anyone."""
        self.outbound = {to: Outbound(link.following) for to, link in self.outbound.items()}
        self.inbox, self._added = [], []

    def _news(self, site: str, link: Inbound) -> bool:
        known = self.durable_view(site).decisions
        return not (link.taken <= set(known.taken) and link.returned <= set(known.returned))

    def _inbound(self, sender: str, incarnation: int) -> Inbound:
        link = self.inbound.get(sender)
        if link is None or link.incarnation < incarnation:  # it lost its state, and counts from 0 again
            link = self.inbound[sender] = Inbound(incarnation)
        elif link.incarnation > incarnation:
            raise RefusedError("it was sent before its sender lost its state")
        return link
