"""One rank of a pool: see pool.py. Functions here are called on all ranks at once; the first argument is the rank's."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from tests.support.pool_contract import JOBS
from tests.support.quadratics import CASES

from gossamer.config.layers import stored
from gossamer.config.schema import RunConfig
from gossamer.methods.without_replacement.local_models import LocalModels
from gossamer.runtime import wire as messages
from gossamer.runtime.blocks import split
from gossamer.runtime.group import Ranks
from gossamer.runtime.loop import run
from gossamer.runtime.transport.meeting import MeetingNotes
from gossamer.runtime.transport.torch import TorchTransport
from gossamer.testing.quadratics import Quadratic, problem
from gossamer.topology.kinds import build as build_topology
from gossamer.training.request import RunRequest, run_in

RUN = "0123456789abcdef"


def train(ranks: Ranks, case: str, sizes: list[int], topology: dict[str, Any], lr: float, rounds: int) -> Any:
    """A case of quadratics.py with the exact gradients of its quadratics: this rank's rows."""
    algorithm = CASES[case].make(lr)
    a, b, x0 = problem(sum(sizes), seed=5)
    topo = build_topology(weights=algorithm.weights, nodes=sum(sizes), **topology)
    own = slice(ranks.nodes.start, ranks.nodes.stop)
    exchange = ranks.exchange(topo, RUN)
    start = algorithm.init(torch.from_numpy(x0[own]).float())
    state = run(algorithm, start, Quadratic(a[own], b[own]), exchange, rounds=rounds)
    return state._asdict(), exchange.bytes_sent, exchange.bytes_on_wire


def gossamer_run(
    ranks: Ranks,
    sizes: list[int],
    out: Path,
    settings: dict[str, Any] | None = None,
    stop_at: int | None = None,
) -> Any:
    """A whole run, or with `settings` = None the continuation of one; stopped without notice at `stop_at`."""

    def stop(done: int) -> None:
        if done == stop_at:
            raise RuntimeError("stopped by the test")

    config = RunConfig.model_validate(settings) if settings is not None else stored(out / "config.toml")
    where = {"resume": out} if settings is None else {"out": out}
    return run_in(ranks, config, RunRequest(None, [], **where, quiet=True), on_round=stop)


def models_that_left(ranks: Ranks, sizes: list[int], out: Path, settings: dict[str, Any]) -> Any:
    """A run with a shared model: every model that was sent or added up, and every one that a node has released."""
    messenger, write = ranks.messenger, LocalModels.write
    start, add = messenger.start, messenger.sum
    sent: list[torch.Tensor] = []
    summed: list[torch.Tensor] = []
    released: list[torch.Tensor] = []

    def noted_write(self: Any, i: int, public: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        released.append(write(self, i, public, chosen).flatten())
        return released[-1].view_as(public).clone()

    def noted_start(receive: Any, send: Any, tag: int) -> Any:
        size = 4 * (released[0].numel() if released else 0)
        sent.extend(buffer[messages.HEADER :][:size].clone().view(torch.float32) for buffer in send.values())
        return start(receive, send, tag)

    def noted_sum(own: torch.Tensor) -> torch.Tensor:
        summed.append(own / len(ranks.nodes))
        return add(own)

    messenger.start, messenger.sum = noted_start, noted_sum  # type: ignore[method-assign]
    LocalModels.write = noted_write  # type: ignore[method-assign]
    try:
        gossamer_run(ranks, sizes, out, settings)
    finally:
        LocalModels.write = write  # type: ignore[method-assign]
    return sent, summed, released


def digraphs(ranks: Ranks, sizes: list[int], rounds: int, seed: int) -> Any:
    """Push-sum over a new random digraph every round; ranks sleep at random so that they drift apart."""
    rng, n = np.random.default_rng([seed, ranks.rank]), sum(sizes)
    topo = build_topology(
        "resampled", nodes=n, weights="column", seed=seed, base={"kind": "digraph", "p": 0.2}, dropout=0.3
    )
    exchange = ranks.exchange(topo, RUN)
    x = torch.arange(n, dtype=torch.float64)[ranks.nodes.start : ranks.nodes.stop, None].repeat(1, 3)
    w = torch.ones(len(x), 1, dtype=torch.float64)
    for t in range(rounds):
        if rng.random() < 0.02:
            time.sleep(rng.uniform(0, 0.02))
        x, w = exchange(t, x, w)
    return x, w


def one_exchange(ranks: Ranks, sizes: list[int], spoil: str | None = None) -> Any:
    """Rank 0 sends something that is not right; what each rank says."""
    topo = build_topology("complete", nodes=sum(sizes), weights="column", seed=0)
    exchange = ranks.exchange(topo, RUN)
    x = torch.ones(len(ranks.nodes), 4)
    if not ranks.first or spoil is None:
        return exchange(7, x)
    right = messages.Label.write
    _spoil(x, spoil)
    try:
        return exchange(7, x)
    finally:
        messages.Label.write = right  # type: ignore[method-assign]


def _spoil(x: torch.Tensor, what: str) -> None:
    right = messages.Label.write

    def write(self: Any, buffer: torch.Tensor, layout: Any, rows: int) -> None:
        if self.sender != 0:  # another rank in a thread of the same process
            right(self, buffer, layout, rows)
            return
        changed = {
            "run": replace(self, run="f" * 16),
            "round": replace(self, round=self.round - 1),
            "sender": replace(self, sender=5),
            "place": replace(self, call=3),
        }.get(what, self)
        if what == "dtype":
            layout = messages.Layout((((4,), torch.float64),))
        if what == "shape":
            layout = messages.Layout((((2, 3), torch.float32),))
        right(changed, buffer, layout, rows)
        if what == "checksum":
            buffer[-1] ^= 1

    messages.Label.write = write  # type: ignore[method-assign]
    if what in ("nan", "inf"):
        x[-1, 2] = float(what)


def misbehave(ranks: Ranks, sizes: list[int], how: str, rank: int, at: int) -> Any:
    """Rounds of a ring until one rank dies, stops or dawdles; how long the others waited and what they say."""
    topo = build_topology("directed-ring", nodes=sum(sizes), weights="column", seed=0)
    exchange = ranks.exchange(topo, RUN)
    x = torch.ones(len(ranks.nodes), 1000)
    start = time.monotonic()
    try:
        for t in range(10_000):
            if t == at:
                start = time.monotonic()
                if ranks.rank == rank:
                    _misbehave(how)
            x = exchange(t, x)
            time.sleep(0.002)
    except Exception as error:
        seconds = time.monotonic() - start
        dist.destroy_process_group()  # as if the process had ended: this is what the next one notices
        return str(error), seconds
    return "went on", time.monotonic() - start


def _misbehave(how: str) -> None:
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "dawdles":
        time.sleep(3600)


def rounds_of(ranks: Ranks, sizes: list[int], topology: dict[str, Any], width: int, rounds: int) -> Any:
    """Seconds per round and bytes, for the model of docs/scaling.md."""
    topo = build_topology(weights="column", nodes=sum(sizes), seed=0, **topology)
    exchange = ranks.exchange(topo, RUN)
    x = torch.ones(len(ranks.nodes), width)
    exchange(0, x)
    ranks.join([0])
    before, start = exchange.bytes_on_wire, time.perf_counter()
    for t in range(1, rounds + 1):
        exchange(t, x)
    return (time.perf_counter() - start) / rounds, (exchange.bytes_on_wire - before) / rounds


def answer_of(ranks: Ranks, name: str, arguments: dict[str, Any]) -> Any:
    """What this rank finds; an exception is an answer too."""
    try:
        return (JOBS.get(name) or globals()[name])(ranks, **arguments)
    except Exception as error:
        return RuntimeError(f"{type(error).__name__}: {error}")
    finally:
        ranks.messenger.watch.close()


def main() -> None:
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    timeout = float(sys.argv[1])
    everyone = TorchTransport.meet(timeout=timeout)
    assert isinstance(everyone.notes, MeetingNotes)
    count = 0
    while size := sys.stdin.buffer.read(8):
        name, arguments = pickle.loads(sys.stdin.buffer.read(struct.unpack("<Q", size)[0]))
        count += 1
        notes = everyone.notes.under(f"job/{count}")
        transport = TorchTransport(everyone.rank, everyone.size, notes, timeout, everyone.seal)
        ranks = Ranks(split(sum(arguments["sizes"]), everyone.size, arguments["sizes"]), transport)
        answer = answer_of(ranks, name, arguments)
        content = pickle.dumps(answer)
        answers.write(struct.pack("<Q", len(content)) + content)
        answers.flush()


if __name__ == "__main__":
    main()
