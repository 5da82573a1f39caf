"""Attacks with artificial records or none, and the choice of the attack that fits a configuration.

Axes      all records are Dirac canaries, each with a coin of its own: one training has thousands of coins
Lengths   two records on one node, a coin for the second: does the length of a message tell?
Writes    mirrored records of a method with a shared model, whose folder supplies them and reads the writes
Releases  no training: the planned releases of one node, drawn in one dimension

`trainings` trains with real records and one canary.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv
from torch import Tensor

from gossamer.accounting.observers import EVERYONE, NODE, Observer, parse_observer, refuse_without_exact_means
from gossamer.accounting.profiles import Noise
from gossamer.accounting.releases import CLIPPED_LOT, Release
from gossamer.auditing import canaries
from gossamer.auditing.bounds import Coins
from gossamer.auditing.recovery import (
    RECOVERIES,
    Attacker,
    Draw,
    Filter,
    LinearSystem,
    MessageReader,
    Revealed,
    reads_exactly,
)  # fmt: skip
from gossamer.auditing.shared_noise import (
    CovarianceEstimate,
    Direction,
    DirectionScores,
    Secrets,
    proven_against,
)
from gossamer.auditing.trainings import NoLedger, Retraining, Trained, batch_stream, build, repeat, train
from gossamer.auditing.verdict import Attack
from gossamer.config.schema import RunConfig
from gossamer.data.synthetic import Dirac
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.mechanism.reader import Records
from gossamer.topology.exact import WindowTopology
from gossamer.topology.schedule import Topology
from gossamer.training.assemble import Parts, assemble
from gossamer.training.plan import Plan

ON_ARTIFICIAL_RECORDS = "the mechanism and the algorithm (on artificial records, not the run's data or model)"
ENOUGH_COINS = 20_000
LENGTH_ROWS = 16  # coordinates of the noise whose length is measured
ESTIMATE = 1 << 30  # the batch whose stream the attacker's own trainings have
_ODD_SIZE = 1.5  # of the canary of Lengths, in sizes of the other record: no sum of those is as long
_FLOATS_AT_ONCE = 1 << 24  # of one stacked tensor
_LAST_ITERATES = (
    "The final models are made of the last iterates, which have no noise (Algorithm 1, line 11); --observer messages "
    "leaves them out."
)


def observer_of(text: str, topology: Topology) -> Observer:
    """The observer of that name on the command line, on this graph."""
    rounds = range(min(topology.period or 8, 64))
    arcs = [(int(sender), int(receiver)) for t in rounds for sender, receiver in topology.edges(t)]
    observer = parse_observer(text, topology.nodes, arcs)
    refuse_without_exact_means(observer, bit_equal=isinstance(topology, WindowTopology))
    return observer


def attack_of(o: Plan, observer: str, canary: str | None, records: int = 1) -> Attack:
    """The attack by `canary`; by default along axes, or by lengths where the noise depends on the records."""
    view, writes = observer_of(observer, o.topology), o.method.attacks is not None
    if o.privacy.preprocesses and canary != "release":
        what = f"privacy.preprocessing = {o.config.privacy.preprocessing:g} releases something before round 1"
        raise UserError(f"{what}, which these canaries do not look at; use --canary release.")
    if not o.privacy.noise.adds:
        raise UserError("there is nothing to audit: this configuration adds no noise; audit one that does.")
    if records > 1 and (writes or canary in ("release", "lengths")):
        remedy = "use --canary dirac, blank, mislabelled or extreme"
        raise UserError(f"--canary-records {records} is for canaries that are records in training; {remedy}.")
    if writes and canary != "release":
        return _writes(o, view, canary)
    if canary is None:
        follows = o.privacy.noise.without_proof is not None and view.sees_all
        canary = "lengths" if follows else "dirac"
        if type(o.algorithm) not in RECOVERIES or o.privacy.protects.kind == NODE:
            canary = "release"  # messages that cannot be inverted, or one unit at a node
    if canary == "release":
        if view != EVERYONE and view.colluders is None:
            what = f"--observer {view.name} does not see every planned release"
            raise UserError(f"{what}, which is what --canary release attacks; use --observer all.")
        seen, _ = proven_against(o.privacy, view)
        releases = [event.release.seen_by(view) for event in seen.planned(seen.worst)]
        return Releases(releases, lambda number: batch_stream(o.config, number))
    canaries.refuse_unequal_sizes(o.config)
    if canary in canaries.CANARIES:
        return Retraining(assemble(o), canary, view, records=records)
    if canary == "lengths" and not view.sees_all:
        raise UserError("--canary lengths measures all messages; use --observer all or --canary dirac.")
    places = LENGTH_ROWS if canary == "lengths" else None
    parts = build(canaries.on_dirac_records(o.asked, o.privacy, places), force=o.forced)
    return Lengths(parts, view) if canary == "lengths" else Axes(parts, view, records=records)


def _writes(o: Plan, view: Observer, canary: str | None) -> Writes:
    method, own = f"algorithm.kind = {o.config.algorithm.kind!r}", o.method.attacks
    if view != EVERYONE:  # the last write is in no message, but in the model that is left
        what = f"--observer {view.name} has nothing of its own to see of {method}"
        raise UserError(f"{what}: everyone may fetch the shared model; use --observer all.")
    if canary not in (None, "dirac"):
        raise UserError(f"--canary {canary} is not made for {method}; use --canary dirac or release.")
    config = own.on_mirrored_records(o.asked, o.privacy, o.classes or 2)
    return Writes(own.WriteAttack(build(config, force=o.forced)), config)


def acts_on_each_axis_alone(parts: Parts) -> bool:
    """Is one axis of one node independent of all others? By the construction of the mechanism, not by measurement.

    It is where noise and sampling are drawn for each axis and record by themselves, gradients have a length that does
    not depend on data at any point (by the clip, or by the canaries' loss), and messages reveal them exactly.
    """
    clip, sampling = parts.plan.config.privacy.clip, parts.plan.config.privacy.sampling
    return (
        parts.noise.adds
        and parts.noise.scale_is_public
        and parts.clip().scale_is_public
        and (clip.enforced or parts.noise_on_messages)
        and math.isinf(clip.record_bound)
        and clip.of == "record"
        and not (sampling.disjoint or sampling.needs_true_sizes)
        and reads_exactly(parts.plan.algorithm)
    )


class DiracAttack(Attack):
    """Trainings on Dirac records; `parts` are those of a configuration on them."""

    attacked = ON_ARTIFICIAL_RECORDS

    def __init__(self, parts: Parts, view: Observer = EVERYONE):
        config, algorithm = parts.plan.config, parts.plan.algorithm
        self._parts, self._view = parts, view
        self._replace_one = canaries.refuse_unequal_sizes(config)
        self._nodes, self._places = config.nodes, parts.plan.stack.dim
        assert isinstance(config.data, Dirac)
        self._size, self._dense = config.data.size, config.data.dense
        if view.sees_all:  # raise now if messages cannot be inverted, not in the middle of a training
            MessageReader(algorithm, lambda revealed: None).start(algorithm.init(parts.x0))

    def _read(self, stacked: Parts, stream: Stream, note: Callable[[Revealed], None]) -> Trained:
        reader = MessageReader(stacked.plan.algorithm, note, sees_models=self._view.sees_models)
        return train(stacked, stream, [reader])


class Axes(DiracAttack):
    """The records of every node are canaries, each with `records` equal records on one axis."""

    looks = True

    def __init__(self, parts: Parts, view: Observer, *, records: int = 1):
        config = parts.plan.config
        self._unit = canaries.CanaryUnit.of(config, records)
        self._secrets = Secrets.held_by(view, parts.plan.privacy)  # None: nodes share no noise
        super().__init__(parts if self._secrets is None else self._secrets.prepare(parts, view), view)
        self._target = view.target if self._secrets is None else self._secrets.victim  # None: all nodes
        self._directions: list[Direction] | None = None
        if not view.sees_all:
            if parts.noise_on_messages:
                what = "noise that is on the messages themselves (privacy.noise.on = 'iterate')"
                raise UserError(f"--observer {view.name} cannot filter {what}; use messages or all.")
            LinearSystem(parts.plan.algorithm, parts.plan.topology, self._places)
        coins = self._places * (self._nodes if self._target is None else 1)
        self.runs = max(1, math.ceil(ENOUGH_COINS / coins))
        numbers = self._nodes * self._places * (self._places if self._dense else 1) * records
        self.at_once = max(1, _FLOATS_AT_ONCE // numbers)
        self.independent = acts_on_each_axis_alone(parts)
        notes = []
        if not self.independent:
            notes.append("Axes influence each other here, so scores may depend on each other.")
        if parts.noise_on_messages and view.sees_all and view.sees_models:
            notes.append(_LAST_ITERATES)
        if self._secrets is not None:
            notes.append(self._secrets.note)
        self.notes = (*notes, *self._unit.notes(config))
        choice = "one of two" if self._replace_one else "in or out"
        many = "records" if records == 1 else f"persons of {records} records"
        self.description = f"{coins:,} Dirac {many} a run, each {choice} by a coin"

    def batch(self, number: int, runs: int) -> Coins:
        n, places, target, secrets = self._nodes, self._places, self._target, self._secrets
        stream = batch_stream(self._parts.plan.config, number)
        coins = canaries.flip(stream, n * runs, places)
        if target is not None:  # the other nodes' coins would only add noise
            coins.reshape(n, runs, places)[np.arange(n) != target] = False
        stacked, attacker = self._stack(coins, runs)
        details: dict[str, Any] = {}
        scores: Any
        if not self._view.sees_all:
            o = stacked.plan
            spectator = Filter(
                LinearSystem(o.algorithm, o.topology, places),
                attacker,
                self._view,
                runs=runs,
                correlation=None if secrets is None else secrets.unknown(o.privacy),
                known=None if secrets is None else secrets.known_noise(stacked, attacker, stream),
            )
            trained = train(stacked, stream, [spectator])
            scores = spectator.scores.reshape(runs, places)
            details["mu_of_the_filter"] = math.sqrt(spectator.mu_squared) * (2 if self._replace_one else 1)
        elif secrets is not None:
            along = DirectionScores(attacker, secrets.victim * runs, self._learn_directions(), runs * places)
            note = secrets.honest_sums(stacked, attacker, stream, n, along.take)
            trained = self._read(stacked, stream, note)
            scores = along.scores.reshape(runs, places)
        else:
            trained = self._read(stacked, stream, attacker.add)
            scores = np.broadcast_to(attacker.scores, coins.shape)  # all 0 if nothing was revealed
        if target is not None:
            coins = coins.reshape(n, runs, places)[target]
        run = np.broadcast_to((np.arange(len(scores)) % runs)[:, None], scores.shape)
        return trained.coins(scores, coins, run, runs, details)

    def _stack(self, coins: canaries.Bools, runs: int, *, empty: bool = False) -> tuple[Parts, Attacker]:
        """The trainings that these coins decide; only one node holds records where noise is shared, or none."""
        holders = None
        if self._secrets is not None:
            holders = np.repeat(np.arange(self._nodes) == self._secrets.victim, runs) & (not empty)
        how: dict[str, Any] = {"replace_one": self._replace_one, "dense": self._dense, "holders": holders}
        records = canaries.dirac_records(coins, self._size, self._unit, **how)
        stacked = repeat(self._parts, runs, records)
        size = self._unit.norm(canaries.gradient_size(self._parts.plan.config))
        return stacked, Attacker(stacked, size, self._replace_one)

    def _learn_directions(self) -> list[Direction]:
        """From trainings of the attacker's own, without records: once, before the first coin."""
        if self._directions is None:
            secrets, config = self._secrets, self._parts.plan.config
            assert secrets is not None
            honest = secrets.honest(self._nodes)
            estimate = CovarianceEstimate.of(len(honest), config.rounds, self._parts.sampler.rates)
            runs = min(self.at_once, math.ceil(estimate.samples / self._places))
            no_coins = np.zeros((self._nodes * runs, self._places), dtype=bool)
            stacked, attacker = self._stack(no_coins, runs, empty=True)
            stream = batch_stream(config, ESTIMATE)
            note = secrets.honest_sums(stacked, attacker, stream, self._nodes, estimate.take)
            self._read(stacked, stream, note)
            self._directions = estimate.directions(honest.index(secrets.victim))
        return self._directions


class Lengths(DiracAttack):
    """A message is as long as its noise: if that is scaled to the records, or to their number, its length tells.

    One coin per run, for the second of node 0's two records; the other nodes hold nothing.
    """

    runs = 3600
    description = "two records on node 0, a coin for the second; the score is how long noised gradients are"

    def __init__(self, parts: Parts, view: Observer = EVERYONE):
        super().__init__(parts, view)
        self.at_once = max(1, _FLOATS_AT_ONCE // (self._nodes * self._places))

    def batch(self, number: int, runs: int) -> Coins:
        stream = batch_stream(self._parts.plan.config, number)
        coins = canaries.flip(stream, 1, runs)[0]
        # The known record first; the canary second, or under replace-one another like the first.
        targets = np.full((runs, 2), -self._size, dtype=np.float32)
        targets[coins, 1] *= _ODD_SIZE
        held = np.ones((runs, 2), dtype=bool)
        if not self._replace_one:
            held[:, 1] = coins
        sizes = [*held.sum(1).tolist(), *[0] * ((self._nodes - 1) * runs)]
        first = torch.zeros(int(held.sum()), dtype=torch.int64)
        places = canaries.at_places(first, self._places, dense=self._dense)
        by_person = self._parts.records.persons is not None
        persons = [np.ones(size, np.int64) for size in sizes] if by_person else None
        records = Records(places, torch.from_numpy(targets[held]), sizes, persons=persons)
        stacked, norms = repeat(self._parts, runs, records), list[Tensor]()

        def note(revealed: Revealed) -> None:
            if isinstance(revealed, Draw):
                norms.append(revealed.value[:runs].norm(dim=1))

        trained = self._read(stacked, stream, note)
        # If nothing was revealed, no score tells anything.
        scores = self._scores(stacked, torch.stack(norms).double()) if norms else torch.zeros(runs)
        return trained.coins(scores.numpy(), coins, np.arange(runs), runs)

    def _scores(self, stacked: Parts, norms: Tensor) -> Tensor:
        """norms (draws, rows)."""
        if stacked.noise.scale_is_public:
            return norms.clamp_min(1e-30).log().mean(0)
        # Was any draw as long as one of the canary alone would be?
        node = stacked.plan.privacy.nodes[0]
        factors = torch.stack([stacked.noise.levels(k)[0] for k in range(len(norms))])
        unit = self._size * torch.sqrt(1 + factors.square() * self._places)[:, None]
        return -(norms * (node.lot / node.weight) / unit - _ODD_SIZE).abs().amin(0)


class Writes(Attack):
    """One training after the other of a method with a shared model; `attack` is a `WriteAttack` of the method."""

    attacked = ON_ARTIFICIAL_RECORDS
    looks = True
    at_once = 4096  # memory sets no limit

    def __init__(self, attack: Any, config: RunConfig):
        self.attack, self._config = attack, config
        coins = len(attack.holders) * attack.lot
        self.runs = math.ceil(attack.effort * ENOUGH_COINS / coins)
        self.independent, self.notes = attack.independent, attack.notes
        choice = "one of two that mirror each other" if attack.replace_one else "in or out"
        self.description = f"{coins:,} records a run on axes of their own, each {choice} by a coin"

    def batch(self, number: int, runs: int) -> Coins:
        shape, start = (runs, len(self.attack.holders), self.attack.lot), time.perf_counter()
        stream = batch_stream(self._config, number)
        coins = canaries.flip(stream, shape[0] * shape[1], shape[2]).reshape(shape)
        streams = (batch_stream(self._config, number * self.at_once + r + 1) for r in range(runs))
        pairs = zip(coins, streams, strict=True)
        scores = np.stack([self.attack.train(own, NoLedger(), stream) for own, stream in pairs])
        run = np.broadcast_to(np.arange(runs)[:, None, None], shape)
        samples = float(self._config.rounds * coins.size)
        return Coins(scores.ravel(), coins.ravel(), run.ravel(), runs, time.perf_counter() - start, samples)


# --- the mechanism alone --------------------------------------------------------------------------------------

Floats = NDArray[np.float64]
_PARTICIPATION, _SIZE, _SIGN = 16, 17, 18  # purpose fields of the stream
_SURE = 700.0  # a log-likelihood ratio of outcomes that only one side has


def density_of(release: Release) -> Noise:
    if release.density is None:
        raise UserError(f"a release of kind {release.kind!r} has no density to draw from; use --canary dirac.")
    return release.density


def draw(noise: Noise, sizes: Floats, signs: Floats) -> Floats:
    """Noise from uniform numbers: |z| by the inverse of its distribution function, which ends at the bound."""
    whole = gammainc(1 / noise.shape, (noise.bound / noise.scale) ** noise.shape)  # 1 without a bound
    size = noise.scale * gammaincinv(1 / noise.shape, sizes * whole) ** (1 / noise.shape)
    return np.asarray(np.where(signs < 0.5, -size, size))


class Releases(Attack):
    """One coin per run: the record of heads moves each sum by the sensitivity when it is sampled.

    For messages that cannot be inverted, or before there is an algorithm. The attacker gets every noised sum and knows
    the densities, so its score is the exact log-likelihood ratio: what the accountants price.
    """

    attacked = "the mechanism alone (draws in one dimension; no model was trained)"
    description = "a record that moves every sum by the whole sensitivity, in or out by a coin"
    runs = 40_000
    at_once = 40_000

    def __init__(self, releases: Sequence[Release], stream: Callable[[int], Stream]):
        self._releases, self._stream = _entered(releases), stream
        drawn = [release for release in releases if release.sampling == "balls-and-bins"]
        self._passes = [list(lots) for _, lots in itertools.groupby(drawn, lambda lot: lot.pass_number)]
        self._replace_one = bool(releases) and releases[0].adjacency == "replace-one"
        for release in releases:
            density_of(release)
        if any(math.isinf(release.sensitivity) for release in releases):
            note = "Nothing enforces a bound here; the record moves sums by just what the noise is scaled to."
            self.notes = (note,)

    def batch(self, number: int, runs: int) -> Coins:
        start, stream = time.perf_counter(), self._stream(number)
        heads, scores = canaries.flip(stream, 1, runs)[0], np.zeros(runs)
        for k, release in enumerate(self._releases):
            noise, shift, away = self._moves(release)
            taken = uniform(stream, _PARTICIPATION, k, runs) < release.rate
            seen = self._seen(stream, k, noise, np.where(taken, np.where(heads, shift, away), 0.0))
            scores += self._evidence(noise, seen, shift, away, release.rate)
        made = len(self._releases)
        for choice, lots in enumerate(self._passes, start=made):
            scores += self._pass(stream, choice, made, lots, heads)
            made += len(lots)
        seconds = time.perf_counter() - start
        return Coins(scores, heads, np.arange(runs), runs, seconds, runs * made)

    def _moves(self, release: Release) -> tuple[Noise, float, float]:
        """(noise, how far heads moves a sum, how far tails does)."""
        finite = math.isfinite(release.sensitivity)
        shift = release.sensitivity if finite else 1.0  # the unit of planned events
        away = 0.0
        if release.clipped == CLIPPED_LOT:  # from where the others hold it to the other side of the ball
            shift *= 2
        elif self._replace_one:  # from one record's side to the other's
            shift = release.shift("replace-one") / 2 if finite else shift
            away = -shift
        return density_of(release), shift, away

    @staticmethod
    def _seen(stream: Stream, k: int, noise: Noise, centre: Floats) -> Floats:
        runs = len(centre)
        return centre + draw(noise, uniform(stream, _SIZE, k, runs), uniform(stream, _SIGN, k, runs))

    def _pass(
        self, stream: Stream, choice: int, first: int, lots: Sequence[Release], heads: NDArray[np.bool_]
    ) -> Floats:
        """A pass of balls and bins: the record is in one lot, and nobody sees in which.

        log of 1/T Σ_t p_t(seen moved) / p_t(seen): of either side, and their difference.
        """
        runs, total = len(heads), round(1 / lots[0].rate)
        chosen = np.floor(uniform(stream, _PARTICIPATION, choice, runs) * total)
        hidden = math.log(total - len(lots)) if len(lots) < total else -math.inf
        one, other = np.full(runs, hidden), np.full(runs, hidden)
        for k, release in enumerate(lots, start=first):
            noise, shift, away = self._moves(release)
            inside = chosen == release.lot_number
            seen = self._seen(stream, k, noise, np.where(inside, np.where(heads, shift, away), 0.0))
            with np.errstate(divide="ignore", invalid="ignore"):
                still = noise.log_weight(seen)
                one = np.logaddexp(one, _finite(noise.log_weight(seen - shift) - still))
                other = np.logaddexp(other, _finite(noise.log_weight(seen - away) - still))
        return _finite(one - other).round(9)

    @staticmethod
    def _evidence(noise: Noise, seen: Floats, shift: float, away: float, rate: float) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            still = np.log1p(-rate) + noise.log_weight(seen)
            moved = (math.log(rate) + noise.log_weight(seen - move) for move in (shift, away))
            one, other = (np.logaddexp(still, weight) for weight in moved)
            # In the last digits a double remembers how it was made: an attack on floating point, not on the noise.
            return _finite(one - other).round(9)


def _finite(ratio: Floats) -> Floats:
    return np.asarray(np.clip(np.nan_to_num(ratio, nan=0.0, posinf=_SURE, neginf=-_SURE), -_SURE, _SURE))


def _entered(releases: Sequence[Release]) -> list[Release]:
    """Of the one-pass lots of a pass a record is in one for sure: here the one with the least noise."""
    passes: dict[int, Release] = {}
    for release in releases:
        if release.sampling == "one-pass":
            number = release.pass_number or 0
            if number not in passes or density_of(release).scale < density_of(passes[number]).scale:
                passes[number] = replace(release, rate=1.0)
    return [*(r for r in releases if not r.in_passes), *passes.values()]


def uniform(stream: Stream, purpose: int, step: int, count: int) -> Floats:
    """In (0, 1)."""
    words = stream.uniform_bits(purpose, 0, step, count)
    return np.asarray((words.astype(np.float64) + 0.5) / 2.0**64)
