"""From budgets to noise: how much noise a budget takes, and how many draws it pays for, node by node.

By the paper's formula in paper mode, by the accountant in sound mode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gossamer.accounting import calibrate
from gossamer.accounting.gaussian import gdp_mu
from gossamer.accounting.releases import CLIPPED_LOT, Event, Gaussian, of_several_runs
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.mechanism.clipping import After, Schedule, extremes
from gossamer.mechanism.noise import NoiseKind
from gossamer.mechanism.noise.shaped import magnitude
from gossamer.mechanism.summaries import release_of
from gossamer.methods.claims import ClaimRule, Draws
from gossamer.options.stage import stage
from gossamer.options.types import LEAST_BOUND, MOST_BOUND
from gossamer.training.preprocess import planned_events, steps_of
from gossamer.training.privacy import NodePlan, PrivacyPlan

# What calibration found for a node, kept while the process lives: nodes, seeds and graphs of a comparison share it.
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
        run=run_of(config, config.rounds * draws_per_round, noise, dimension),
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
    base = replace(base, after=planned_evaluation(config, base.noise.adds, base.draws, base.copies))
    epsilons, deltas = _per_node(privacy.epsilon, config.nodes), _per_node(privacy.delta, config.nodes)
    same = config.model_dump_json(exclude=_NOT_PRICED)
    nodes = []
    for J, (rate, lot), epsilon, delta in zip(records, rates, epsilons, deltas, strict=True):
        steps = tuple(map(type, steps_of(config.data)))
        spent = (base.copies, steps, base.after, draws_per_round, rate, epsilon, delta, dimension)
        key = (same, spent, repr(noise), repr(claim))
        if key not in _solved:
            if len(_solved) >= 1000:
                _solved.clear()
            _solved[key] = plan_node(config, base, J, rate, lot, epsilon, delta)
        weight = J * len(records) / sum(records) if config.weighting == "size" else 1.0
        nodes.append(replace(_solved[key], records=J, lot=lot, weight=weight))
    if base.copies > 1:
        refuse_unlike(config, nodes)
    return replace(base, nodes=tuple(_levelled(base, nodes) if noise.cancels else nodes))


def _levelled(base: PrivacyPlan, nodes: Sequence[NodePlan]) -> list[NodePlan]:
    """Masks cancel if all nodes add the same noise to their means: as much as the node that needs most.

    With strong masks this costs nothing: what hides a record is then the noise of all means together, whoever adds it.
    """
    if len({node.allowance for node in nodes}) > 1:
        fewest, most = min(node.allowance for node in nodes), max(node.allowance for node in nodes)
        raise UserError(
            f"privacy.epsilon pays for {fewest} draws of one node and {most} of another, and noise that cancels needs "
            "all nodes in every draw; give all the same privacy.epsilon, or leave privacy.noise.multiplier out."
        )
    most_needed = max(node.factor / node.divisor for node in nodes)
    levelled, priced = [], {}
    for node in nodes:
        factor = most_needed * node.divisor
        key = (factor, node.rate, node.delta, node.end, node.before)
        if factor > node.factor * (1 + 1e-12) and key not in priced:
            priced[key] = base.proven(factor, node.rate, node.delta, node.allowance, node.end, node.before)
        levelled.append(replace(node, factor=factor, proven=priced[key]) if key in priced else node)
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


def refuse_unlike(config: RunConfig, nodes: Sequence[NodePlan]) -> None:
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


def planned_evaluation(config: RunConfig, noised: bool, draws: int, copies: int) -> tuple[Event, ...]:
    """Of a run of so many draws, whose records lie on so many nodes each."""
    privacy = config.privacy
    epsilon, delta = privacy.epsilon if noised else None, privacy.delta
    if config.evaluation.private is None:
        return ()
    assert not isinstance(epsilon, list)
    assert not isinstance(delta, list)
    times = privacy.runs * copies
    share, adjacency = config.evaluation.private, privacy.adjacency
    return evaluation_events(share, adjacency, step=draws, epsilon=epsilon, delta=delta, times=times)


def evaluation_events(
    share: float, adjacency: str, *, step: int, epsilon: float | None, delta: float, times: int
) -> tuple[Event, ...]:
    """Alone, so many times, it costs the share of ε; what training may then cost is what is left: no less than the
    rest. `epsilon`: None where nothing has noise."""
    multiplier = 0.0
    if epsilon is not None:
        shift = 2 if adjacency == "replace-one" else 1
        multiplier = shift * math.sqrt(times) / gdp_mu(share * epsilon, delta) * (1 + 1e-9)
    return (Event(step, release_of(Gaussian, multiplier, adjacency)),)


def run_of(config: RunConfig, draws: int, noise: NoiseKind, dimension: int) -> Draws:
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


def plan_node(
    config: RunConfig, base: PrivacyPlan, J: int, rate: float, lot: float, epsilon: float | None, delta: float
) -> NodePlan:
    """One node's noise and what it costs."""
    factor, allowance, end = 0.0, base.draws, math.inf
    before = _before(config, base, epsilon, delta)
    given = config.privacy.noise.multiplier
    if base.noise.adds:
        if given is not None:
            factor, end = given / _first(base), _end(base, epsilon, delta)
        elif epsilon is None:
            raise UserError(
                "privacy.epsilon is not set; set it, or set privacy.noise.multiplier to fix the noise yourself."
            )
        else:
            factor, end = _noise(config, base, rate, epsilon, delta, before)
        if epsilon is not None and given is not None:
            allowance = _allowance(config.mode, base, factor, rate, epsilon, delta, end, before)
            if config.mode == "paper" and base.claimed(factor, rate, delta, 1).epsilon is None:
                raise UserError(
                    f"privacy.epsilon = {epsilon:g} has no formula to be held to: "
                    f"{base.claimed(factor, rate, delta, 1).reference}; leave it out, or use mode = 'sound'."
                )
            if allowance < base.draws_before + base.draws_per_round:
                raise UserError(
                    f"privacy.noise.multiplier = {given:g} is too small for privacy.epsilon = {epsilon:g}: the first "
                    "round alone would cost more, and nothing would be trained; leave it out, or use a larger one."
                )
        _refuse_what_float32_cannot_say(config, base, factor)
    return NodePlan(
        records=J,
        rate=rate,
        lot=lot,
        epsilon=epsilon,
        delta=delta,
        factor=factor,
        allowance=allowance,
        claim=base.claimed(factor, rate, delta, allowance),
        proven=base.proven(factor, rate, delta, allowance, end, before),
        end=end,
        before=before,
    )


def _before(config: RunConfig, base: PrivacyPlan, epsilon: float | None, delta: float) -> tuple[Event, ...]:
    """What preprocesses the records: alone it costs its share of ε, of all runs and copies.

    What training may then cost is what all releases together leave of ε: no less than the rest.
    """
    steps, share = steps_of(config.data), config.privacy.preprocessing
    if not steps:
        return ()
    paid = None
    if base.noise.adds:
        assert share is not None
        if epsilon is None:
            raise UserError(
                f"privacy.preprocessing = {share:g} is a share of privacy.epsilon, which is not set; set it."
            )
        paid = share * epsilon
    return planned_events(
        steps, base.adjacency, epsilon=paid, delta=delta, times=config.privacy.runs * base.copies
    )


# Where float32 is exact to its 24 bits, with a margin on both sides: its normal numbers are 1.2e-38 … 3.4e38.
LEAST_NOISE, MOST_NOISE = 1e-30, 1e30


def _refuse_what_float32_cannot_say(config: RunConfig, base: PrivacyPlan, factor: float) -> None:
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
    noise = extremes(_Noise(factor, base.shape, bound, base.draws_before), base.draws)
    if not (noise.least >= LEAST_NOISE and noise.largest <= MOST_NOISE):
        scale = noise.least if noise.least < LEAST_NOISE else noise.largest
        raise UserError(
            f"privacy.noise would have scale {scale:.3g} in one of the draws, which float32 cannot say; "
            "use another privacy.noise.multiplier, privacy.noise.schedule or privacy.clip."
        )


@dataclass(frozen=True)
class _Noise:
    """σ_k C_k."""

    factor: float
    shape: Schedule
    bound: Schedule
    before: int  # draws ahead of the first round, on the clip of that one

    def __call__(self, k: int) -> float:
        return self.factor * self.shape(k) * self.bound(max(k - self.before, 0))


def _first(base: PrivacyPlan) -> float:
    """What the multiplier asked for is of: the first round's draw."""
    return base.shape(base.draws_before)


def _noise(
    config: RunConfig,
    base: PrivacyPlan,
    rate: float,
    epsilon: float,
    delta: float,
    before: tuple[Event, ...],
) -> tuple[float, float]:
    """(factor, end) that meet ε: by the paper's formula in paper mode, by the accountant in sound mode."""
    if config.mode == "sound":
        end = _end(base, epsilon, delta)
        runs = config.privacy.runs * base.copies
        return _proven_factor(base, rate, epsilon, delta, end, runs, before), end
    factor, given_end = base.claim.noise(base.run, rate, epsilon, delta)
    return factor, _end(base, epsilon, delta) if given_end is None else given_end


def _proven_factor(
    base: PrivacyPlan,
    rate: float,
    epsilon: float,
    delta: float,
    end: float,
    runs: int,
    before: tuple[Event, ...],
) -> float:
    """`runs`: so many such runs together are to meet ε; those of other nodes with the same record are no different."""
    quick = base.priced(_multipliers(base, 1.0, rate, end), rate, before)
    if quick is None:
        return float(
            calibrate.least_scale(
                lambda factor: of_several_runs(
                    [[*base.events(factor, rate, base.draws, end, before), *base.after]] * runs
                ),
                adjacency=base.adjacency,
                epsilon=epsilon,
                delta=delta,
            )
        )
    sampling, shapes, _ = quick
    return float(
        calibrate.common_factor(
            shapes * runs,
            sampling=sampling,
            rate=rate,
            adjacency=base.adjacency,
            epsilon=epsilon,
            delta=delta,
        )
    )


def _multipliers(base: PrivacyPlan, factor: float, rate: float, end: float) -> list[float]:
    """Of the releases as they will be written: of correlated noise less counts than is added."""
    return [event.release.noise_multiplier for event in base.events(factor, rate, base.draws, end)]


def _end(base: PrivacyPlan, epsilon: float | None, delta: float) -> float:
    """Where the noise ends, in units of its scale: as asked, or so far out that truncating costs next to nothing."""
    if not base.noise.truncated:
        return math.inf
    if base.noise.bound is not None:
        return base.noise.bound
    numbers = base.draws * base.run.dimension
    share = calibrate.truncated_share(10.0 if epsilon is None else epsilon, delta, numbers)
    return float(magnitude(base.noise, np.array(np.inf), np.array(share)))


def _allowance(
    mode: str,
    base: PrivacyPlan,
    factor: float,
    rate: float,
    epsilon: float,
    delta: float,
    end: float,
    before: tuple[Event, ...],
) -> int:
    """The hard stop: how many draws stay within ε, claimed in paper mode, proven in sound mode."""
    quick = None
    if mode == "sound" and base.copies == 1:
        quick = base.priced(_multipliers(base, factor, rate, end), rate, before)
    if quick is not None:
        sampling, multipliers, lots = quick
        paid = calibrate.affordable(
            multipliers,
            sampling=sampling,
            rate=rate,
            adjacency=base.adjacency,
            epsilon=epsilon,
            delta=delta,
        )
        return min(int(paid) * lots, base.draws)

    def spent(draws: int) -> float | None:
        if mode == "sound":
            return base.proven(factor, rate, delta, draws, end, before).epsilon
        return base.claimed(factor, rate, delta, draws).epsilon

    low, high = 0, base.draws
    while low < high:
        middle = (low + high + 1) // 2
        figure: Any = spent(middle)
        fits = figure is not None and figure <= epsilon * (1 if mode == "sound" else 1 + 1e-9)
        low, high = (middle, high) if fits else (low, middle - 1)
    return low
