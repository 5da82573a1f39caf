"""Calibration: how much noise a budget takes, and how many draws it pays for, node by node.

By the paper's formula in paper mode, by the accountant in sound mode.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gossamer.accounting import calibrate
from gossamer.accounting.releases import CLIPPED_LOT, Event, Gaussian, of_several_runs
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.mechanism.clipping import After, Schedule, extremes
from gossamer.mechanism.noise import NoiseKind
from gossamer.mechanism.noise.shaped import magnitude
from gossamer.methods.claims import ClaimRule, Draws
from gossamer.options.stage import stage
from gossamer.options.types import LEAST_BOUND, MOST_BOUND
from gossamer.training.preprocess import paid_event, planned_events, steps_of
from gossamer.training.privacy import NodePlan, PrivacyPlan

# Calibrated nodes, for the life of the process: nodes, seeds and graphs of a comparison share them.
_solved: dict[tuple[Any, ...], NodePlan] = {}
# The parts of a configuration that no accountant looks at.
_NOT_PRICED = {
    "name", "seed", "device", "data", "model", "topology", "algorithm", "evaluation", "checkpoints",
}  # fmt: skip


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
    privacy = config.privacy
    base = PrivacyPlan(
        mode=config.mode,
        adjacency=privacy.adjacency,
        run=_draws_of(config, config.rounds * draws_per_round, noise, dimension),
        # Of the iterates' sensitivity, and of a norm that scales its own noise, there is a belief only.
        enforced=privacy.clip.enforced and privacy.noise.on == "gradient" and noise.without_proof is None,
        draws_per_round=draws_per_round,
        nodes=(),
        notes=tuple(notes),
        claim=claim,
        draws_before=0 if privacy.centre is None else 1,
        on=privacy.noise.on,
        observer=noise.observer,
        copies=most_nodes(config) if noise.adds else 1,
        clipped=CLIPPED_LOT if privacy.clip.of_lot else None,
        protects=privacy.protects,
    )
    stage("calibrating the noise")
    base = replace(base, after=_evaluation_events(config, base))
    epsilons, deltas = _per_node(privacy.epsilon, config.nodes), _per_node(privacy.delta, config.nodes)
    shared = (
        config.model_dump_json(exclude=_NOT_PRICED), tuple(map(type, steps_of(config.data))), base.copies, base.after,
        draws_per_round, dimension, repr(noise), repr(claim),
    )  # fmt: skip
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
    return replace(base, nodes=tuple(_levelled(base, nodes) if noise.cancels else nodes))


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
    needed = max(node.factor / node.divisor for node in nodes)
    levelled, priced = [], {}
    for node in nodes:
        raised = replace(node, factor=needed * node.divisor)
        key = (raised.spends, node.delta)
        if raised.factor > node.factor * (1 + 1e-12) and key not in priced:
            priced[key] = base.proven(raised)
        levelled.append(replace(raised, proven=priced[key]) if key in priced else node)
    return levelled


def rates_of(config: RunConfig, records: Sequence[int]) -> list[tuple[float, float]]:
    """(q_i, L_i) from the declared J_i."""
    return [config.privacy.sampling.lot_of(J, i) for i, J in enumerate(records)]


def _per_node(value: Any, nodes: int) -> list[Any]:
    return value if isinstance(value, list) else [value] * nodes


@dataclass(frozen=True)
class Pool:
    records: int  # Σ J_i
    lot: float  # Σ L_i: as many records a round as all nodes together
    rates: list[float]  # of the records that came from node i

    @property
    def rate(self) -> float:
        """What is priced: no record is drawn more often."""
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


def _refuse_unequal(config: RunConfig, nodes: Sequence[NodePlan]) -> None:
    """Copies of a record, or the parts of a person, are priced as so many nodes that do the same."""
    if len({(node.delta, node.spends) for node in nodes}) > 1:
        reason = (
            f"privacy.unit.max_sites = {config.privacy.max_sites} has a person"
            if config.privacy.max_sites > 1
            else "data.partition.kind = 'sampled' puts copies of a record"
        )
        raise UserError(
            f"{reason} on several nodes, which are priced together only where all nodes have the same size, budget and "
            "sampling; give all the same (data.records: one number for all)."
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
    return (
        paid_event(base.draws, Gaussian, base.adjacency, epsilon=epsilon, delta=privacy.delta, times=times),
    )


def _draws_of(config: RunConfig, draws: int, noise: NoiseKind, dimension: int) -> Draws:
    """The draws of a run: with a private mean, one more in front."""
    privacy, schedule = config.privacy, config.privacy.noise.schedule
    shape = schedule.shape(draws, privacy.clip.schedule(draws))
    if privacy.centre is not None:
        shape, draws = _mean_first(privacy.centre, shape, draws), draws + 1
    return Draws(draws, shape, noise, privacy.sampling, schedule.budget_ratio, dimension)


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
            raise UserError(
                "privacy.epsilon is not set; set it, or set privacy.noise.multiplier to fix the noise yourself."
            )
        elif config.mode == "paper":
            factor, end = base.claim.noise(base.run, node.rate, epsilon, node.delta)
            node = replace(node, factor=factor, end=_end(base, node) if end is None else end)
        else:
            node = replace(node, end=_end(base, node))
            node = replace(
                node, factor=_proven_factor(base, node, epsilon, config.privacy.runs * base.copies)
            )
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
        _check_float32_range(config, base, node.factor)
    return replace(node, claim=base.claimed(node), proven=base.proven(node))


def _preprocessing_events(config: RunConfig, base: PrivacyPlan, node: NodePlan) -> tuple[Event, ...]:
    """What preprocesses the records: alone it costs its share of ε, of all runs and copies.

    What training may then cost is what all releases together leave of ε: no less than the rest.
    """
    steps, share, paid = steps_of(config.data), config.privacy.preprocessing, None
    if steps and base.noise.adds:
        assert share is not None
        if node.epsilon is None:
            raise UserError(
                f"privacy.preprocessing = {share:g} is a share of privacy.epsilon, which is not set; set it."
            )
        paid = share * node.epsilon
    times = config.privacy.runs * base.copies
    return planned_events(steps, base.adjacency, epsilon=paid, delta=node.delta, times=times)


# Where float32 is exact to its 24 bits, with a margin on both sides: its normal numbers are 1.2e-38 … 3.4e38.
LEAST_NOISE, MOST_NOISE = 1e-30, 1e30


def _check_float32_range(config: RunConfig, base: PrivacyPlan, factor: float) -> None:
    """Bounds and noise of every draw: what rounds to 0 or ∞ is not what the ledger says.

    A clip's options keep its numbers in (1e-12, 1e12), but a schedule made of two of them can leave that: start = 1e-9
    with ratio = 1e6 ends at 1e-15. Why bounds below 1e-12 are none: the squares of a vector's entries below 2⁻⁶³ are no
    normal numbers, so a measured norm can be too short by √d · 2⁻⁶³, and a vector that short is taken for one of norm 0
    and not scaled. At C ≥ 1e-12 that is no more than C up to d = 2⁴⁰ · 70 parameters.
    """
    privacy, draws = config.privacy, base.draws - base.draws_before
    bound = privacy.clip.schedule(draws)
    least, largest = extremes(bound, draws)
    if not (least >= LEAST_BOUND and largest <= MOST_BOUND):
        extreme = least if least < LEAST_BOUND else largest
        raise UserError(
            f"privacy.clip.kind = {privacy.clip.kind!r} has a bound of {extreme:.3g} in one of its draws, which "
            f"float32 cannot keep to; stay between {LEAST_BOUND:g} and {MOST_BOUND:g} in all of them."
        )
    # Draws ahead of the first round are on the clip of that one.
    noise = extremes(lambda k: factor * base.shape(k) * bound(max(k - base.draws_before, 0)), base.draws)
    if not (noise.least >= LEAST_NOISE and noise.largest <= MOST_NOISE):
        scale = noise.least if noise.least < LEAST_NOISE else noise.largest
        raise UserError(
            f"privacy.noise would have scale {scale:.3g} in one of the draws, which float32 cannot represent; "
            "use another privacy.noise.multiplier, privacy.noise.schedule or privacy.clip."
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
    """Where the noise ends, in units of its scale: as asked, or so far out that truncating costs next to nothing."""
    if not base.noise.truncated:
        return math.inf
    if base.noise.bound is not None:
        return base.noise.bound
    numbers = base.draws * base.run.dimension
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
