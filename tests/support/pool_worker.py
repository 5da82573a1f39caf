"""One rank of a pool: see pool.py. Functions here are called on all ranks at once; the first argument is the rank's."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from tests.support.quadratics import CASES
from tests.support.tokens import token_rounds as token_rounds_of

from gossamer.config.layers import stored
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.methods.without_replacement.local_models import LocalModels
from gossamer.runtime.cluster import Ranks, meet
from gossamer.runtime.group import agreed, split
from gossamer.runtime.loop import run
from gossamer.testing.quadratics import Quadratic, problem
from gossamer.topology.kinds import build as build_topology
from gossamer.training.api import run_in


def train(ranks: Ranks, case: str, sizes: list[int], topology: dict[str, Any], lr: float, rounds: int) -> Any:
    """A case of quadratics.py with the exact gradients of its quadratics: this rank's rows."""
    algorithm = CASES[case].make(lr)
    a, b, x0 = problem(sum(sizes), seed=5)
    topo = build_topology(weights=algorithm.weights, nodes=sum(sizes), **topology)
    own = slice(ranks.nodes.start, ranks.nodes.stop)
    exchange = ranks.exchange(topo)
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
    return run_in(ranks, config, announced=False, quiet=True, hidden=True, **where, on_round=stop).result


def models_that_left(ranks: Ranks, sizes: list[int], out: Path, settings: dict[str, Any]) -> Any:
    """A run with a shared model: every model that was sent or added up, and every one that a node has released."""
    transfer, broadcast, add, write = ranks.transfer, ranks.broadcast, ranks.sum, LocalModels.write
    sent: list[torch.Tensor] = []
    summed: list[torch.Tensor] = []
    released: list[torch.Tensor] = []

    def noted_write(self: Any, i: int, public: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        released.append(write(self, i, public, chosen).flatten())
        return released[-1].view_as(public).clone()

    def noted_transfer(send: Any, receive: Any, meanwhile: Any = lambda: None) -> None:
        sent.extend(tensor.flatten().clone() for _, tensor in send if tensor.ndim > 1)
        transfer(send, receive, meanwhile)

    def noted_broadcast(tensor: torch.Tensor, rank: int) -> torch.Tensor:
        if rank == ranks.rank and tensor.ndim > 1:
            sent.append(tensor.flatten().clone())
        return broadcast(tensor, rank)

    def noted_sum(own: torch.Tensor) -> torch.Tensor:
        if own.is_floating_point():
            summed.append(own / len(ranks.nodes))
        return add(own)

    ranks.transfer, ranks.broadcast, ranks.sum = noted_transfer, noted_broadcast, noted_sum  # type: ignore[method-assign]
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
    exchange = ranks.exchange(topo)
    x = torch.arange(n, dtype=torch.float64)[ranks.nodes.start : ranks.nodes.stop, None].repeat(1, 3)
    w = torch.ones(len(x), 1, dtype=torch.float64)
    for t in range(rounds):
        if rng.random() < 0.02:
            time.sleep(rng.uniform(0, 0.02))
        x, w = exchange(t, x, w)
    return x, w


def mixed_rows(ranks: Ranks, sizes: list[int], topology: str, values: list[torch.Tensor]) -> Any:
    """Two exchanges of all these tensors: the hosted rows."""
    exchange = ranks.exchange(build_topology(topology, nodes=sum(sizes), weights="column", seed=0))
    own = [rows[ranks.nodes.start : ranks.nodes.stop] for rows in values]
    for t in range(2):
        own = list(exchange(t, *own))
    return own, exchange.bytes_on_wire


def one_exchange(ranks: Ranks, sizes: list[int], spoil: str | None = None) -> Any:
    """Rank 0 may send a number that is none; the mixed rows of each rank."""
    topo = build_topology("complete", nodes=sum(sizes), weights="column", seed=0)
    exchange = ranks.exchange(topo)
    x = torch.ones(len(ranks.nodes), 4)
    if ranks.first and spoil is not None:
        x[-1, 2] = float(spoil)
    ranks.begin_round(7)
    return exchange(7, x)


def together(ranks: Ranks, sizes: list[int]) -> Any:
    """Whatever a group does besides the exchange."""
    items = [[f"node {i}", i / 3, None] for i in range(sum(sizes))]
    points = torch.arange(2.0 * sum(sizes), dtype=torch.float64).view(-1, 2) ** 2
    own = slice(ranks.nodes.start, ranks.nodes.stop)
    place = (ranks.name, ranks.size, ranks.first, ranks.first_here, ranks.spread, list(ranks.nodes))
    sent = ranks.broadcast(torch.full((3,), float(ranks.rank)), 1)
    return ranks.join(items[own], per_node=True), ranks.mean(points[own]), place, sent


def one_mistake(ranks: Ranks, sizes: list[int], here: bool) -> Any:
    """An action that fails on rank 1; on rank 0 alone with `here`."""

    def action() -> str:
        if ranks.rank == 1:
            raise UserError("data.path = 'x' is not there.")
        return "fine"

    return agreed(ranks, action, here=ranks.first or not here)


def token_rounds(ranks: Ranks, sizes: list[int], rounds: int, wants: torch.Tensor) -> Any:
    return token_rounds_of(ranks, rounds, wants)


def misbehave(ranks: Ranks, sizes: list[int], how: str, rank: int, at: int) -> Any:
    """Rounds of a ring until one rank dies, stops or dawdles; how long the others waited and what they say."""
    topo = build_topology("directed-ring", nodes=sum(sizes), weights="column", seed=0)
    exchange = ranks.exchange(topo)
    x = torch.ones(len(ranks.nodes), 1000)
    start = time.monotonic()
    try:
        for t in range(10_000):
            ranks.begin_round(t)
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


def answer_of(ranks: Ranks, name: str, arguments: dict[str, Any]) -> Any:
    """What this rank finds; an exception is an answer too."""
    try:
        return globals()[name](ranks, **arguments)
    except Exception as error:
        return RuntimeError(f"{type(error).__name__}: {error}")
    finally:
        ranks.watch.close()


def main() -> None:
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    timeout, rank = float(sys.argv[1]), int(os.environ["RANK"])
    store, count = meet(timeout), 0
    while size := sys.stdin.buffer.read(8):
        name, arguments = pickle.loads(sys.stdin.buffer.read(struct.unpack("<Q", size)[0]))
        count += 1
        blocks = split(sum(arguments["sizes"]), int(os.environ["WORLD_SIZE"]), arguments["sizes"])
        ranks = Ranks(blocks, rank, dist.PrefixStore(f"job/{count}", store), timeout)
        answer = answer_of(ranks, name, arguments)
        content = pickle.dumps(answer)
        answers.write(struct.pack("<Q", len(content)) + content)
        answers.flush()


if __name__ == "__main__":
    main()
