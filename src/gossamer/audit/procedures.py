"""The attacks, from parts to scores with coins.

axes      all records are Dirac canaries, each with a coin of its own: one training is thousands of coins
lengths   two records per node, a coin for the second: does the length of a message tell?
retrain   real records and model; one canary, in or out, and hundreds of trainings of each
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.audit import canaries
from gossamer.audit.bounds import Coins
from gossamer.audit.filter import Filter, LinearSystem
from gossamer.audit.mechanism import Attacker
from gossamer.audit.observers import Everyone, Evidence, Lengths, View, visible_senders
from gossamer.audit.recovery import Draw, Sign, Step
from gossamer.audit.stacked import MakeGradient, Tally, Trained, gradient_of, repeat, train
from gossamer.build import Parts, assemble, outline, per_sample_loss
from gossamer.config import RunConfig
from gossamer.errors import UserError
from gossamer.kernels.clipped_sum import clipped_sum
from gossamer.kernels.noise import Stream

AXES, LENGTHS = "dirac", "lengths"
ENOUGH_COINS = 20_000
_LENGTH_ROWS = 512  # coordinates of the noise whose length is measured
_ODD_SIZE = 1.5  # of the lengths attack's canary, in sizes of the other record: no sum of those is as long
_FLOATS_AT_ONCE = 1 << 24  # of one stacked tensor


@dataclass(frozen=True)
class Shown:
    """What an attack brought: scores with coins, and how it came by them."""

    coins: Coins
    independent: bool  # do the scores not depend on each other's coins, by construction?
    canary: str
    runs: int
    seconds: float
    samples: float  # per-record gradients that were computed
    notes: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


OnBatch = Callable[[int, int], None]  # runs done, of so many


def stream_of(config: RunConfig, batch: int) -> Stream:
    """Every batch its own: the system's, or for science one that follows the seed and is no run's own."""
    if config.privacy.noise.source == "seeded":
        return Stream.seeded(config.seed + (batch + 1) * 2**64)
    return Stream.system()


def batches(runs: int, at_once: int) -> Iterator[tuple[int, int]]:
    """(number, size) of each."""
    for number, start in enumerate(range(0, runs, at_once)):
        yield number, min(at_once, runs - start)


def acts_on_each_axis_alone(config: RunConfig) -> bool:
    """Gaussian noise and a clip that follows no data: what happens on one axis tells nothing of another."""
    schedule, clip = config.privacy.noise.schedule.kind, config.privacy.clip.kind
    return schedule not in ("own-norm", "none") and clip != "quantile"


def refuse_unequal_sizes(config: RunConfig) -> bool:
    """Is the game one of replacement? Drawing a fixed number of records is not defined for a data set one smaller."""
    replace_one = config.privacy.adjacency == "replace-one"
    if config.privacy.sampling.kind in ("fixed-size", "single") and not replace_one:
        raise UserError(
            f"privacy.sampling.kind = {config.privacy.sampling.kind!r} needs the number of records to stay the same, so an "
            "audit can only replace one: use --set privacy.adjacency=replace-one."
        )
    return replace_one


def axes(
    parts: Parts,
    view: View,
    victim: int | None,
    runs: int | None,
    *,
    make_gradient: MakeGradient = gradient_of,
    on_batch: OnBatch = lambda done, of: None,
) -> Shown:
    """`parts` are those of a configuration on Dirac records."""
    o, config = parts.outline, parts.outline.config
    replace_one = refuse_unequal_sizes(config)
    n, places = config.nodes, o.stack.dim
    size = float(config.data.options["size"])
    watched = n if view.sees_all else 1
    runs = runs or max(1, math.ceil(ENOUGH_COINS / (watched * places)))
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    seconds = samples = 0.0
    details: dict[str, Any] = {}
    for batch, count in batches(runs, max(1, _FLOATS_AT_ONCE // (n * places))):
        stream = stream_of(config, batch)
        coins = canaries.flip(stream, n * count, places)
        if not view.sees_all:  # the others hold nothing: their records would only be in the way
            coins.reshape(n, count, places)[np.arange(n) != victim] = False
        records = canaries.dirac_records(coins, size, replace_one=replace_one)
        stacked = repeat(parts, count, records)
        attacker = Attacker(stacked, size, replace_one)
        if view.sees_all:
            evidence = Evidence(attacker)
            trained = train(
                stacked, stream, [Everyone(o.algorithm, evidence)], make_gradient=make_gradient
            )
            scores = evidence.scores.numpy()
        else:
            assert victim is not None
            observer = _some(stacked, attacker, view, victim, count)
            trained = train(stacked, stream, [observer], make_gradient=make_gradient)
            scores = observer.scores.reshape(count, places)
            coins = coins.reshape(n, count, places)[victim]
            details["mu_of_the_filter"] = math.sqrt(max(observer.mu_squared, 0.0)) * (2 if replace_one else 1)
        run = np.broadcast_to(
            (np.arange(len(scores)) % count)[:, None] + sum(len(np.unique(r)) for *_, r in found), scores.shape
        )
        found.append((scores.ravel(), coins.ravel(), run.ravel()))
        seconds += trained.seconds
        samples += _samples(stacked, config.rounds * o.algorithm.draws)
        on_batch(sum(len(np.unique(r)) for *_, r in found), runs)
    all_coins = Coins(*(np.concatenate(column) for column in zip(*found, strict=True)))
    independent = acts_on_each_axis_alone(config)
    notes = () if independent else ("Axes share the noise's scale here, so scores may depend on each other.",)
    told = f"{watched * places:,} Dirac records a run, each {'one of two' if replace_one else 'in or out'} by a coin"
    return Shown(all_coins, independent, told, runs, seconds, samples, notes, details)


def _some(stacked: Parts, attacker: Attacker, view: View, victim: int, runs: int) -> Filter:
    o = stacked.outline
    system = LinearSystem(o.algorithm, o.topology, o.stack.dim)
    final = view.name == "final"

    def senders(t: int) -> list[int]:
        return [] if final else visible_senders(o.topology, view.members, t)

    return Filter(system, attacker, runs=runs, victim=victim, senders=senders, sees_models=final)


def lengths(
    parts: Parts,
    runs: int | None,
    *,
    make_gradient: MakeGradient = gradient_of,
    on_batch: OnBatch = lambda done, of: None,
) -> Shown:
    """A node's messages are as long as their noise: with noise scaled to the records, that tells of a record."""
    o, config = parts.outline, parts.outline.config
    replace_one = refuse_unequal_sizes(config)
    n, places, size = config.nodes, o.stack.dim, float(config.data.options["size"])
    runs = runs or max(1, 4000 // n)
    own_norm = parts.noise.mechanism == "own-norm-gaussian"
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    seconds = samples = 0.0
    done = 0
    for batch, count in batches(runs, max(1, _FLOATS_AT_ONCE // (8 * n * places))):
        stream = stream_of(config, batch)
        coins = canaries.flip(stream, n * count, 1)[:, 0]
        # The known record first, the canary (or under replace-one another like the first) second.
        targets = np.full((n * count, 2), -size, dtype=np.float32)
        targets[coins, 1] *= _ODD_SIZE
        held = np.ones((n * count, 2), dtype=bool)
        if not replace_one:
            held[:, 1] = coins
        records = canaries.Records(
            torch.zeros(int(held.sum()), dtype=torch.int64),
            torch.from_numpy(targets[held]),
            held.sum(1).tolist(),
        )
        stacked = repeat(parts, count, records)
        seen = Lengths()
        trained = train(stacked, stream, [Everyone(o.algorithm, seen)], make_gradient=make_gradient)
        norms = torch.stack(seen.norms).double()  # (draws, rows)
        if own_norm:
            divisors = torch.tensor([node.lot / node.weight for node in stacked.outline.plan.nodes]).double()
            factors = torch.stack([parts.noise.multiplier(k) for k in range(len(norms))])
            unit = size * torch.sqrt(1 + factors.repeat_interleave(count, dim=1).square() * places)
            scores = -(norms * divisors / unit - _ODD_SIZE).abs().amin(0)
        else:
            scores = norms.clamp_min(1e-30).log().mean(0)
        found.append((scores.numpy(), coins, done + np.arange(n * count) % count))
        seconds, done = seconds + trained.seconds, done + count
        samples += _samples(stacked, config.rounds * o.algorithm.draws)
        on_batch(done, runs)
    all_coins = Coins(*(np.concatenate(column) for column in zip(*found, strict=True)))
    notes = (
        "One coin per node and run; nodes of a run mix, so their scores are not taken for independent.",
    )
    told = "two records per node, a coin for the second; the score is the length of the noised gradients"
    return Shown(all_coins, False, told, runs, seconds, samples, notes)


@dataclass(frozen=True)
class Retraining:
    """One canary, in or out of many trainings. `batch` trains some and returns (scores, coins)."""

    parts: Parts
    canary: canaries.Canary
    victim: int
    view: View
    make_gradient: MakeGradient = gradient_of

    @classmethod
    def of(cls, parts: Parts, kind: str, view: View) -> Retraining:
        if parts.outline.classes is None:
            raise UserError(f"--canary {kind} needs classes to label it; use --canary dirac.")
        canary = canaries.CANARIES[kind](parts.dataset)
        if view.name in ("neighbour", "coalition"):
            raise UserError(f"--canary {kind} is scored by --observer final or all; {view.name} needs --canary dirac.")
        return cls(parts, canary, canaries.home_of(canary, parts.records.y, parts.records.sizes), view)

    def batch(self, number: int, runs: int) -> tuple[np.ndarray, np.ndarray, Trained, float]:
        """Half of the runs with the canary, half without, in turn."""
        parts, o = self.parts, self.parts.outline
        replace_one = refuse_unequal_sizes(o.config)
        present = np.arange(runs) % 2 == 0
        records = canaries.with_and_without(
            parts.records, self.canary, self.victim, present, replace_one=replace_one
        )
        stacked = repeat(parts, runs, records)
        stream = stream_of(o.config, number)
        rows = slice(self.victim * runs, (self.victim + 1) * runs)
        if self.view.sees_all:
            evidence = _AlongTheCanary(stacked, self.canary, rows)
            trained = train(
                stacked,
                stream,
                [Everyone(o.algorithm, evidence)],
                make_gradient=lambda p, book, s: evidence.watch(self.make_gradient(p, book, s)),
            )
            scores = evidence.scores.numpy()
        else:
            trained = train(stacked, stream, make_gradient=self.make_gradient)
            models = o.algorithm.model(trained.state)[rows]
            scores = -_losses(stacked, models, self.canary).double().numpy()
        return scores, present, trained, _samples(stacked, o.config.rounds * o.algorithm.draws)


class _AlongTheCanary:
    """The noised gradient's component along the canary's own gradient, at the points everyone knows."""

    def __init__(self, stacked: Parts, canary: canaries.Canary, rows: slice):
        o = stacked.outline
        self._vector = clipped_sum(o.module, per_sample_loss(o.classes))
        self._canary, self._rows = canary, rows
        self._attacker, self._clip = Attacker(stacked, 1.0, False), stacked.clip()
        self._points: dict[int, Tensor] = {}
        self._drawn = 0
        self._count = rows.stop - rows.start
        self.scores: Any = torch.zeros(self._count, dtype=torch.float64)

    def watch(self, grad: Any) -> Any:
        """Everyone can follow the points; here they are noted where they pass by."""

        def noting(points: Tensor) -> Tensor:
            self._points[self._drawn] = points[self._rows].clone()
            self._drawn += 1
            value: Tensor = grad(points)
            return value

        return noting

    def __call__(self, found: Draw | Sign | Step) -> None:
        if not isinstance(found, Draw):
            return
        k = found.draws[0]
        points = self._points.pop(k)
        step = self._clip.at(k, self._count)
        x = self._canary.x.expand(self._count, 1, *self._canary.x.shape)
        y = self._canary.y.expand(self._count, 1)
        direction, _ = self._vector(
            points, x, y, torch.ones(self._count, 1, dtype=torch.bool), step.weigh, unit=None
        )
        spread = self._attacker.linear_spread(k)[self._rows].double()[:, 0]
        along = (direction * found.value[self._rows]).sum(1).double()
        self.scores += along / spread.square().clamp_min(1e-30)


def _losses(stacked: Parts, models: Tensor, canary: canaries.Canary) -> Tensor:
    o = stacked.outline
    loss = per_sample_loss(o.classes)

    def one(parameters: dict[str, Tensor]) -> Tensor:
        outputs = torch.func.functional_call(o.module, parameters, (canary.x[None],))
        value: Tensor = loss(outputs, canary.y[None])[0]
        return value

    return torch.cat([one({k: v[0] for k, v in o.stack.views(m[None]).items()})[None] for m in models])


def _samples(stacked: Parts, draws: int) -> float:
    return float(np.dot(stacked.sampler.rates, stacked.records.sizes)) * draws


def dirac_parts(config: RunConfig, base: Any, most: int) -> Parts:
    """Parts of the configuration on Dirac records; `base` is its outline on its own."""
    return assemble(outline(canaries.on_dirac_records(config, base.plan, most)))


__all__ = ["AXES", "LENGTHS", "Retraining", "Shown", "Tally", "axes", "dirac_parts", "lengths"]
