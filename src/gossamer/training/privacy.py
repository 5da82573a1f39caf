"""The privacy plan of a run: public constants, calibrated noise, claimed and proven ε of every node.

Everything here follows from the configuration and the declared record counts alone; no record is read. How much noise a
budget takes, and how many draws it pays for, is decided by the paper's formula in paper mode, by the accountant in
sound mode.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gossamer.accounting import calibrate
from gossamer.accounting.observers import EVERYONE, ONE_RECORD, RECORD, Observer, Unit
from gossamer.accounting.profiles import TradeOff, gdp_epsilon, gdp_mu
from gossamer.accounting.proven import Proven, curve, profile, proven
from gossamer.accounting.recompute import Sharing, Spent, group_epsilons, sharing
from gossamer.accounting.releases import (
    CLIPPED_LOT,
    Event,
    Gaussian,
    Release,
    collate,
    of_several_runs,
    on_several_nodes,
)
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.kernels.rounding import excess
from gossamer.mechanism.clipping import After, Schedule, extremes
from gossamer.mechanism.noise import NoiseKind, Participation
from gossamer.mechanism.noise.shaped import magnitude
from gossamer.methods.claims import Claim, ClaimRule, Draws
from gossamer.options.stage import STAGES
from gossamer.options.types import LEAST_BOUND, MOST_BOUND
from gossamer.results.certificate import by_observer
from gossamer.results.rundir import finite
from gossamer.training.preprocess import paid_event, planned_events, steps_of

DRAWN = 0.05  # relative tolerance of figures for charts
NO_CLAIM = Claim(None, "no paper claims an ε for this mechanism", ())
UNPRICED = Proven(math.inf, "", because="it was not priced")


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """One node's public constants and what its releases cost."""

    records: int  # declared J: of records, or of persons where they are protected
    rate: float  # sampling rate q
    lot: float  # divisor L
    epsilon: float | None  # what was asked for
    delta: float
    allowance: int  # draws the budget pays for
    factor: float = 0.0  # noise multiplier of draw k = factor · shape(k)
    claim: Claim = NO_CLAIM
    proven: Proven = UNPRICED
    weight: float = 1.0  # the node's share in the objective, 1 on average: sums are divided by lot / weight
    end: float = math.inf  # where truncated noise ends, in units of its scale
    before: tuple[Event, ...] = ()  # ahead of its draws: preprocessing

    @property
    def spends(self) -> tuple[Any, ...]:
        """Key of equal nodes: those with the same key write the same events."""
        return self.before, self.factor, self.rate, self.allowance, self.end


@dataclass(frozen=True, kw_only=True)
class PrivacyPlan(Draws):
    """The draws of a run, and what they cost each node."""

    mode: str
    adjacency: str
    enforced: bool  # does something bound every record's contribution?
    draws_per_round: int
    nodes: tuple[NodePlan, ...]
    notes: tuple[str, ...]
    claim: ClaimRule
    on: str = "gradient"  # what carries the noise: the answers about records, or the messages
    draws_before: int = 0  # of the first round: the mean of the records, where it is released
    observer: Observer = EVERYONE  # whom the proven figures hold against
    copies: int = 1  # nodes on which the same record, or person, may be
    after: tuple[Event, ...] = ()  # of every node, behind its draws: figures on private records
    clipped: str | None = None  # "lot" where lots are clipped as a whole
    protects: Unit = ONE_RECORD
    # The last events: calibration, figure, curve and groups use the same tens of thousands.
    last_events: list[tuple[Any, list[Event]]] = field(default_factory=list, repr=False, compare=False)

    @property
    def unit(self) -> str:
        """The unit that every ε here protects, in words."""
        return self.protects.words(self.copies)

    @property
    def preprocesses(self) -> bool:
        """Is something released of the records before the first draw?"""
        return any(node.before for node in self.nodes)

    @cached_property
    def worst(self) -> NodePlan:
        return max(self.nodes, key=lambda node: node.proven.epsilon)

    @cached_property
    def kinds(self) -> list[NodePlan]:
        """One of every group of nodes that write the same events: equal nodes are priced once."""
        return list({node.spends: node for node in self.nodes}.values())

    @property
    def delta(self) -> float:
        return max(node.delta for node in self.nodes)

    def figures(self) -> dict[str, Any]:
        """The keys that `run`, `plan` and `audit` share."""
        delta = self.delta
        claims = [node.claim.epsilon for node in self.nodes if node.claim.epsilon is not None]
        return {
            "epsilon_claimed": max(claims, default=None),
            "epsilon_proven": finite(self.worst.proven.epsilon),
            "epsilon_proven_lower": self.worst.proven.lower,
            "epsilon_audited": None,
            "violation": None,
            "epsilon_by_node": [
                {"claimed": node.claim.epsilon, "proven": finite(node.proven.epsilon), "audited": None}
                for node in self.nodes
            ],
            "not_proven_because": self.worst.proven.because,
            "claim_reference": self.nodes[0].claim.reference,
            "claim_flags": sorted({flag for node in self.nodes for flag in node.claim.flags}),
            "delta": delta,
            "adjacency": self.adjacency,
        }

    def drawn_after(self, rounds: list[int]) -> list[tuple[float | None, float | None]]:
        """`epsilon_after` for charts: still upper bounds, but no finer than a picture.

        A part costs no more than the whole, which was priced finely.
        """
        most = self.worst.proven.epsilon
        curve = self.epsilon_after(rounds, tolerance=DRAWN)
        return [(claimed, None if proof is None else min(proof, most)) for claimed, proof in curve]

    def epsilon_after(self, rounds: list[int], tolerance: float = 0.01) -> list[tuple[float | None, float | None]]:
        """(claimed, proven) of the worst node after so many rounds, for metrics and charts."""
        node = self.worst
        at = [min(self.draws_before + r * self.draws_per_round, node.allowance) for r in rounds]
        proofs: list[float | None] = [None] * len(at)
        if math.isfinite(node.proven.epsilon):
            events = self.planned(replace(node, allowance=max(at)))
            last = (self.draws - self.draws_before) // self.draws_per_round
            marks = [
                self.copies * (len(node.before) + k + len(self.after) * (r >= last))
                for k, r in zip(at, rounds, strict=True)
            ]
            bounds = curve(events, marks, node.delta, self.adjacency, observer=self.observer, tolerance=tolerance)
            proofs = finite(bounds)
        return [(self.claimed(node, k).epsilon, proof) for k, proof in zip(at, proofs, strict=True)]

    def claimed(self, node: NodePlan, draws: int | None = None) -> Claim:
        """The paper's figure after so many draws (all of them, if None); none where it does not cover this noise."""
        draws = node.allowance if draws is None else draws
        if draws == 0:
            return Claim(0.0, "nothing was released")
        if node.factor == 0.0 or not self.claim.covers(self.noise):
            return NO_CLAIM
        return self.claim.claim(self, node.factor, node.rate, node.delta, draws)

    def proven(self, node: NodePlan) -> Proven:
        return proven(self.planned(node), node.delta, self.adjacency, observer=self.observer)

    def without_rounding(self) -> tuple[float, float] | None:
        """Return the share of the clip that noise covers for rounding, and about the worst node's ε if sums were exact.

        As a Gaussian's with so much more noise, which is as good as a price where the share is small. None where
        nothing is proven, or where sums are not of clipped records.
        """
        epsilon, delta = self.worst.proven.epsilon, self.worst.delta
        if not self.enforced or self.protects.kind != RECORD or not 0 < epsilon < math.inf:
            return None
        share = excess(max(each.lot for each in self.nodes))
        return share, gdp_epsilon(gdp_mu(epsilon, delta) / (1 + share), delta)

    def against(self, observer: Observer) -> PrivacyPlan:
        """The same noise, with the proven figures for another observer than was planned for."""
        other = replace(self, observer=observer)
        return replace(other, nodes=tuple(replace(node, proven=other.proven(node)) for node in self.nodes))

    def trade_off(self) -> TradeOff | None:
        """All that is proven, δ at many ε: the printed (ε, δ) is one point of it. At each ε the worst node counts."""
        figure = self.worst.proven.epsilon
        if math.isinf(figure):
            return None
        top = max(1.25 * figure, 0.1)
        epsilons = sorted({*np.linspace(0.0, top, 65).tolist(), *np.geomspace(top / 1000, top, 64).tolist()})
        profiles = [
            profile(self.planned(node), epsilons, node.delta, self.adjacency, observer=self.observer)
            for node in self.kinds
        ]
        deltas = [max(of_nodes) for of_nodes in zip(*profiles, strict=True)]
        return TradeOff.of([*epsilons, figure], [*deltas, self.delta])

    def priced(self, node: NodePlan) -> tuple[str, list[float], int] | None:
        """Return what an accountant is asked about in place of a node's draws, as `SamplingKind.priced` has it.

        None where other events are around them, or noise is not Gaussian. A lot that is clipped as a whole costs what a
        lot of fixed size does, however it was drawn: see `accounting.pairs`.
        """
        if not self.noise.gaussian or node.before or self.after:
            return None
        # Of the releases as they will be written: of correlated noise less counts than is added.
        multipliers = [release.noise_multiplier for release in self._releases(node)]
        priced = self.sampling.priced(multipliers, node.rate)
        return priced if priced is None or self.clipped is None else ("fixed-size", *priced[1:])

    def planned(self, node: NodePlan) -> list[Event]:
        """Planned events of all nodes that hold a copy of a record, on sensitivity 1; these nodes do the same."""
        key = (
            node.spends, self.draws, self.shape, self.noise, self.sampling, self.dimension, self.enforced,
            self.adjacency, self.clipped, self.after, self.copies,
        )  # fmt: skip
        if not self.last_events or self.last_events[0][0] != key:
            events = [*self.events(node), *self.after]
            self.last_events[:] = [(key, on_several_nodes(events, self.copies) if self.copies > 1 else events)]
        return self.last_events[0][1]

    def events(self, node: NodePlan) -> list[Event]:
        """Preprocessing and the draws of one node."""
        return [*node.before, *(Event(k, release) for k, release in enumerate(self._releases(node)))]

    def _releases(self, node: NodePlan) -> list[Release]:
        """Of the draws of one node, on sensitivity 1: only the ratio matters to an accountant."""
        sensitivity, sampling, rate = 1.0 if self.enforced else math.inf, self.sampling, node.rate
        parts: dict[tuple[int | None, int | None], Participation] = {}  # of most samplings one for all draws
        releases = []
        for k in range(node.allowance):
            lot = sampling.pass_of(k, rate), sampling.lot_number_of(k, rate)
            if lot not in parts:
                parts[lot] = Participation(sampling.drawn_as, rate, self.adjacency, *lot, self.clipped)
            level = node.factor * self.shape(k)
            releases.append(self.noise.release(level, sensitivity, self.dimension, parts[lot], node.end))
        return releases

    def by_group(self) -> dict[int, float]:
        """k → proven ε of k records together, for runs that protect records; empty where persons or nodes are."""
        if self.protects.kind != RECORD or not self.noise.adds or math.isinf(self.worst.proven.epsilon):
            return {}
        histories = [self.planned(node) for node in self.kinds]
        return group_epsilons(histories, self.delta, self.adjacency, observer=self.observer)

    def by_observer(self) -> dict[str, Any]:
        """`epsilon_by_observer` and `epsilon_by_colluders`: of the worst node, from what the nodes will write."""
        shared, spent = self.sharing()
        return by_observer(
            shared,
            shared.worst(spent) if shared else [],
            planned=self.observer,
            epsilon=self.worst.proven.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            unit=self.unit,
        )

    def sharing(self) -> tuple[Sharing | None, list[Spent]]:
        """Return how the nodes share noise, and what each will spend; nothing where every node draws its own."""
        if self.observer.colluders is None:
            return None, []
        kinds: dict[tuple[Any, ...], Spent] = {}
        for node in self.nodes:
            if (key := (node.spends, node.delta)) not in kinds:
                history = tuple(collate(self.planned(node)))
                kinds[key] = Spent(history, node.delta, self.adjacency, node.proven.epsilon)
        spent = [kinds[node.spends, node.delta] for node in self.nodes]
        return sharing(release for one in kinds.values() for release, _ in one.history), spent


# Calibrated nodes, for the life of the process: nodes, seeds and graphs of a comparison share them.
_solved: dict[tuple[Any, ...], NodePlan] = {}


def plan_privacy(
    config: RunConfig,
    records: Sequence[int],
    rates: Sequence[tuple[float, float]],
    *,
    draws_per_round: int,
    noise: NoiseKind,
    claim: ClaimRule,
    dimension: int = 1,
    notes: Sequence[str] = (),
) -> PrivacyPlan:
    """Budgets and schedules as numbers, one group of equal nodes at a time; `rates` are the nodes' (q_i, L_i)."""
    privacy, schedule, draws = config.privacy, config.privacy.noise.schedule, config.rounds * draws_per_round
    copies, protects = most_nodes(config) if noise.adds else 1, privacy.protects
    if noise.adds:
        _check_bounds(config, draws)
    shape = schedule.shape(draws, privacy.clip.schedule(draws))
    if privacy.centre is not None:  # a private mean: one more draw in front
        shape, draws = _mean_first(privacy.centre, shape, draws), draws + 1
    base = PrivacyPlan(
        draws=draws,
        shape=shape,
        noise=noise,
        sampling=privacy.sampling,
        budget_ratio=schedule.budget_ratio,
        dimension=dimension,
        mode=config.mode,
        adjacency=privacy.adjacency,
        # Of the iterates' sensitivity, and of a norm that scales its own noise, there is a belief only.
        enforced=privacy.clip.enforced and privacy.noise.on == "gradient" and noise.without_proof is None,
        draws_per_round=draws_per_round,
        nodes=(),
        notes=(),
        claim=claim,
        draws_before=0 if privacy.centre is None else 1,
        on=privacy.noise.on,
        observer=noise.observer,
        copies=copies,
        clipped=CLIPPED_LOT if privacy.clip.of == "lot" else None,
        protects=protects,
    )
    STAGES.info("calibrating the noise")
    base = replace(base, after=_evaluation_events(config, base))
    epsilons = privacy.epsilon if isinstance(privacy.epsilon, list) else [privacy.epsilon] * config.nodes
    deltas = privacy.delta if isinstance(privacy.delta, list) else [privacy.delta] * config.nodes
    shared = repr((base, privacy, tuple(map(type, steps_of(config.data)))))
    nodes = []
    for J, (rate, lot), epsilon, delta in zip(records, rates, epsilons, deltas, strict=True):
        key = (shared, rate, epsilon, delta)
        if key not in _solved:
            if len(_solved) >= 1000:
                _solved.clear()
            node = NodePlan(records=J, rate=rate, lot=lot, epsilon=epsilon, delta=delta, allowance=base.draws)
            _solved[key] = _calibrate(config, base, node)
        weight = J * len(records) / sum(records) if config.weighting == "size" else 1.0
        nodes.append(replace(_solved[key], records=J, lot=lot, weight=weight))
    if base.copies > 1:
        _refuse_unequal(config, nodes)
    return replace(base, nodes=tuple(_levelled(base, nodes) if noise.cancels else nodes), notes=tuple(notes))


def _levelled(base: PrivacyPlan, nodes: Sequence[NodePlan]) -> list[NodePlan]:
    """Masks cancel if all nodes add the same noise to their means: as much as the node that needs most.

    With strong masks this costs nothing: what hides a record is then the noise of all means together, whoever adds it.
    """
    fewest, most = min(node.allowance for node in nodes), max(node.allowance for node in nodes)
    if fewest < most:
        raise UserError(
            f"privacy.epsilon pays for {fewest} draws of one node and {most} of another, and noise that cancels needs "
            "all nodes in every draw; give all the same privacy.epsilon, or leave privacy.noise.multiplier out."
        )
    divisors = [node.lot / node.weight for node in nodes]
    needed = max(node.factor / divisor for node, divisor in zip(nodes, divisors, strict=True))
    levelled, priced = [], {}
    for node, divisor in zip(nodes, divisors, strict=True):
        raised = replace(node, factor=needed * divisor)
        key = (raised.spends, node.delta)
        if raised.factor > node.factor * (1 + 1e-12) and key not in priced:
            priced[key] = base.proven(raised)
        levelled.append(replace(raised, proven=priced[key]) if key in priced else node)
    return levelled


@dataclass(frozen=True)
class Pool:
    records: int  # Σ J_i
    lot: float  # Σ L_i: as many records a round as all nodes together
    rates: list[float]  # of the records that came from node i

    @property
    def rate(self) -> float:
        """The rate that is priced: no record is drawn more often."""
        return max(self.rates)


def pool(config: RunConfig, records: Sequence[int], pairs: Sequence[tuple[float, float]]) -> Pool:
    """The pooled records with the objective of the decentralized run.

    Weighted by size that is the plain mean over records: one rate for all. Uniform weights give every node's records
    together the same say, so a record's rate is L / (n J_i). Sizes that differ by one (an even split) count as equal.
    """
    total, lot, n = sum(records), sum(lot for _, lot in pairs), len(records)
    if config.weighting == "size" or max(records) - min(records) <= 1:
        rate, lot = config.privacy.sampling.pooled(total, lot)
        return Pool(total, lot, [rate] * n)
    if config.privacy.sampling.make_uneven([1.0]) is None:
        raise UserError(
            f"privacy.sampling.kind = {config.privacy.sampling.kind!r} cannot give nodes of different sizes equal "
            "weight in the pooled records of baseline = 'central'; use kind = 'poisson' or weighting = 'size'."
        )
    rates = [lot / (n * J) for J in records]
    if max(rates) > 1:
        raise UserError(
            f"weighting = 'uniform' would draw each record of the smallest node {max(rates):.3g} times a round in "
            "baseline = 'central'; use a smaller privacy.sampling.rate or weighting = 'size'."
        )
    return Pool(total, lot, rates)


def most_nodes(config: RunConfig) -> int:
    """On how many nodes the same unit may be: as records are dealt out, or as it is declared of persons."""
    return max(config.data.partition.most_copies(config.nodes), min(config.privacy.max_sites, config.nodes))


def why_copies(config: RunConfig) -> str:
    """How a sentence begins about the key by which the same unit is on several nodes."""
    if config.privacy.max_sites > 1:
        return f"privacy.unit.max_sites = {config.privacy.max_sites} has a person on several nodes"
    return f"data.partition.kind = {config.data.partition.kind!r} puts copies of a record on several nodes"


def _refuse_unequal(config: RunConfig, nodes: Sequence[NodePlan]) -> None:
    """Copies of a record, or the parts of a person, are priced as so many nodes that do the same."""
    if len({(node.delta, node.spends) for node in nodes}) > 1:
        raise UserError(
            f"{why_copies(config)}, which are priced together only where all have the same size, budget and sampling; "
            "give all the same (data.records: one number for all)."
        )


def _evaluation_events(config: RunConfig, base: PrivacyPlan) -> tuple[Event, ...]:
    """The release of figures on private records, behind the last draw; it costs its share of ε, of all runs and copies.

    What training may then cost is what is left: no less than the rest.
    """
    share, privacy = config.evaluation.private, config.privacy
    if share is None:
        return ()
    assert not isinstance(privacy.epsilon, list)
    assert not isinstance(privacy.delta, list)
    epsilon = share * privacy.epsilon if base.noise.adds and privacy.epsilon is not None else None
    times = privacy.runs * base.copies
    return (paid_event(base.draws, Gaussian, base.adjacency, epsilon=epsilon, delta=privacy.delta, times=times),)


def _mean_first(share: float, shape: Schedule, draws: int) -> After:
    """The shape with one more draw in front that takes this share of Σ 1/σ²: exact for full lots, else a rule."""
    rest = math.fsum(shape(k) ** -2 for k in range(draws)) if extremes(shape, draws).least else 0.0
    return After(math.sqrt((1 - share) / (share * rest)) if rest else 0.0, shape)


def _calibrate(config: RunConfig, base: PrivacyPlan, node: NodePlan) -> NodePlan:
    """The node with its noise and what that costs."""
    epsilon, given = node.epsilon, config.privacy.noise.multiplier
    node = replace(node, before=_preprocessing_events(config, base, node))
    if base.noise.adds:
        if given is not None:  # of the first round's draw
            factor = given / base.shape(base.draws_before)
            node = replace(node, factor=factor, end=_end(base, node))
        elif epsilon is None:
            raise UserError("privacy.epsilon is not set; set it, or fix the noise by privacy.noise.multiplier.")
        elif config.mode == "paper":
            factor, end = base.claim.noise(base, node.rate, epsilon, node.delta)
            node = replace(node, factor=factor, end=_end(base, node) if end is None else end)
        else:
            node = replace(node, end=_end(base, node))
            node = replace(node, factor=_proven_factor(base, node, epsilon, config.privacy.runs * base.copies))
        if epsilon is not None and given is not None:
            node = replace(node, allowance=_allowance(base, node, epsilon))
            if config.mode == "paper" and (claim := base.claimed(node, 1)).epsilon is None:
                raise UserError(
                    f"privacy.epsilon = {epsilon:g} has no formula to be checked against: {claim.reference}; leave it "
                    "out, or use mode = 'sound'."
                )
            if node.allowance < base.draws_before + base.draws_per_round:
                raise UserError(
                    f"privacy.noise.multiplier = {given:g} is too small for privacy.epsilon = {epsilon:g}: the first "
                    "round alone would cost more, and nothing would be trained; leave it out, or use a larger one."
                )
        _check_noise(config, base, node.factor)
    return replace(node, claim=base.claimed(node), proven=base.proven(node))


def _preprocessing_events(config: RunConfig, base: PrivacyPlan, node: NodePlan) -> tuple[Event, ...]:
    """Return the events of preprocessing: alone they cost their share of ε, of all runs and copies.

    What training may then cost is what all releases together leave of ε: no less than the rest.
    """
    steps, share, paid = steps_of(config.data), config.privacy.preprocessing, None
    if steps and base.noise.adds:
        assert share is not None
        if node.epsilon is None:
            raise UserError(f"privacy.preprocessing = {share:g} is a share of privacy.epsilon; set that too.")
        paid = share * node.epsilon
    times = config.privacy.runs * base.copies
    return planned_events(steps, base.adjacency, epsilon=paid, delta=node.delta, times=times)


# Where float32 is exact to its 24 bits, with a margin on both sides: its normal numbers are 1.2e-38 … 3.4e38.
LEAST_NOISE, MOST_NOISE = 1e-30, 1e30


def _check_bounds(config: RunConfig, draws: int) -> None:
    """Bounds of every draw: what rounds to 0 or ∞ is not what the ledger says.

    A clip's options keep its numbers in (1e-12, 1e12), but a schedule made of two of them can leave that: start = 1e-9
    with ratio = 1e6 ends at 1e-15. Why bounds below 1e-12 are none: the squares of a vector's entries below 2⁻⁶³ are no
    normal numbers, so a measured norm can be too short by √d · 2⁻⁶³, and a vector that short is taken for one of norm 0
    and not scaled. At C ≥ 1e-12 that is no more than C up to d = 2⁴⁰ · 70 parameters.
    """
    clip = config.privacy.clip
    least, largest = extremes(clip.schedule(draws), draws)
    if not (least >= LEAST_BOUND and largest <= MOST_BOUND):
        extreme = least if least < LEAST_BOUND else largest
        raise UserError(
            f"privacy.clip.kind = {clip.kind!r} has a bound of {extreme:.3g} in one of its draws, which float32 cannot "
            f"keep to; stay between {LEAST_BOUND:g} and {MOST_BOUND:g} in all of them."
        )


def _check_noise(config: RunConfig, base: PrivacyPlan, factor: float) -> None:
    """Noise of every draw, as with bounds. Draws ahead of the first round are on the clip of that one."""
    bound = config.privacy.clip.schedule(base.draws - base.draws_before)
    noise = extremes(lambda k: factor * base.shape(k) * bound(max(k - base.draws_before, 0)), base.draws)
    if not (noise.least >= LEAST_NOISE and noise.largest <= MOST_NOISE):
        scale = noise.least if noise.least < LEAST_NOISE else noise.largest
        raise UserError(
            f"privacy.noise would have scale {scale:.3g} in one of the draws, which float32 cannot represent; use "
            "another privacy.noise.multiplier, privacy.noise.schedule or privacy.clip."
        )


def _proven_factor(base: PrivacyPlan, node: NodePlan, epsilon: float, runs: int) -> float:
    """`runs`: so many such runs together are to meet ε; those of other nodes with the same record are no different."""
    quick = base.priced(replace(node, factor=1.0))
    target = calibrate.Target(epsilon=epsilon, delta=node.delta, adjacency=base.adjacency)
    if quick is not None:
        sampling, shapes, _ = quick
        return calibrate.common_factor(shapes * runs, target, sampling=sampling, rate=node.rate)

    def events(factor: float) -> list[Event]:
        return of_several_runs([[*base.events(replace(node, factor=factor)), *base.after]] * runs)

    return calibrate.least_scale(events, target)


def _end(base: PrivacyPlan, node: NodePlan) -> float:
    """Return the end of the noise, in units of its scale: as set, or so far out that truncating costs little."""
    if not base.noise.truncated:
        return math.inf
    if base.noise.bound is not None:
        return base.noise.bound
    numbers = base.draws * base.dimension
    share = calibrate.truncated_share(10.0 if node.epsilon is None else node.epsilon, node.delta, numbers)
    return float(magnitude(base.noise, np.array(np.inf), np.array(share)))


def _allowance(base: PrivacyPlan, node: NodePlan, epsilon: float) -> int:
    """The hard stop: how many draws stay within ε, claimed in paper mode, proven in sound mode."""
    sound = base.mode == "sound"
    quick = base.priced(node) if sound and base.copies == 1 else None
    if quick is not None:
        sampling, multipliers, lots = quick
        target = calibrate.Target(epsilon=epsilon, delta=node.delta, adjacency=base.adjacency)
        paid = calibrate.affordable(multipliers, target, sampling=sampling, rate=node.rate)
        return min(paid * lots, base.draws)

    def exceeds(draws: int) -> bool:
        spent = base.proven(replace(node, allowance=draws)) if sound else base.claimed(node, draws)
        return spent.epsilon is None or spent.epsilon > epsilon * (1 if sound else 1 + 1e-9)

    return bisect_left(range(1, base.draws + 1), True, key=exceeds)
