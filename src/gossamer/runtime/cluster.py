"""One of several processes (ranks) that share a run's nodes, over torch.distributed.

torchrun, or `launch`, starts the ranks. They are one operator's, on a network that the operator trusts. Messages go by
gloo between processors and by NCCL between graphics cards. The store in which the ranks met serves for failures: each
rank writes a heartbeat there, and the first rank that fails writes the sentence that all of them end with.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from types import FrameType, TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from gossamer.errors import UserError
from gossamer.runtime.exchange import Messages, RankExchange
from gossamer.runtime.launch import FAILURE, launched
from gossamer.topology.schedule import Topology

T = TypeVar("T")
_GRACE = 10.0  # seconds between SIGTERM and the end; torchrun kills after 30


class RankError(UserError):
    """A rank died, hung or refused a message: one sentence that says which, and in which round."""


def ranks_started() -> int:
    return int(os.environ["WORLD_SIZE"])


def connect(blocks: Sequence[range], *, timeout: float, device: str = "cpu") -> Ranks:
    """This process as a rank, once the others are there too."""
    return Ranks(blocks, int(os.environ["RANK"]), meet(timeout, device), timeout)


def meet(timeout: float, device: str = "cpu") -> Any:
    """Open connections to the other ranks, as torchrun's variables say, and return the store in which they met."""
    rank, size, limit = int(os.environ["RANK"]), ranks_started(), timedelta(seconds=timeout)
    where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    try:
        store, _, _ = next(dist.rendezvous("env://", timeout=limit))  # type: ignore[attr-defined]
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"rank {rank} cannot reach the ranks' store at {where}: {_first_line(error)}; check torchrun's settings."
        ) from None
    store.set(f"gossamer/joined/{rank}", "")
    try:
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    except RuntimeError as error:
        missing = [r for r in range(size) if not store.check([f"gossamer/joined/{r}"])]
        who = f"rank {missing[0]} did not come" if missing else f"no connection ({_first_line(error)})"
        raise UserError(f"{who} to {where} within runtime.timeout = {timeout:g} s.") from None
    return store


class Ranks:
    """This process among those of the run, a `Group`; a context that leaves the others at its end."""

    def __init__(self, blocks: Sequence[range], rank: int, store: Any, timeout: float):
        self.blocks, self.rank, self.size = list(blocks), rank, len(blocks)
        self.nodes, self.first, self.name = self.blocks[rank], rank == 0, name_of(rank, blocks)
        self.first_here = int(os.environ.get("LOCAL_RANK", rank)) == 0
        # Without LOCAL_WORLD_SIZE some ranks may be elsewhere, and get nothing of what errors say here.
        self.spread = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) < self.size
        self.machine = os.environ.get("GROUP_RANK") or (f"of rank {rank}" if self.spread else "0")
        self.watch = Watch(store, rank, self.blocks, timeout)
        self._messages = Counter[int]()
        self._sigterm = SigtermHandler(self.watch)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._claim(error)
        self.watch.close()
        self._sigterm.close()
        if error is None:
            dist.destroy_process_group()
        elif isinstance(error, UserError | KeyboardInterrupt) and self._another_prints(error):
            raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 2) from None

    def _claim(self, error: BaseException) -> None:
        """Say why before the connections break, so that the break is not taken for the cause."""
        if isinstance(error, KeyboardInterrupt):
            sentence = f"{self.name} was stopped in round {self.watch.round}"
        elif isinstance(error, RankError) or (isinstance(error, UserError) and not self.spread):
            sentence = str(error)
        else:
            # The words of an error may hold a row, a label or a path of this machine: they stay on its terminal.
            why = "its own terminal says why" if self.spread else _first_line(error)
            sentence = f"{self.name} failed in round {self.watch.round}: {why}"
        self.watch.claim(sentence)
        if self.spread:
            time.sleep(2.5 * self.watch.beat)  # the store may end with this process: let the others read it

    def _another_prints(self, error: BaseException) -> bool:
        """One process prints what went wrong: the one that started all ranks, else the first of each machine."""
        return launched() or not (self.first_here or isinstance(error, RankError))

    def whose(self, node: int) -> str:
        return next(name_of(r, self.blocks) for r, block in enumerate(self.blocks) if node in block)

    def begin_round(self, t: int) -> None:
        self.watch.round = t
        self._sigterm.check()
        self.watch.check()

    def join(self, items: Sequence[T], *, per_node: bool = False) -> list[T]:
        parts: list[list[T]] = [[] for _ in self.blocks]
        with self.watch.waiting():
            dist.all_gather_object(parts, list(items))
        return [item for part in parts for item in part]

    def mean(self, points: Tensor) -> Tensor:
        return self.sum(points.sum(0)) / self.blocks[-1].stop

    def sum(self, own: Tensor) -> Tensor:
        """Of all ranks' tensors, to every rank."""
        total = own.detach().clone(memory_format=torch.contiguous_format)
        with self.watch.waiting():
            dist.all_reduce(total)
        return total

    def broadcast(self, tensor: Tensor, rank: int) -> Tensor:
        """That rank's tensor, to every rank."""
        copy = tensor.detach().clone(memory_format=torch.contiguous_format)
        with self.watch.waiting():
            dist.broadcast(copy, rank)
        return copy

    def transfer(self, send: Messages, receive: Messages, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Start all messages, do `meanwhile`, then wait until all have left and arrived."""
        # Counted for each pair of ranks: the token of a shared model passes between two, and the others take no part.
        self._messages.update({rank for rank, _ in (*receive, *send)})
        tag = {rank: count % (1 << 30) for rank, count in self._messages.items()}
        starts = [dist.P2POp(dist.irecv, tensor, rank, tag=tag[rank]) for rank, tensor in receive]
        starts += [dist.P2POp(dist.isend, tensor, rank, tag=tag[rank]) for rank, tensor in send]
        with self.watch.waiting():
            pending = dist.batch_isend_irecv(starts) if starts else []
        meanwhile()
        with self.watch.waiting():
            for work in pending:
                work.wait()

    def refuse(self, node: int) -> RankError:
        """The end of a run in which a node's message holds NaN or infinity."""
        rank = next(r for r, block in enumerate(self.blocks) if node in block)
        at = self.watch.round
        return self.watch.claim(f"node {node} (rank {rank}) sent NaN or infinite values in round {at}: refused")

    def exchange(self, topology: Topology, meanwhile: Callable[[], None] | None = None) -> RankExchange:
        # On one machine the cores that carry the messages are those that compute: nothing is idle, and noise drawn
        # ahead costs one pass over it more than noise that is added where it is drawn.
        return RankExchange(self, topology, meanwhile if meanwhile and self.spread else lambda: None)


class Watch:
    """This rank's heartbeat in the store, and what the others' heartbeats say when a rank is lost."""

    def __init__(self, store: Any, rank: int, blocks: Sequence[range], timeout: float):
        self._store, self._rank, self._blocks, self._timeout = store, rank, blocks, timeout
        self.beat = min(1.0, timeout / 10)
        self.round = 0
        self._waits, self._lost_store = False, False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="gossamer-heartbeat")
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join(timeout=0.5)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """For calls that wait for other ranks: an error becomes a sentence about the rank that caused it."""
        self._waits = True
        try:
            yield
        except RuntimeError as error:
            raise self._lost(error) from None
        finally:
            self._waits = False

    def check(self) -> None:
        """Without the store no rank could name the one that failed, and the process that started the ranks is gone."""
        if self._lost_store:
            raise RankError(f"the ranks' store is gone in round {self.round}: its process has ended")

    def claim(self, sentence: str) -> RankError:
        """Give the reason why the run ends; the first claim is everybody's."""
        try:
            return RankError(self._store.compare_set(FAILURE, "", sentence).decode())
        except RuntimeError:
            return RankError(f"{sentence}; the ranks' store is gone too")

    def terminated(self) -> RankError | None:
        """After SIGTERM: the failure of another rank that led to it, None if there was none."""
        known = self._claimed()
        if known is not None:
            return known
        silent = self._silent()
        return self._claimed() or (self._ended_rank(silent[0]) if silent else None)

    def _lost(self, error: RuntimeError) -> RankError:
        """The error of all ranks for a broken connection or a time-out, whichever noticed it first."""
        timed_out, known = "imed out" in str(error), self._claimed()
        if known is not None:
            return known
        silent = self._silent()
        if silent and timed_out:
            name = name_of(silent[0], self._blocks)
            return self.claim(f"{name} has not answered for {self._timeout:g} s in round {self.round}")
        if timed_out:
            rank, at = self._slowest()
            name = name_of(rank, self._blocks)
            return self.claim(f"{name} has kept the others waiting for {self._timeout:g} s in round {at}")
        # A rank that waited in vain, or has given up, closes its connections before it says why.
        deadline = time.monotonic() + (3 if silent else 10) * self.beat
        while (known := self._claimed()) is None and time.monotonic() < deadline:
            time.sleep(self.beat / 4)
        if known is None and silent:
            return self._ended_rank(silent[0])
        return known or self.claim(f"the ranks lost each other in round {self.round}: {_first_line(error)}")

    def _ended_rank(self, rank: int) -> RankError:
        return self.claim(f"{name_of(rank, self._blocks)} ended in round {self.round}")

    def _claimed(self) -> RankError | None:
        with contextlib.suppress(RuntimeError):
            if self._store.check([FAILURE]):
                return RankError(self._store.get(FAILURE).decode())
        return None

    def _silent(self) -> list[int]:
        """The other ranks whose hearts do not beat: dead or stopped. Without a store, the rank that held it."""
        before = self._heartbeats()
        time.sleep(2.5 * self.beat)
        after = self._heartbeats()
        return [r for r in range(len(self._blocks)) if r != self._rank and before.get(r) == after.get(r)]

    def _slowest(self) -> tuple[int, int]:
        """The rank that has come least far, of those that do not wait themselves if there are any; its round."""
        others = [(waits, at, r) for r, (_, at, waits) in self._heartbeats().items() if r != self._rank]
        _, at, rank = min(others)
        return rank, at

    def _heartbeats(self) -> dict[int, tuple[int, int, bool]]:
        """Of each rank: the count of beats, its round, and whether it waits for others."""
        try:
            keys = [f"gossamer/at/{r}" for r in range(len(self._blocks))]
            return {r: json.loads(self._store.get(key)) for r, key in enumerate(keys) if self._store.check([key])}
        except RuntimeError:
            return {}

    def _beat(self) -> None:
        count, store = 0, self._store.clone()
        try:
            while not self._ended.wait(self.beat if count else 0):
                count += 1
                store.set(f"gossamer/at/{self._rank}", json.dumps([count, self.round, self._waits]))
        except RuntimeError:
            self._lost_store = True


class SigtermHandler:
    """While it is open, SIGTERM ends this process between two rounds, or after `grace` seconds, with a sentence.

    torchrun ends the ranks of a machine by SIGTERM as soon as one has died: those that are left name it first. Whoever
    resumes the run continues from the last checkpoint.
    """

    def __init__(self, watch: Watch, grace: float = _GRACE):
        self._watch, self._received = watch, threading.Event()
        self._timer = threading.Timer(grace, self._exit)
        self._timer.daemon = True
        self._previous: Any = signal.signal(signal.SIGTERM, self._on_signal)

    def check(self) -> None:
        if self._received.is_set():
            raise self._watch.terminated() or KeyboardInterrupt

    def close(self) -> None:
        self._timer.cancel()
        signal.signal(signal.SIGTERM, self._previous)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._received.is_set():
            self._received.set()
            self._timer.start()

    def _exit(self) -> None:
        """The main thread still computes, or waits for a message."""
        failure = self._watch.terminated()
        if not launched():
            sys.stderr.write(f"gossamer: {failure or 'stopped by SIGTERM'}\n")
            sys.stderr.flush()
        os._exit(2 if failure else 128 + signal.SIGTERM)


def name_of(rank: int, blocks: Sequence[range]) -> str:
    block = blocks[rank]
    nodes = f"node {block.start}" if len(block) == 1 else f"nodes {block.start}–{block.stop - 1}"
    return f"rank {rank} ({nodes})"


def _first_line(error: BaseException) -> str:
    """A library's message without its stack."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
