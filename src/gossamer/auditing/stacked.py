"""Many trainings at once: runs are one more batch axis of the engine.

The leading axis holds nodes × runs, node first: row i·R + r is node i of run r. So an exchange is the product of the
topology's own matrix with (n, R·d) values, without a copy, and the kernels see more nodes, nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from gossamer.accounting.releases import Event
from gossamer.algorithms.base import Grad
from gossamer.kernels.noise import Stream
from gossamer.mechanism.reader import PrivateGradient, Records
from gossamer.runtime.loop import run as run_loop
from gossamer.runtime.simulator import SimulatedExchange
from gossamer.training.assemble import Parts


class Observer(Protocol):
    """Sees every exchange (what all nodes sent, what they got) and in the end the state; takes what it may see."""

    def start(self, state: Any) -> None: ...

    def see(self, t: int, sent: tuple[Tensor, ...], received: tuple[Tensor, ...]) -> None: ...

    def end(self, state: Any) -> None: ...


class Tally:
    """An audit's ledger, in memory: the events of the first row, which are those of any other of that node."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, releases: Sequence[tuple[Sequence[int], Event]]) -> None:
        self.events += [event for nodes, event in releases for _ in nodes]


def repeat(parts: Parts, runs: int, records: Records) -> Parts:
    """The parts of `runs` trainings side by side, on these records (one entry of sizes per row)."""
    o = parts.plan
    nodes = tuple(node for node in o.privacy.nodes for _ in range(runs))
    return replace(
        parts,
        plan=replace(o, privacy=replace(o.privacy, nodes=nodes)),
        nodes=range(len(nodes)),
        records=records,
        sampler=parts.sampler.repeated(runs, records.units),
        noise=parts.noise.repeated(runs),
        x0=parts.x0.repeat_interleave(runs, dim=0),
    )


class StackedExchange:
    """The simulator's exchange for every run at once; observers look on."""

    def __init__(self, simulated: SimulatedExchange, nodes: int, observers: Sequence[Observer]):
        self._mix, self._nodes, self._observers = simulated, nodes, observers

    def __call__(self, t: int, *tensors: Tensor) -> Any:
        together = [tensor.reshape(self._nodes, -1, *tensor.shape[1:]) for tensor in tensors]
        mixed = self._mix(t, *together)
        back = tuple(
            new.reshape(old.shape)
            for new, old in zip(mixed if len(tensors) > 1 else (mixed,), tensors, strict=True)
        )
        for observer in self._observers:
            observer.see(t, tensors, back)
        return back[0] if len(tensors) == 1 else back


@dataclass(frozen=True)
class Trained:
    """What many trainings left: the state of all rows, the events of one, and how long it took."""

    state: Any
    events: list[Event]
    seconds: float


MakeGradient = Callable[[Parts, Tally, Stream], Grad]


def gradient_of(parts: Parts, book: Tally, stream: Stream) -> Grad:
    """The mechanism as the run would have it. Tests of the auditor put a broken one in its place."""
    made = parts.reader(book, stream, written=[0])
    assert isinstance(made, PrivateGradient)
    return made


@torch.no_grad()
def train(
    stacked: Parts,
    stream: Stream,
    observers: Sequence[Observer] = (),
    *,
    make_gradient: MakeGradient = gradient_of,
    after_round: Callable[[int, Any], None] = lambda t, state: None,
) -> Trained:
    """Train all runs of `repeat`ed parts side by side."""
    o, book = stacked.plan, Tally()
    start = time.perf_counter()
    state = o.algorithm.init(stacked.x0.clone())
    for observer in observers:
        observer.start(state)
    plain = StackedExchange(SimulatedExchange(o.topology), o.config.nodes, observers)
    exchange = o.method.noised(plain, stacked, book, lambda: stream)
    grad = make_gradient(stacked, book, stream)
    state = run_loop(o.algorithm, state, grad, exchange, rounds=o.config.rounds, after_round=after_round)
    for observer in observers:
        observer.end(state)
    return Trained(state, book.events, time.perf_counter() - start)
