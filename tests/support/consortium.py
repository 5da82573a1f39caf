"""Sites of a consortium in one process: the real exchange and journal over simulated links, with crashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from tests.support.simulated_links import CrashError, Faults, MemoryStorage, Network
from tests.support.traced import Step, TracedExchange, total
from torch import Tensor

from gossamer.algorithms.base import Exponential
from gossamer.algorithms.push_sum import PushSum
from gossamer.consortium.contacts import Pace
from gossamer.consortium.exchange import AloneError, Epoch, LeftBehindError, PeerExchange
from gossamer.consortium.frames import Place
from gossamer.consortium.journal import Journal, JournaledGradient
from gossamer.consortium.mass import Mass
from gossamer.runtime.loop import run

STUDY = hashlib.sha256(b"study").hexdigest()
Draw = Callable[[int, int, Tensor], Tensor]  # (node, draw, point) → gradient
FAULTS = Faults(loss=0.15, repeat=0.2, spoil=0.05, delay=(0.001, 0.2))
LR = 0.1
PUSH_SUM = PushSum(lr=Exponential(LR))


def least_squares(n: int, d: int = 3, seed: int = 0) -> tuple[Any, Tensor]:
    """(gradient of node i at a point, the solution of all nodes together)."""
    make = torch.Generator().manual_seed(seed)
    A = torch.randn(n, 8, d, generator=make, dtype=torch.float64)
    b = torch.randn(n, 8, generator=make, dtype=torch.float64)

    def draw(i: int, k: int, point: Tensor) -> Tensor:
        return ((A[i].T @ (A[i] @ point[0].double() - b[i])) / 8)[None].to(point)

    best = torch.linalg.solve(torch.einsum("nij,nik->jk", A, A), torch.einsum("nij,ni->j", A, b))
    return draw, best


def noisy(draw: Any) -> Any:
    """Seeded noise: the same for (node, draw) wherever it is computed."""

    def with_noise(i: int, k: int, point: Tensor) -> Tensor:
        stream = torch.Generator().manual_seed(1000 * i + k)
        return draw(i, k, point) + 0.1 * torch.randn(point.shape, generator=stream, dtype=point.dtype)

    return with_noise


def starts(n: int, d: int = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(5), dtype=dtype)


class Private:
    """A gradient that counts what it released, as a ledger would."""

    def __init__(self, node: int, draw: Draw, ledger: list[int]):
        self._node, self._draw, self._ledger = node, draw, ledger
        self.draws = 0

    def __call__(self, points: Tensor) -> Tensor:
        k, self.draws = self.draws, self.draws + 1
        self._ledger.append(k)
        return self._draw(self._node, k, points)

    def state(self) -> dict[str, Any]:
        return {"draws": torch.tensor(self.draws)}

    def restore(self, state: dict[str, Any]) -> None:
        self.draws = int(state["draws"])


@dataclass
class Consortium:
    """`rounds` of an algorithm by n sites; `crash(site, n)` ends a site's process at its n-th write (see MemoryStorage)."""

    algorithm: Any
    topology: Any
    start: Tensor  # (n, d)
    draw: Draw
    rounds: int
    faults: Faults = field(default_factory=Faults)
    pace: Pace = field(default_factory=lambda: Pace(deadline=1.0, patience=5.0))
    seed: int = 0
    crash: Callable[[str, int], float | None] = lambda site, n: None
    off: float = 0.3  # seconds that a crashed site is away

    def __post_init__(self) -> None:
        n = len(self.start)
        self.names = [f"site-{i:02d}" for i in range(n)]
        self.epoch = Epoch(0, tuple(self.names), self.topology)
        self.network = Network(self.names, self.faults, self.seed)
        self.disks = {name: MemoryStorage(lambda k, name=name: self.crash(name, k)) for name in self.names}
        self.ledgers: dict[str, list[int]] = {name: [] for name in self.names}
        self.steps: dict[str, dict[Any, Step]] = {name: {} for name in self.names}
        self.used: dict[str, dict[int, tuple[int, Tensor]]] = {name: {} for name in self.names}  # use → round, value
        self.skipped: dict[str, list[int]] = {name: [] for name in self.names}
        self.final: dict[str, Any] = {}
        self.crashes = 0
        self.exchanges: dict[str, PeerExchange] = {}
        self.seconds: dict[str, list[float]] = {name: [] for name in self.names}

    def run(self) -> Consortium:
        self.network.run({name: lambda name=name: self._site(name) for name in self.names})
        return self

    def _site(self, name: str) -> None:
        while True:
            try:
                return self.live(name)
            except CrashError:
                self.crashes += 1
                self.network.sleep(name, self.off)

    def live(self, name: str) -> None:
        node = self.names.index(name)
        journal = Journal(self.disks[name])
        exchange = TracedExchange(
            name=name,
            study=STUDY,
            epoch=self.epoch,
            algorithm=self.algorithm,
            links=self.network.links(name),
            journal=journal,
            pace=self.pace,
            initial=self.algorithm.init(self.start[[node]]),
            trace=lambda step: self.steps[name].__setitem__((step.place, step.channel), step),
            incarnation=1,
            clock=self.network.clock,
        )
        self.exchanges[name] = exchange
        first, state, uses = exchange.resume()
        ledger = self.ledgers[name]
        grad = JournaledGradient(Private(node, self.draw, ledger), journal, uses=uses, paid=len(ledger))
        exchange.uses = lambda: grad.uses

        def used(points: Tensor) -> Tensor:
            use, value = grad.uses, grad(points)
            self.used[name][use] = exchange.place.round, value
            return value

        exchange.meet(self.network.clock() + self.pace.deadline)

        def after(t: int, state: Any) -> None:
            exchange.after_round(t, state)
            self.seconds[name].append(self.network.clock())

        while name not in self.final:
            try:
                self.final[name] = run(
                    self.algorithm,
                    state,
                    used,
                    exchange,
                    rounds=self.rounds,
                    start=first,
                    before_round=exchange.before_round,
                    after_round=after,
                )
            except LeftBehindError as ahead:
                first, state = min(ahead.round, self.rounds), ahead.state
                self.skipped[name].append(first)
            except AloneError:  # the others are through
                self.final[name] = exchange._next
        exchange.finish()

    def masses(self) -> list[Mass]:
        """Read from the disks alone."""
        return [self.mass(name) for name in self.names]

    def mass(self, name: str) -> Mass:
        held = Journal(MemoryStorage(data=self.disks[name].data)).contents
        if held.meta is None:  # it crashed before its first exchange, and never came back to one
            mass = Mass(name, 1, late=self.pace.late, start=-1)
            initial = self.algorithm.init(self.start[[self.names.index(name)]])
            mass.begin(Place(-1, 0), 0, (initial.x, initial.w.double()))
            return mass
        return Mass.restore(held.meta, held.tensors, late=self.pace.late)

    def total(self) -> list[Tensor]:
        return total(self.masses())
