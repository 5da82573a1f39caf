"""Many trainings at once, as one more batch axis of the engine, and the attack by training again.

The leading axis holds nodes × runs, node first: row i·R + r is node i of run r. So an exchange is the product of the
topology's own matrix with (n, R·d) values, without a copy, and the kernels see more nodes and nothing else.

`Retraining` puts one canary among real records, in or out of many trainings. They come in batches. Each finished batch
is saved, so that an audit of thousands of trainings can be stopped and continued, and may be trained by a worker
elsewhere.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

import gossamer
from gossamer.accounting.observers import Observer
from gossamer.accounting.releases import Event
from gossamer.algorithms.base import Grad
from gossamer.auditing import canaries
from gossamer.auditing.bounds import Coins
from gossamer.auditing.recovery import Attacker, Draw, MessageReader, Revealed
from gossamer.auditing.verdict import Attack
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.mechanism.reader import Records
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run as run_loop
from gossamer.studies.jobs import Engine, Outcome, guarded
from gossamer.training.assemble import Parts, assemble
from gossamer.training.plan import Plan

if TYPE_CHECKING:
    from gossamer.training.data import DataCache

SCORES = "scores.jsonl"


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

    def coins(self, scores: Any, heads: Any, run: Any, runs: int, details: Any = None) -> Coins:
        """Return the scores of these trainings with their coins; `run` is the training that each came from."""
        of_each = scores.ravel(), heads.ravel(), run.ravel()
        return Coins(*of_each, runs, self.seconds, self.samples, details or {})


@torch.no_grad()
def train(
    stacked: Parts,
    stream: Stream,
    spectators: Sequence[Spectator] = (),
    watch: Callable[[Grad], Grad] = lambda grad: grad,
) -> Trained:
    """Train all runs of `repeat`ed parts side by side; `watch` may see the points of every gradient."""
    o, book, start = stacked.plan, NoLedger(), time.perf_counter()
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


# --- training again -------------------------------------------------------------------------------------------


class Retraining(Attack):
    """One canary among real records; the victim is the node where it is least odd."""

    attacked = "the whole training, with the run's data and model"
    at_once = 100
    runs = 1000

    def __init__(self, parts: Parts, kind: str, view: Observer, *, records: int = 1):
        """`records` of the canary, which is then a person with that many equal records."""
        config = parts.plan.config
        if parts.plan.classes is None:
            raise UserError(f"--canary {kind} needs classes to label it; use --canary dirac.")
        if view.members:
            what = f"--canary {kind} is scored by --observer final or all"
            raise UserError(f"{what}; {view.name} needs --canary dirac.")
        if view.sees_all and (parts.noise_on_messages or parts.plan.privacy.noise.cancels):
            what = f"--canary {kind} with --observer {view.name} scores one node's own messages"
            noise = "noise on them (privacy.noise.on = 'iterate') or noise that nodes share"
            raise UserError(f"{what}, which {noise} hides; use --observer final or --canary dirac.")
        self._parts, self._view, self._records = parts, view, records
        self._replace_one = canaries.refuse_unequal_sizes(config)
        self._canary = canaries.CANARIES[kind](parts)
        self.victim = canaries.home_of(self._canary, parts.records.y, parts.records.sizes)
        canary = self._canary.description
        self.description = f"{canary}, in or out of each run by a coin, on node {self.victim}"
        self.notes = canaries.CanaryUnit.of(config, records).notes(config)

    def batch(self, number: int, runs: int) -> Coins:
        """Flip a fair coin for every run, from the secret stream: with the canary or without."""
        o = self._parts.plan
        stream = batch_stream(o.config, number)
        present = canaries.flip(stream, 1, runs)[0]
        how: dict[str, Any] = {"replace_one": self._replace_one, "records": self._records}
        records = canaries.with_and_without(self._parts.records, self._canary, self.victim, present, **how)
        stacked = repeat(self._parts, runs, records)
        rows = slice(self.victim * runs, (self.victim + 1) * runs)
        if self._view.sees_all:
            along = AlongTheCanary(stacked, self._canary, rows)
            reader = MessageReader(o.algorithm, along, sees_models=self._view.sees_models)
            trained = train(stacked, stream, [reader], along.watch)
            scores = along.scores.numpy()
        else:
            trained = train(stacked, stream)
            models = o.algorithm.model(trained.state)[rows]
            scores = -losses(stacked, models, self._canary).double().numpy()
        scores = np.nan_to_num(scores, nan=-1e30, posinf=1e30, neginf=-1e30)  # a diverged run scores lowest
        return trained.coins(scores, present, np.arange(runs), runs)


class AlongTheCanary:
    """Scores the noised gradient's component along the canary's own gradient, at the points everyone knows."""

    def __init__(self, stacked: Parts, canary: canaries.Canary, rows: slice):
        o = stacked.plan
        self._vector = o.method.vector(o.algorithm, o.module, o.classes)
        self._canary, self._rows = canary, rows
        self._attacker, self._clip = Attacker(stacked, 1.0, False), stacked.clip()
        self._points: dict[int, Tensor] = {}
        self._drawn = itertools.count()
        self._count = rows.stop - rows.start
        self.scores: Any = torch.zeros(self._count, dtype=torch.float64)

    def watch(self, grad: Grad) -> Grad:
        """Everyone can compute the points; here they are taken from the training."""

        def watched(points: Tensor) -> Tensor:
            self._points[next(self._drawn)] = points[self._rows].clone()
            return grad(points)

        return watched

    def __call__(self, revealed: Revealed) -> None:
        if not isinstance(revealed, Draw):
            return
        k = revealed.draws[0]
        points, step = self._points.pop(k), self._clip.at(k, self._count)
        x = self._canary.x.expand(self._count, 1, *self._canary.x.shape)
        y = self._canary.y.expand(self._count, 1)
        mask = torch.ones(self._count, 1, dtype=torch.bool)
        direction, _ = replace(step, unit=None).sums(self._vector, points, x, y, mask)
        spread = self._attacker.linear_spread(k)[self._rows].double()[:, 0]
        value = revealed.value if revealed.known is None else torch.where(revealed.known, revealed.value, 0.0)
        along = (direction * value[self._rows]).sum(1).double()
        self.scores += along / spread.square().clamp_min(1e-30)


def losses(stacked: Parts, models: Tensor, canary: canaries.Canary) -> Tensor:
    o = stacked.plan

    def one(model: Tensor) -> Any:
        parameters = {name: view[0] for name, view in o.stack.views(model[None]).items()}
        return o.loss(torch.func.functional_call(o.module, parameters, (canary.x[None],)), canary.y[None])

    return torch.cat([one(model) for model in models])


# --- batches on disk ----------------------------------------------------------------------------------------


class ScoreFile:
    """Finished batches, one per line, after a first line with the digest of the audit that they belong to.

    A batch is identified by its number and size. If more trainings are requested, the last batch may grow: it is then
    trained again from the start of its stream, and the smaller one, which may have the same coins, does not count.
    """

    def __init__(self, folder: Path, config: RunConfig, *attack: str):
        self.path = folder / SCORES
        key = json.dumps([config.model_dump(mode="json"), *attack], sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()
        lines = self.path.read_text(encoding="utf-8").split("\n")[:-1] if self.path.is_file() else []
        if lines and not self.path.read_bytes().endswith(b"\n"):  # the last audit was stopped in this line
            self.path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        if not lines:
            self.path.write_text(json.dumps({"audit": digest}) + "\n", encoding="utf-8")
        elif json.loads(lines[0]).get("audit") != digest:
            raise UserError(f"{self.path} belongs to an audit of something else; name another folder.")
        self._lines: dict[tuple[int, int], dict[str, Any]] = {}
        for line in map(json.loads, lines[1:]):
            self._lines[line["batch"], line["runs"]] = line

    @property
    def runs(self) -> int:
        """Finished trainings."""
        return sum(runs for _, runs in self._lines)

    def get(self, number: int, runs: int) -> Coins | None:
        line = self._lines.get((number, runs))
        if line is None:
            return None
        heads = np.array(line["heads"], dtype=bool)
        return Coins(np.array(line["scores"]), heads, np.arange(runs), runs, line["seconds"], line["samples"])

    def save(self, number: int, batch: Coins) -> None:
        line = {"batch": number, "runs": batch.runs, "seconds": batch.seconds, "samples": batch.samples}
        line |= {"heads": batch.heads.astype(int).tolist(), "scores": batch.scores.tolist()}
        self._lines[number, batch.runs] = line
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


# --- batches at workers -------------------------------------------------------------------------------------


def train_elsewhere(
    engine: Engine,
    config: RunConfig,
    saved: ScoreFile,
    sizes: Sequence[int],
    attack: tuple[Any, ...],
    on_batch: Callable[[int, int], None],
) -> None:
    """Train all batches that are not saved yet at the workers of `engine`; each is saved when it arrives.

    `attack`: observer, canary, its records, and force.
    """
    settings, failed = config.model_dump(exclude_none=True), dict[int, str]()
    missing = {number: size for number, size in enumerate(sizes) if saved.get(number, size) is None}
    about = attack, gossamer.__version__
    jobs = {number: partial(trainings, settings, number, size, *about) for number, size in missing.items()}
    done = sum(sizes) - sum(missing.values())
    for number, outcome in filter(None, engine.run(jobs, saved.path.with_name("errors.log"))):
        if outcome.error is not None:
            failed[number] = outcome.error  # the others are saved all the same
            continue
        saved.save(number, outcome.value)
        done += outcome.value.runs
        on_batch(done, sum(sizes))
    for number, error in sorted(failed.items()):
        raise UserError(f"batch {number} of the audit failed: {error}")


def trainings(settings: dict[str, Any], number: int, runs: int, attack: tuple[Any, ...], version: str) -> Outcome:
    """Train one batch, at a worker, which draws its own noise and coins."""

    def work(cache: DataCache) -> Coins:
        from gossamer.auditing.attacks import attack_of

        *canary, force = attack
        o = Plan.of(RunConfig.model_validate(settings), cache=cache, force=force)
        return attack_of(o, *canary).batch(number, runs)

    return guarded(work, version)
