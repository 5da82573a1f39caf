"""Many trainings at once, as one more batch axis of the engine.

The leading axis holds nodes × runs, node first: row i·R + r is node i of run r. So an exchange is the product of the
topology's own matrix with (n, R·d) values, without a copy, and the kernels see more nodes and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting.releases import Event
from gossamer.algorithms.base import Grad
from gossamer.config.schema import RunConfig
from gossamer.kernels.noise import Stream
from gossamer.mechanism.reader import Records
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run as run_loop
from gossamer.training.assemble import Parts, assemble
from gossamer.training.plan import Plan


def build(config: RunConfig, *, force: bool = False) -> Parts:
    """The parts of a configuration on artificial records."""
    return assemble(Plan.of(config, force=force))


def batch_stream(config: RunConfig, batch: int) -> Stream:
    """The secret stream of one batch: the system's, or if seeded, one that no run uses."""
    if config.privacy.noise.source == "seeded":
        return Stream.seeded(config.seed + (batch + 1) * 2**64)
    return Stream.system()


class Spectator(Protocol):
    """Sees every exchange (what all nodes sent and received) and finally the state."""

    def start(self, state: Any) -> None: ...

    def see(self, t: int, sent: tuple[Tensor, ...], received: tuple[Tensor, ...]) -> None: ...

    def end(self, state: Any) -> None: ...


class NoLedger:
    """The ledger of an audit's trainings, which release nothing: events are not kept."""

    def write(self, releases: Sequence[tuple[Sequence[int], Event]]) -> None: ...


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
    """The simulator's exchange of every run at once, with spectators."""

    def __init__(self, simulated: SimulatedExchange, nodes: int, spectators: Sequence[Spectator]):
        self._mix, self._nodes, self._spectators = simulated, nodes, spectators

    def __call__(self, t: int, *tensors: Tensor) -> Any:
        together = [tensor.reshape(self._nodes, -1, *tensor.shape[1:]) for tensor in tensors]
        mixed = self._mix(t, *together)
        several = mixed if len(tensors) > 1 else (mixed,)
        back = tuple(new.reshape(old.shape) for new, old in zip(several, tensors, strict=True))
        for spectator in self._spectators:
            spectator.see(t, tensors, back)
        return back[0] if len(tensors) == 1 else back


@dataclass(frozen=True)
class Trained:
    """The result of many trainings: the state of all rows."""

    state: Any
    seconds: float
    samples: float  # per-record gradients that were computed


@torch.no_grad()
def train(
    stacked: Parts,
    stream: Stream,
    spectators: Sequence[Spectator] = (),
    watch: Callable[[Grad], Grad] = lambda grad: grad,
) -> Trained:
    """Train all runs of `repeat`ed parts side by side; `watch` may see the points of every gradient."""
    o, book = stacked.plan, NoLedger()
    start = time.perf_counter()
    state = o.algorithm.init(stacked.x0.clone())
    for spectator in spectators:
        spectator.start(state)
    plain = StackedExchange(SimulatedExchange(o.topology), o.config.nodes, spectators)
    exchange = o.method.noised(plain, stacked, book, lambda: stream)
    grad = watch(stacked.reader(book, stream, written=[0]))
    state = run_loop(o.algorithm, state, grad, exchange, rounds=o.config.rounds)
    for spectator in spectators:
        spectator.end(state)
    per_draw = float(np.dot(stacked.sampler.rates, stacked.records.sizes))
    samples = per_draw * o.config.rounds * o.algorithm.draws
    return Trained(state, time.perf_counter() - start, samples)
