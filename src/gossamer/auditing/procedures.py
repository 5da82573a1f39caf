"""The attacks, from parts to scores with coins.

axes      all records are Dirac canaries, each with a coin of its own: one training is thousands of coins
lengths   two records per node, a coin for the second: does the length of a message tell?
retrain   real records and model; one canary, in or out, and hundreds of trainings of each
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from gossamer.accounting.observers import Observer
from gossamer.auditing import canaries
from gossamer.auditing.attacker import Attacker
from gossamer.auditing.filter import Filter, LinearSystem
from gossamer.auditing.recovery import reads_exactly, recovery_of
from gossamer.auditing.scores import Evidence, MessageReader, NoisedLengths, Note, visible_senders
from gossamer.auditing.shared_noise import (
    MOST_TOGETHER,
    SAMPLES,
    SAMPLES_EACH,
    Along,
    Direction,
    Study,
    Sums,
    Take,
    held_by,
    known_noise,
    prepared,
    unknown_to,
)
from gossamer.auditing.stacked import MakeGradient, Trained, gradient_of, repeat, train
from gossamer.config.schema import RunConfig
from gossamer.data.synthetic import Dirac
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.mechanism.reader import Records
from gossamer.training.assemble import Parts

LENGTH_ROWS = 16  # coordinates of the noise whose length is measured
ENOUGH_COINS = 20_000
STUDY = 1 << 30  # the batch whose stream the attacker's own trainings have
_ODD_SIZE = 1.5  # of the lengths attack's canary, in sizes of the other record: no sum of those is as long
_FLOATS_AT_ONCE = 1 << 24  # of one stacked tensor


@dataclass(frozen=True)
class Found:
    """What a batch of trainings brought: a score for every coin."""

    scores: np.ndarray
    heads: np.ndarray
    run: np.ndarray  # which training of the batch
    runs: int
    seconds: float
    samples: float  # per-record gradients that were computed
    details: dict[str, Any] = field(default_factory=dict)


class Attack(Protocol):
    attacked: str  # the parts of the run that the verdict is about, for people
    description: str  # the canaries, for people
    notes: tuple[str, ...]
    independent: bool  # do the scores not depend on each other's coins, by construction?
    runs: int  # how many trainings are enough, unless said otherwise
    at_once: int  # how many fit into memory side by side
    looks: bool  # may it end before all runs are used, once something is broken?

    def batch(self, number: int, runs: int) -> Found: ...


def stream_of(config: RunConfig, batch: int) -> Stream:
    """Every batch its own: the system's, or for science one that follows the seed and is no run's own."""
    if config.privacy.noise.source == "seeded":
        return Stream.seeded(config.seed + (batch + 1) * 2**64)
    return Stream.system()


def acts_on_each_axis_alone(parts: Parts) -> bool:
    """Is what happens on one axis of one node blind to all others? By the mechanism's build, not by measurement.

    It is where noise and sampling are drawn for each axis and record by themselves, gradients have a length that
    follows no data wherever the point is (by the clip, or by the canaries' loss), and come off the messages exactly.
    """
    clip, sampling = parts.plan.config.privacy.clip, parts.plan.config.privacy.sampling
    return (
        parts.noise.adds
        and parts.noise.scale_is_public
        and parts.clip().scale_is_public
        and (clip.enforced or parts.noise_on_messages)
        and math.isinf(clip.record_bound)
        and not clip.of_lot
        and not (sampling.disjoint or sampling.needs_true_sizes)
        and reads_exactly(parts.plan.algorithm)
    )


def refuse_unequal_sizes(config: RunConfig) -> bool:
    """Is the game one of replacement? Drawing a fixed number of records is not defined for a data set one smaller."""
    replace_one = config.privacy.adjacency == "replace-one"
    if config.privacy.sampling.needs_true_sizes and not replace_one:
        raise UserError(
            f"privacy.sampling.kind = {config.privacy.sampling.kind!r} needs the number of records to stay, so an "
            "audit can only replace one: use --set privacy.adjacency=replace-one."
        )
    return replace_one


def refuse_unreadable(parts: Parts) -> None:
    """A mistake shows now, not in the middle of a training."""
    algorithm = parts.plan.algorithm
    next(recovery_of(algorithm)(algorithm, algorithm.init(parts.x0)))


ON_ARTIFICIAL_RECORDS = (
    "the mechanism and the algorithm (with artificial records, not the run's data or model)"
)


class Axes:
    """`parts` are those of a configuration on Dirac records."""

    attacked = ON_ARTIFICIAL_RECORDS
    looks = True

    def __init__(
        self, parts: Parts, view: Observer, make_gradient: MakeGradient = gradient_of, *, records: int = 1
    ):
        """`records` of each canary: a person who has so many."""
        config = parts.plan.config
        self._whose = canaries.Whose.of(config, records)
        self._held = held_by(view, parts.plan.privacy)  # who shares noise with whom
        self._parts = parts if self._held is None else prepared(parts, view, self._held)
        self._view, self._make = view, make_gradient
        self._target = view.target if self._held is None else self._held.victim  # None: all nodes
        self._directions: list[Direction] | None = None
        self._replace_one = refuse_unequal_sizes(config)
        self._nodes, self._places = config.nodes, parts.plan.stack.dim
        assert isinstance(config.data, Dirac)
        self._size, self._dense = config.data.size, config.data.dense
        if view.sees_all:
            refuse_unreadable(parts)
        elif parts.noise_on_messages:
            raise UserError(
                f"--observer {view.name} cannot filter noise that is on the messages themselves (privacy.noise.on = "
                "'iterate'); use --observer messages or all."
            )
        else:
            LinearSystem(parts.plan.algorithm, parts.plan.topology, self._places)
        coins = self._places * (self._nodes if self._target is None else 1)
        self.runs = max(1, math.ceil(ENOUGH_COINS / coins))
        numbers = self._nodes * self._places * (self._places if self._dense else 1) * records
        self.at_once = max(1, _FLOATS_AT_ONCE // numbers)
        self.independent = acts_on_each_axis_alone(parts)
        self.notes: tuple[str, ...] = (
            ()
            if self.independent
            else ("What happens on one axis shows on others here, so scores may depend on each other.",)
        )
        if parts.noise_on_messages and view.sees_all and view.sees_models:
            self.notes += (
                "The final models are made of the last iterates, which have no noise (Algorithm 1, line 11); "
                "--observer messages leaves them out.",
            )
        if self._held is not None:
            self.notes += (self._held.describe(),)
        choice = "one of two" if self._replace_one else "in or out"
        many = "records" if records == 1 else f"persons of {records} records"
        self.description = f"{coins:,} Dirac {many} a run, each {choice} by a coin"
        self.notes += tuple(self._whose.words(config))

    def batch(self, number: int, runs: int) -> Found:
        o, n, places, target = self._parts.plan, self._nodes, self._places, self._target
        stream = stream_of(o.config, number)
        coins = canaries.flip(stream, n * runs, places)
        if target is not None:  # the others hold nothing of interest: their coins would be in the way
            coins.reshape(n, runs, places)[np.arange(n) != target] = False
        stacked, attacker = self._stacked(coins, runs)
        details: dict[str, Any] = {}
        if not self._view.sees_all:
            observer = self._filter(stacked, attacker, runs, stream)
            trained = train(stacked, stream, [observer], make_gradient=self._make)
            scores = observer.scores.reshape(runs, places)
            details["mu_of_the_filter"] = math.sqrt(observer.mu_squared) * (2 if self._replace_one else 1)
        elif self._held is not None:
            along = Along(attacker, self._held.victim * runs, self._learned(), runs * places)
            trained = self._train_seen(stacked, stream, self._sums(stacked, attacker, stream, along.take))
            scores = along.scores.reshape(runs, places)
        else:
            evidence = Evidence(attacker)
            trained = self._train_seen(stacked, stream, evidence)
            scores = np.broadcast_to(evidence.scores, coins.shape)  # one 0 for all, if nothing was seen
        if target is not None:
            coins = coins.reshape(n, runs, places)[target]
        run = np.broadcast_to((np.arange(len(scores)) % runs)[:, None], scores.shape)
        samples = expected_samples(stacked)
        return Found(scores.ravel(), coins.ravel(), run.ravel(), runs, trained.seconds, samples, details)

    def _stacked(self, coins: np.ndarray, runs: int, *, nobody: bool = False) -> tuple[Parts, Attacker]:
        """The trainings that these coins decide about; only one node holds records where noise is shared."""
        holders = None
        if self._held is not None:
            holders = np.repeat(np.arange(self._nodes) == self._held.victim, runs) & (not nobody)
        records = canaries.dirac_records(
            coins,
            self._size,
            replace_one=self._replace_one,
            dense=self._dense,
            holders=holders,
            whose=self._whose,
        )
        stacked = repeat(self._parts, runs, records)
        size = self._whose.length(canaries.gradient_size(self._parts.plan.config))
        return stacked, Attacker(stacked, size, self._replace_one)

    def _train_seen(self, stacked: Parts, stream: Stream, note: Note) -> Trained:
        everyone = MessageReader(stacked.plan.algorithm, note, sees_models=self._view.sees_models)
        return train(stacked, stream, [everyone], make_gradient=self._make)

    def _sums(self, stacked: Parts, attacker: Attacker, stream: Stream, take: Take) -> Sums:
        assert self._held is not None
        known = known_noise(stacked, attacker, stream, self._held)
        return Sums(attacker, known, self._held, self._nodes, take)

    def _learned(self) -> list[Direction]:
        """From trainings of the attacker's own, without records: once, before the first coin."""
        if self._directions is None:
            assert self._held is not None
            honest, rounds = self._held.honest(self._nodes), self._parts.plan.config.rounds
            full = all(rate == 1.0 for rate in self._parts.sampler.rates)
            together = full and len(honest) * rounds <= MOST_TOGETHER
            samples = max(SAMPLES, SAMPLES_EACH * len(honest) * (rounds if together else 1))
            runs = min(self.at_once, math.ceil(samples / self._places))
            study, stream = Study(together), stream_of(self._parts.plan.config, STUDY)
            coins = np.zeros((self._nodes * runs, self._places), dtype=bool)
            stacked, attacker = self._stacked(coins, runs, nobody=True)
            self._train_seen(stacked, stream, self._sums(stacked, attacker, stream, study.take))
            self._directions = study.directions(honest.index(self._held.victim))
        return self._directions

    def _filter(self, stacked: Parts, attacker: Attacker, runs: int, stream: Stream) -> Filter:
        o, view, held = stacked.plan, self._view, self._held
        assert view.target is not None

        def senders(t: int) -> list[int]:
            return [] if view.sees_models else visible_senders(o.topology, view.members, t)

        return Filter(
            LinearSystem(o.algorithm, o.topology, self._places),
            attacker,
            runs=runs,
            victim=view.target,
            senders=senders,
            sees_models=view.sees_models,
            correlation=None if held is None else unknown_to(held, o.privacy),
            known=None if held is None else known_noise(stacked, attacker, stream, held),
        )


class Lengths:
    """A node's messages are as long as their noise: where that is scaled to the records, or to their number, it tells.

    One coin per run, for the second of node 0's two records; the other nodes hold nothing.
    """

    attacked = ON_ARTIFICIAL_RECORDS
    independent = True
    looks = False
    runs = 3600
    notes: tuple[str, ...] = ()
    description = (
        "two records on node 0, a coin for the second; the score is the length of the noised gradients"
    )

    def __init__(self, parts: Parts, make_gradient: MakeGradient = gradient_of, *, sees_models: bool = True):
        config = parts.plan.config
        self._parts, self._make, self._sees_models = parts, make_gradient, sees_models
        self._replace_one = refuse_unequal_sizes(config)
        self._nodes, self._places = config.nodes, parts.plan.stack.dim
        assert isinstance(config.data, Dirac)
        self._size, self._dense = config.data.size, config.data.dense
        refuse_unreadable(parts)
        self.at_once = max(1, _FLOATS_AT_ONCE // (self._nodes * self._places))

    def batch(self, number: int, runs: int) -> Found:
        o = self._parts.plan
        stream = stream_of(o.config, number)
        coins = canaries.flip(stream, 1, runs)[0]
        # The known record first; the canary second, or under replace-one another like the first.
        targets = np.full((runs, 2), -self._size, dtype=np.float32)
        targets[coins, 1] *= _ODD_SIZE
        held = np.ones((runs, 2), dtype=bool)
        if not self._replace_one:
            held[:, 1] = coins
        sizes = [*held.sum(1).tolist(), *[0] * ((self._nodes - 1) * runs)]
        places = canaries.at_places(
            torch.zeros(int(held.sum()), dtype=torch.int64), self._places, dense=self._dense
        )
        alone = (
            [np.ones(size, np.int64) for size in sizes] if self._parts.records.persons is not None else None
        )
        stacked = repeat(
            self._parts, runs, Records(places, torch.from_numpy(targets[held]), sizes, persons=alone)
        )
        seen = NoisedLengths(runs)
        everyone = MessageReader(o.algorithm, seen, sees_models=self._sees_models)
        trained = train(stacked, stream, [everyone], make_gradient=self._make)
        # Nothing was seen: no score tells anything.
        scores = self._scores(stacked, torch.stack(seen.norms).double()) if seen.norms else torch.zeros(runs)
        return Found(scores.numpy(), coins, np.arange(runs), runs, trained.seconds, expected_samples(stacked))

    def _scores(self, stacked: Parts, norms: Tensor) -> Tensor:
        """norms (draws, rows)."""
        if stacked.noise.scale_is_public:
            return norms.clamp_min(1e-30).log().mean(0)
        # Was any draw as long as one of the canary alone would be?
        node = stacked.plan.privacy.nodes[0]
        factors = torch.stack([stacked.noise.levels(k)[0] for k in range(len(norms))])
        unit = self._size * torch.sqrt(1 + factors.square() * self._places)[:, None]
        return -(norms * (node.lot / node.weight) / unit - _ODD_SIZE).abs().amin(0)


def expected_samples(stacked: Parts) -> float:
    o = stacked.plan
    per_draw = float(np.dot(stacked.sampler.rates, stacked.records.sizes))
    return per_draw * o.config.rounds * o.algorithm.draws
