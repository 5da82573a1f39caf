"""The exchange of one site: what an algorithm's `mix` calls. It waits for no site longer than one deadline.

An exchange goes: what the algorithm has is split, the whole state is forced to disk, parcels leave at the next tick,
those of the neighbours are waited for until the deadline, and what has come is added. A neighbour that missed a
deadline is suspect: not waited for, and its share is kept, until it is heard again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.push_sum import PushSum
from gossamer.algorithms.wrappers import Centre, FinalGossip, Mixes, Momentum, TailAverage, Wrapper, mixes_of
from gossamer.consortium.contacts import Contacts, Pace
from gossamer.consortium.frames import MAX_RATIO, Place
from gossamer.consortium.journal import Journal
from gossamer.consortium.links import Links
from gossamer.consortium.mass import Mass
from gossamer.errors import UserError
from gossamer.methods.km.algorithm import KM
from gossamer.topology.schedule import Topology

WINDOW = 2  # parcels of a link that may be undecided
_Settled = Callable[[str], bool]
PAUSE = -1  # the place in a round, before its first exchange, where an epoch changes


@dataclass(frozen=True)
class Epoch:
    """The sites that take part: `sites[i]` is node i of the topology."""

    number: int  # its first round: sites that know different changes still mean the same by it
    sites: tuple[str, ...]
    topology: Topology


class _Begun(NamedTuple):
    """The round that has begun, as the disk has it: what a crash takes this site back to."""

    round: int
    state: Any
    uses: int  # gradients requested before it
    ran: int  # rounds that ended here before it


class Rule:
    """Averages by a doubly stochastic, symmetric W: over an edge flows W_ij (x_i − x_j), from one site to the other.

    A rule says what a site keeps of an exchange's tensors, what a neighbour gets, and what the algorithm gets back.
    """

    pairs = True  # both sites of an edge move by the same amount, or neither does
    weighted = False  # the last tensor is a push-sum weight

    def kept(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(tensors)

    def parcel(self, share: float, own: Sequence[Tensor], offer: Sequence[Tensor]) -> list[Tensor]:
        return [share * (a.double() - b.double()) for a, b in zip(own, offer, strict=True)]

    def result(self, total: Sequence[Tensor], own: Sequence[Tensor], moves: int) -> list[Tensor]:
        return list(total)

    def renewed(self, state: Any) -> Any:
        """Return the state with which a new epoch begins."""
        return state


class Shares(Rule):
    """Push-sum: a neighbour gets its share of x and w, and a share that cannot leave is kept."""

    pairs = False
    weighted = True

    def parcel(self, share: float, own: Sequence[Tensor], offer: Sequence[Tensor]) -> list[Tensor]:
        return [share * tensor for tensor in own]

    def renewed(self, state: Any) -> Any:
        """x ← x / w, w ← 1."""
        return state._replace(x=state.x / state.w, w=torch.ones_like(state.w))


class TrackedAverages(Rule):
    """Averages of x and of a tracker y of the gradients g."""

    def renewed(self, state: Any) -> Any:
        """Σ y = Σ g over the sites of the new epoch."""
        return state._replace(y=state.g.clone())


class Sums(Rule):
    """Sums over neighbours: x_i − x_j flows over an edge, and the sum is that of x_i + what flowed in, edge by edge."""

    def kept(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [torch.zeros_like(tensor) for tensor in tensors]

    def parcel(self, share: float, own: Sequence[Tensor], offer: Sequence[Tensor]) -> list[Tensor]:
        return super().parcel(1.0, own, offer)

    def result(self, total: Sequence[Tensor], own: Sequence[Tensor], moves: int) -> list[Tensor]:
        return [moves * tensor.double() + flow for tensor, flow in zip(own, total, strict=True)]

    def renewed(self, state: Any) -> Any:
        """The dual variables sum to 0 over the sites of the new epoch."""
        return state._replace(y=torch.zeros_like(state.y))


_RULES: dict[type[Any], Rule] = {PushSum: Shares(), DSGT: TrackedAverages(), DiNNO: Sums()}
_RULES |= dict.fromkeys((DSGD, KM), Rule())
_WRAPPERS = (Momentum, Mixes, TailAverage)
_PUSH_SUM_WRAPPERS = (FinalGossip, Centre)  # agree by push-sum themselves


def rule_of(algorithm: Algorithm) -> Rule:
    """Return the rule of an algorithm's exchanges, or refuse what is not known to survive lost messages.

    The recipe's refusal (`refuse_for_peers`) names its key; this one holds for what a recipe was expanded into.
    """
    wrappers, inner = [], algorithm
    while isinstance(inner, Wrapper):
        wrappers.append(inner)
        inner = inner.inner
    rule = _RULES.get(type(inner))
    if rule is None:
        raise UserError(f"algorithm.kind: {type(inner).__name__} cannot run among peers; use push-sum.")
    allowed = (*_WRAPPERS, *_PUSH_SUM_WRAPPERS) if rule.weighted else _WRAPPERS
    for wrapper in wrappers:
        if not isinstance(wrapper, allowed):
            both = f"{type(wrapper).__name__} around {type(inner).__name__}"
            raise UserError(f"{both} cannot run among peers; use push-sum alone.")
    return rule


def channel_of(algorithm: Algorithm, t: int, call: int) -> int:
    """Return which variable exchange `call` of round t moves: 0 the algorithm's own, 1 and 2 those of wrappers."""
    piece: Any = algorithm
    while isinstance(piece, Wrapper):
        if isinstance(piece, Centre) and t == 0:
            if call < piece.rounds:
                return 1
            call -= piece.rounds
        if isinstance(piece, FinalGossip) and t == piece.last and call >= mixes_of(piece.inner):
            return 2
        piece = piece.inner
    return 0


class AloneError(Exception):
    """All neighbours have been away for longer than `Pace.patience`: the study is over, or this site is cut off."""


class LeftBehindError(Exception):
    """The others are more than `late` rounds ahead: continue with their round, from the state this site has.

    The rounds between are skipped: their draws would move a model that no site mixes with, and are not paid for.
    """

    def __init__(self, round: int, by: Sequence[str], state: Any):
        super().__init__(f"{' and '.join(by)} {'is' if len(by) == 1 else 'are'} in round {round}")
        self.round, self.by, self.state = round, by, state


@dataclass(kw_only=True, eq=False)
class PeerExchange:
    """mix(t, A, B, …) of one site; `before_round` and `after_round` go to the loop of rounds.

    `initial` is the algorithm's state (a NamedTuple) at the start. After a crash the exchange is made again with the
    same journal: `resume` says with which round and state the loop continues. The round is repeated then, but its
    exchanges that were on disk are not: what they kept and sent is taken from the journal. `between(t)` is called ahead
    of round t and again and again while this site waits there; it may raise to end the wait. `uses()` is the number of
    gradients requested so far.
    """

    name: str
    study: str
    epoch: Epoch
    algorithm: Any
    links: Links
    journal: Journal
    pace: Pace
    initial: Any
    start: int = 0
    uses: Callable[[], int] = lambda: 0
    between: Callable[[int], None] = lambda t: None
    incarnation: int | None = None
    clock: Callable[[], float] = time.monotonic
    rounds: int | None = None

    def __post_init__(self) -> None:
        self.rule = rule_of(self.algorithm)
        if self.name not in self.epoch.sites:
            raise UserError(f"{self.name} is not a site of epoch {self.epoch.number}.")
        largest = (float(tensor.abs().max()) for tensor in self.initial if tensor.numel())
        self._bound = MAX_RATIO * max(1.0, *largest)
        self._weights: dict[int, float] = {}  # channel → the push-sum weight, in double precision
        self._own: tuple[Tensor, ...] = ()
        self._sent: dict[str, tuple[int, float]] = {}
        self._call = 0
        self._missing = 0  # counts down the exchanges since a parcel was missing
        self._usual = 1.0  # the weight while none is missing
        meta, tensors = self.journal.contents.meta, self.journal.contents.tensors
        self.begun = meta is not None  # is there anything on disk?
        if meta is None:
            incarnation = time.time_ns() if self.incarnation is None else self.incarnation
            self.mass = Mass(self.name, incarnation, late=self.pace.late, start=self.start)
            self._begun = _Begun(self.start, self.initial, 0, 0)
        else:
            if (meta["name"], meta["study"]) != (self.name, self.study):
                raise UserError(f"the journal is of {meta['name']}, perhaps in another study; restore its own.")
            if meta["epoch"] != self.epoch.number:
                raise UserError(f"the journal is in epoch {meta['epoch']}; use the roster of that epoch.")
            self.mass = Mass.restore(meta, tensors, late=self.pace.late)
            fields = {key: tensors[f"state.{key}"] for key in self.initial._fields}
            self._begun = _Begun(meta["round"], type(self.initial)(**fields), meta["uses"], meta["ran"])
            self._weights = {int(key): value for key, value in meta["weights"].items()}
            self._own = tuple(tensors[f"own.{i}"] for i in range(meta["own"]))
            self._sent = {to: (number, share) for to, (number, share) in meta["sent"].items()}
        self._at, self._next, self._before, self.rounds_run = self._begun  # rounds skipped are not counted
        self._enter(self.epoch)

    def _enter(self, epoch: Epoch) -> None:
        self.epoch = epoch
        graphs = [self._edges(t) for t in range(epoch.topology.period or 0)]
        near = {site for into, out in graphs for site in (*into, *out)}
        # Without a period, everybody may become a neighbour.
        self._neighbours = sorted(near if graphs else {*epoch.sites} - {self.name})
        self.contacts = Contacts(
            study=self.study, epoch=epoch.number, sites=epoch.sites, neighbours=self._neighbours,
            mass=self.mass, links=self.links, pace=self.pace, clock=self.clock, rounds=self.rounds,
            weighted=self.rule.weighted, bound=self._bound, model=lambda: self.algorithm.model(self._next),
        )  # fmt: skip

    # For the loop of rounds

    def resume(self) -> tuple[int, Any, int]:
        """Return the round to resume with, its first state, and the number of gradients requested before it."""
        return self._begun.round, self._begun.state, self._begun.uses

    def before_round(self, t: int) -> None:
        """Wait while no neighbour is there: nothing is drawn in isolation. See the two errors above."""
        self._call, self._at, self._before = 0, t, self.uses()
        end = self.clock() + self.pace.patience
        while self._look() and self.isolated:
            if self.clock() >= end:
                raise AloneError(f"no neighbour of {self.name} was heard for {self.pace.patience:g} s")
            self._write_if(self.mass.has_unwritten_decisions)
            self.contacts.wait_for_tick()
            self.contacts.greet(self._neighbours, every=self.pace.deadline / 8)
            self.contacts.flush()
            self.contacts.listen(self.clock() + self.pace.deadline / 8)
        there = self.contacts.left_behind()
        if there is not None and there[0] > t and not self._is_split:
            raise LeftBehindError(*there, self._next)

    @property
    def _is_split(self) -> bool:
        """Are parcels of this round on disk? Then it is ended first: its state is the one before the split."""
        return self.mass.place >= Place(self._at, 0)

    def _look(self) -> bool:
        """Look for news between rounds; return False where this site should wait no longer for the others."""
        if not self._is_split:
            self.between(self._at)
        return not (self._is_split and self.contacts.ahead is not None)

    def after_round(self, t: int, state: Any) -> None:
        self._next, self.rounds_run = state, self.rounds_run + 1

    def meet(self, deadline: float) -> list[str]:
        """Greet everybody and wait until all were heard, at most until the deadline; who is missing.

        A site that hears another in a later epoch waits no longer.
        """
        contacts = self.contacts
        while missing := [
            site for site in contacts.others if contacts[site].heard is None and not contacts.is_cut_off(site)
        ]:
            if self.clock() >= deadline or contacts.ahead is not None:
                break
            if not self.begun:  # one that comes back waits at most a deadline, and needs the others to drain
                self._look()
            contacts.greet(missing, every=self.pace.deadline / 8)
            self._listen(min(deadline, self.clock() + self.pace.deadline / 8))
        contacts.flush()
        return missing

    @property
    def isolated(self) -> bool:
        """Is there a neighbour in this epoch's graph, and none of them here?"""
        return bool(self._neighbours) and all(map(self.contacts.is_away, self._neighbours))

    @property
    def place(self) -> Place:
        """The place of the loop: the round, and the exchange that comes next."""
        return Place(self._at, self._call)

    # One exchange

    def __call__(self, t: int, *tensors: Tensor) -> Any:
        place, self._call = Place(self._at, self._call), self._call + 1
        if place < self.mass.place:  # done before the crash: its results are in the journal
            return tensors[0] if len(tensors) == 1 else tensors
        channel, (into, out) = channel_of(self.algorithm, place.round, place.call), self._edges(t)
        again = place == self.mass.place
        if not (again and self._own):
            self._own = self._exact(channel, tensors, again)
        if not again:
            self._begin(place, channel, out)
        self.contacts.open_channel(channel, self._own)
        self.contacts.wait_for_tick()
        if self.rule.pairs:
            self._pair(place, into)
        else:
            self.contacts.flush()
            self.contacts.greet(site for site in out if site not in self._sent)
            self._wait(into, lambda site: self._has_come(site, place))
            complete = all(self.mass.has_parcel(site, place) for site in into)
            self._missing = max(0, self._missing - 1) if complete else 2 * self.pace.late
        return self._result(channel, tensors)

    def _begin(self, place: Place, channel: int, out: Mapping[str, float]) -> None:
        if not self.rule.pairs:
            self._make_room(out)
        self.mass.begin(place, channel, self.rule.kept(self._own))
        self._sent = {}
        if not self.rule.pairs and not self._starved():
            for site, share in out.items():
                if self.contacts.reaches(site):
                    self._send(site, share, ())
        if place.call == 0:
            self._begun = _Begun(place.round, self._next, self._before, self.rounds_run)
        self._write()

    def _starved(self) -> bool:
        """Parcels have not come of late, and half the usual weight is gone: it is kept, for steps go with η / w.

        There is no deadlock in this: where all sites have too little, the rest is under way, and arrives or returns.
        """
        return self.rule.weighted and self._missing > 0 and float(self._own[-1]) < self._usual / 2

    def _send(self, site: str, share: float, offer: Sequence[Tensor]) -> None:
        parcel = self.mass.send(site, self.rule.parcel(share, [x.reshape(-1) for x in self._own], offer))
        self._sent[site] = (parcel.sequence, share)

    def _exact(self, channel: int, tensors: Sequence[Tensor], again: bool) -> tuple[Tensor, ...]:
        """The tensors, the weight in double precision: the algorithm has it rounded to its own dtype."""
        if not self.rule.weighted:
            return tuple(tensor.detach().clone() for tensor in tensors)
        *values, seen = tensors
        exact = seen.detach().double()
        if channel in self._weights and not again:
            exact = torch.full_like(exact, self._weights[channel])
            if not torch.equal(exact.to(seen.dtype), seen):
                raise ValueError("a push-sum weight was changed between two exchanges")
        return (*values, exact)

    def _result(self, channel: int, tensors: Sequence[Tensor]) -> Any:
        total, added = self.mass.sum_due()
        mixed = self.rule.result(total, self._own, self.mass.moves + len(added))
        if self.rule.weighted:
            self._weights[channel] = float(mixed[-1])
            weight = self._weights[channel]
            self._usual = max(weight, self._usual + (weight - self._usual) / 64) if self._missing else weight
        results = tuple(new.to(old.dtype).view(old.shape) for new, old in zip(mixed, tensors, strict=True))
        return results[0] if len(results) == 1 else results

    def _edges(self, t: int) -> tuple[dict[str, float], dict[str, float]]:
        """Of graph t: the sites that send here and those that are sent to, each with its share."""
        P, sites = self.epoch.topology.weights(t), self.epoch.sites
        own = sites.index(self.name)
        row, column = P[[own]].tocoo(), P[:, [own]].tocoo()
        into = {sites[j]: float(v) for j, v in zip(row.col, row.data, strict=True) if j != own}
        out = {sites[i]: float(v) for i, v in zip(column.row, column.data, strict=True) if i != own}
        if self.rule.pairs and into != out:
            kind = self.epoch.topology.kind
            raise UserError(f"topology.kind = {kind!r} has one-way edges; use an undirected graph.")
        return into, out

    def _has_come(self, site: str, place: Place) -> bool:
        passed = self.contacts[site].passed
        return self.mass.has_parcel(site, place) or (passed is not None and passed >= place)

    def _pair(self, place: Place, into: Mapping[str, float]) -> None:
        """On every edge the site that stands first in the roster computes what flows, once it has the other's offer.

        It alone decides: what it takes out of its own is a parcel, and parcels are never lost. So both sites move by
        the same amount, the other at the latest when the parcel arrives; without an offer in time neither moves.
        """
        order, contacts = self.epoch.sites.index, self.contacts
        ask = [site for site in into if order(site) < order(self.name)]
        offer_again = -math.inf

        def offer() -> None:
            """Until it is answered: an offer may be lost, and says nothing new when it comes twice."""
            nonlocal offer_again
            if self.clock() < offer_again:
                return
            offer_again = self.clock() + self.pace.deadline / 4
            for site in into:
                if site in ask and not contacts[site].suspect and not self.mass.has_parcel(site, place):
                    contacts.post(site, "offer", content=tuple(tensor.reshape(-1) for tensor in self._own))
                else:
                    contacts.greet([site])  # so that it does not wait for what this site has passed

        def settled(site: str) -> bool:
            contact = contacts[site]
            if site in ask:
                come = self.mass.has_parcel(site, place)
            else:
                offer = contact.offers.pop(place, None)
                if offer is not None and site not in self._sent and contacts.reaches(site):
                    self._send(site, into[site], offer.content)
                    contacts.urgent = True
                come = offer is not None or site in self._sent
            return come or (contact.heard is not None and contact.heard > place)

        self._wait(into, settled, offer)
        for site in contacts.others:
            contacts[site].offers = {at: offer for at, offer in contacts[site].offers.items() if at > place}

    def _wait(self, sites: Iterable[str], settled: _Settled, repeat: Callable[[], None] = lambda: None) -> None:
        contacts, now, quarter = self.contacts, self.clock(), self.pace.deadline / 4
        end, remind = now + self.pace.deadline, now + quarter
        while True:
            repeat()
            left = [site for site in sites if not settled(site) and contacts.is_expected(site)]
            self._write_if(contacts.urgent)
            contacts.flush()
            if not left or contacts.left_behind() is not None:
                return
            if self.clock() >= end:
                contacts.mark_suspect(left)
                return
            if self.clock() >= remind:
                remind = self.clock() + quarter
                contacts.wait_for_tick()
                contacts.greet(left, "waiting")
            contacts.listen(min(end, remind))

    def _make_room(self, out: Mapping[str, float]) -> None:
        """Send no site more than `WINDOW` parcels ahead of its decisions; one that decides too late is suspect."""
        end = self.clock() + self.pace.deadline
        contacts, parcels = self.contacts, self.mass.parcels_to
        while full := [site for site in out if len(parcels(site)) >= WINDOW and contacts.reaches(site)]:
            if self.clock() >= end:
                contacts.mark_suspect(full)
                return
            self._listen(end)

    def _listen(self, until: float) -> None:
        """Wait for something to come; what was decided meanwhile is written first, for others may wait for that."""
        self._write_if(self.mass.has_unwritten_decisions)
        self.contacts.flush()
        self.contacts.listen(until)

    # Epochs

    def enter(self, epoch: Epoch, t: int, state: Any) -> Any:
        """Before round t: the state with which it begins the new epoch. Drained, x ← x / w, w ← 1, the new topology.

        Every site of the old epoch does this, before the same round if it can: all mass is counted again, so one that
        comes later takes nothing from the others. One that crashes meanwhile does it again.
        """
        renewed = self.leave(t, state)
        self._enter(epoch)
        return renewed

    def leave(self, t: int, state: Any) -> Any:
        """The same without an epoch to follow: this site goes, with the state it has."""
        place = Place(t, PAUSE)
        if self.mass.place < place:
            own = self._exact(0, (state.x, state.w), False) if self.rule.weighted else ()
            self.mass.begin(place, 0, own)
            self._own, self._sent = own, {}
            self._begun = _Begun(t, state, self.uses(), self.rounds_run)
            self._write()
        self.contacts.open_channel(0, self.mass.like)
        self._drain()
        if self.rule.weighted:
            total, _ = self.mass.sum_due()
            state = state._replace(x=total[0].to(state.x), w=total[1].to(state.w))
        self.mass.reset_links()
        self._weights, self._own, self._next = {}, (), self.rule.renewed(state)
        self._missing, self._usual = 0, 1.0
        return self._next

    def finish(self) -> None:
        """After the last round: stay until everybody has decided about everything, at most one deadline."""
        self._drain()
        self.links.close()
        self.journal.close()

    def _drain(self) -> None:
        end, contacts = self.clock() + self.pace.deadline, self.contacts

        def done() -> bool:
            links = self.mass.outbound.items()
            out = any(link.parcels for site, link in links if not contacts.is_away(site))
            return not out and all(contacts[one].drained or contacts.is_away(one) for one in contacts.others)

        def tell(every: float) -> None:
            news = self.mass.has_unwritten
            self._write_if(news)
            contacts.wait_for_tick()
            contacts.flush()
            contacts.greet(contacts.others, every=0.0 if news else every)

        while not done() and self.clock() < end:
            tell(self.pace.deadline / 8)
            contacts.listen(min(end, self.clock() + self.pace.deadline / 8))
        tell(0.0)

    def adopt(self, state: Any) -> None:
        """Begin with this state, that of a neighbour's model."""
        self._next, self._begun = state, self._begun._replace(state=state)

    def ask_model(self, deadline: float) -> tuple[int, Tensor]:
        """(round, model) of a neighbour: what one that joins, or has lost its disk, begins with."""
        already: set[str] = set()
        while self.contacts.answer is None:
            if self.clock() >= deadline:
                near = ", ".join(self._neighbours)
                raise UserError(f"{near} did not send {self.name} a model; start again when one is up.")
            self._look()
            # Often while no neighbour is in this epoch, at once when one is; but not twice in a hurry.
            there = {site for site in self._neighbours if self.contacts[site].heard is not None}
            self.contacts.greet(there - already, "ask")
            self.contacts.greet(self._neighbours, "ask", every=self.pace.deadline / (2 if there else 8))
            already |= there
            self.contacts.listen(min(deadline, self.clock() + self.pace.deadline / 8))
        answer, self.contacts.answer = self.contacts.answer, None
        return answer.place.round, answer.content[0].view(1, -1)

    # To disk

    def _write_if(self, needed: bool) -> None:
        if needed:
            self._write()

    def _write(self) -> None:
        """All of it, before anything is sent that rests on it."""
        meta, tensors = self.mass.snapshot()
        meta |= {
            "study": self.study,
            "epoch": self.epoch.number,
            "sites": list(self.epoch.sites),
            "round": self._begun.round,
            "ran": self._begun.ran,
            "weights": self._weights,
            "sent": self._sent,
            "own": len(self._own) if self.rule.pairs else 0,
        }
        tensors |= {f"state.{key}": value for key, value in self._begun.state._asdict().items()}
        tensors |= {f"own.{i}": tensor for i, tensor in enumerate(self._own[: meta["own"]])}
        self.journal.snapshot(meta, tensors, uses=self._begun.uses)
        self.mass.mark_written()
        self.begun, self.contacts.urgent = True, False
