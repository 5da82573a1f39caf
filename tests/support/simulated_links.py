"""Sites in one process over links that lose, delay, repeat, reorder and spoil parcels, by a clock that only waits move.

Every site runs in a thread of its own, and one of them at a time: whoever waits hands over to the one whose wait ends
first. So a run with a seed is the same every time, however long its deadlines are.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gossamer.consortium.links import Arrival, Links
from gossamer.consortium.roster import Member


@dataclass(frozen=True)
class Faults:
    """What happens to a parcel on its way, each with a probability of its own."""

    loss: float = 0.0
    repeat: float = 0.0
    spoil: float = 0.0  # its end is cut off
    delay: tuple[float, float] = (0.001, 0.001)  # seconds: parcels overtake each other where these differ


@dataclass
class _Site:
    mailbox: deque[Arrival] = field(default_factory=deque)
    until: float = 0.0
    waiting: bool = False
    over: bool = False
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))


class Network:
    """All links of some sites, and their clock. `cut` holds pairs (sender, receiver) whose parcels are all lost."""

    def __init__(self, sites: list[str], faults: Faults | None = None, seed: int = 0):
        self._faults, self._random = faults or Faults(), random.Random(seed)
        self._sites = {name: _Site() for name in sites}
        self._underway: list[tuple[float, int, str, Arrival]] = []
        self._now, self._count = 0.0, 0
        self._failed: list[BaseException] = []
        self.cut: set[tuple[str, str]] = set()
        self.down: set[str] = set()

    def clock(self) -> float:
        return self._now

    @property
    def sites(self) -> list[str]:
        return list(self._sites)

    def links(self, name: str) -> SimulatedLinks:
        return SimulatedLinks(self, name)

    def run(self, work: Mapping[str, Callable[[], None]]) -> None:
        """All of it, to the end; the first error of a site, if there was one."""
        threads = [threading.Thread(target=self._work, args=(name, job), daemon=True) for name, job in work.items()]
        for name in work:
            self._sites[name].waiting = True
        for name in self._sites.keys() - work.keys():
            self._sites[name].over = True
        for thread in threads:
            thread.start()
        self._hand_over()
        for thread in threads:
            thread.join()
        if self._failed:
            raise self._failed[0]

    def pause(self, name: str, seconds: float) -> None:
        """A site that computes, or is stopped: what arrives meanwhile waits."""
        site, until = self._sites[name], self._now + seconds
        waiting, site.mailbox = site.mailbox, deque()
        while self._now < until:
            arrival = self.wait(name, until)
            waiting.extend([] if arrival is None else [arrival])
        site.mailbox = waiting

    def sleep(self, name: str, seconds: float) -> None:
        """A site that is off for a while: what arrives meanwhile is lost."""
        site, until = self._sites[name], self._now + seconds
        self.down.add(name)
        while self._now < until:
            self.wait(name, until)
            site.mailbox.clear()
        self.down.discard(name)

    def send(self, sender: str, to: str, message: bytes) -> None:
        faults, draw = self._faults, self._random.random
        if (sender, to) in self.cut or to not in self._sites:
            return
        for _ in range(1 + (draw() < faults.repeat)):
            if draw() < faults.loss:
                continue
            raw = bytearray(message)
            if draw() < faults.spoil:
                del raw[self._random.randrange(len(raw)) :]
            self._count += 1
            at = self._now + self._random.uniform(*faults.delay)
            heapq.heappush(self._underway, (at, self._count, to, Arrival(sender, bytes(raw))))

    def wait(self, name: str, until: float) -> Arrival | None:
        site = self._sites[name]
        if not site.mailbox and until > self._now:
            site.until, site.waiting = until, True
            self._hand_over()
            site.turn.acquire()
        return site.mailbox.popleft() if site.mailbox else None

    def _work(self, name: str, job: Callable[[], None]) -> None:
        site = self._sites[name]
        site.turn.acquire()
        try:
            job()
        except BaseException as error:  # handed to whoever runs the network
            self._failed.append(error)
        site.over = True
        self._hand_over()

    def _hand_over(self) -> None:
        """To the site whose wait ends first, by a parcel or its deadline."""
        waiting = {name: site for name, site in self._sites.items() if site.waiting and not site.over}
        while waiting:
            ready = [site for site in waiting.values() if site.mailbox]
            if ready:
                return self._wake(ready[0])
            until, name = min((site.until, name) for name, site in waiting.items())
            if self._underway and self._underway[0][0] <= until:
                at, _, to, arrival = heapq.heappop(self._underway)
                self._now = max(self._now, at)
                if not self._sites[to].over:
                    self._sites[to].mailbox.append(arrival)
            else:
                self._now = max(self._now, until)
                return self._wake(waiting[name])
        return None

    def _wake(self, site: _Site) -> None:
        site.waiting = False
        site.turn.release()


class SimulatedLinks(Links):
    """One site's `Links`."""

    def __init__(self, network: Network, name: str):
        self._network, self._name = network, name
        self._known = {*network.sites} - {name}

    def send(self, to: str, message: bytes, deadline: float) -> None:
        if to in self._known:
            self._network.send(self._name, to, message)

    def receive(self, deadline: float) -> Arrival | None:
        while (arrival := self._network.wait(self._name, deadline)) is not None:
            if arrival.sender in self._known:
                return arrival
        return None

    def states(self) -> dict[str, str]:
        return dict.fromkeys(self._known, "up")

    def versions(self) -> dict[str, str]:
        return {}

    def update(self, members: Iterable[Member]) -> None:
        self._known = {member.name for member in members} - {self._name}

    def close(self) -> None:
        self._known = set()


class CrashError(BaseException):
    """The process of a site ends here. Not an `Exception`: nothing in between may catch it."""


class MemoryStorage:
    """A journal's file in memory that survives its site; `crash(n)` may end the process at the n-th write.

    A write that a crash ends has reached the disk as far as `crash` says: a share of its bytes between 0 and 1.
    """

    def __init__(self, crash: Callable[[int], float | None] = lambda n: None, data: bytes = b""):
        self.data, self.writes, self._crash = data, 0, crash

    def read(self) -> bytes:
        return self.data

    def append(self, data: bytes) -> None:
        reached = self._reached()
        self.data += data if reached is None else data[: int(len(data) * reached)]
        if reached is not None:
            raise CrashError

    def replace(self, data: bytes) -> None:
        reached = self._reached()
        if reached is None or reached >= 1:
            self.data = data
        if reached is not None:
            raise CrashError

    def close(self) -> None:
        pass

    def _reached(self) -> float | None:
        self.writes += 1
        return self._crash(self.writes)
