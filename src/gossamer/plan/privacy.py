"""What a run will cost, before it starts: public constants, noise, claimed and proven ε of every node.

Everything here follows from the configuration and the declared record counts alone; no record is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gossamer.accounting import calibrate, claimed
from gossamer.accounting.claimed import Claim
from gossamer.accounting.composer import SMALLEST_DELTA
from gossamer.accounting.noise_comparison import truncated_share
from gossamer.accounting.proven import Proven, curve, proven
from gossamer.accounting.releases import Event, of_several_runs
from gossamer.config.schema import Full, Poisson, RunConfig, Single, TruncatedGeneralised
from gossamer.errors import UserError
from gossamer.mechanism.noise.shaped import family_parts, magnitude
from gossamer.mechanism.schedules import After, Constant, Geometric, Ratio, Stretches
from gossamer.methods.without_replacement.lemma4 import Lemma4
from gossamer.methods.without_replacement.lemma4 import notes as collaboration_notes

Shape = Callable[[int], float]
Claimer = Callable[[float, float, float, int], Claim]
SAMPLER_KIND = {
    "poisson": "poisson",
    "fixed-size": "fixed-size",
    "one-pass": "one-pass",
    "single": "fixed-size",
    "full": "full",
}


@dataclass(frozen=True)
class Facts:
    """What else is public about a run and moves its figures: noises that are not Gaussian and DP-dKM look at it."""

    dimension: int = 1
    relaxations: tuple[float, ...] = ()  # α_k
    gamma: float = 1.0
    mixing: float = 0.0  # λ, the second largest eigenvalue of W in size
    records: int = 1  # N·M
    lemma4: Lemma4 | None = None  # of methods with a shared model


@dataclass(frozen=True)
class NodePlan:
    """One node's public constants and what its releases cost."""

    records: int  # declared J
    rate: float  # sampling rate q
    lot: float  # divisor L
    epsilon: float | None  # what was asked for
    delta: float
    factor: float  # noise multiplier of draw k = factor · shape(k)
    allowance: int  # draws the budget pays for
    claim: Claim
    proven: Proven
    weight: float = 1.0  # the node's share in the objective, 1 on average
    bound: float = math.inf  # where truncated noise ends, in units of its scale


@dataclass(frozen=True)
class PrivacyPlan:
    mode: str
    adjacency: str
    sampling: str
    mechanism: str
    enforced: bool
    draws: int
    draws_per_round: int
    shape: Shape
    nodes: tuple[NodePlan, ...]
    notes: tuple[str, ...]
    claimer: Claimer  # (factor, rate, δ, draws) → the paper's figure
    facts: Facts
    family: float = 2.0  # the shape b of the noise's density exp(−(|z|/s)^b)
    on: str = "gradient"  # what carries the noise: the answers about records, or the messages
    draws_before: int = 0  # of the first round: the mean of the records, where it is released

    @cached_property
    def worst(self) -> NodePlan:
        return max(self.nodes, key=lambda node: node.proven.epsilon)

    def figures(self) -> dict[str, Any]:
        """The keys that `run`, `plan` and `audit` share."""
        claims = [node.claim.epsilon for node in self.nodes]
        known = [c for c in claims if c is not None]
        proofs = [node.proven.epsilon for node in self.nodes]
        because = self.worst.proven.because
        epsilon_claimed = max(known) if known else None
        return {
            "epsilon_claimed": epsilon_claimed,
            "epsilon_proven": _finite(max(proofs)),
            "epsilon_proven_lower": self.worst.proven.lower,
            "epsilon_audited": None,
            "violation": None,
            "epsilon_by_node": [
                {"claimed": node.claim.epsilon, "proven": _finite(node.proven.epsilon), "audited": None}
                for node in self.nodes
            ],
            "not_proven_because": because,
            "claim_reference": self.nodes[0].claim.reference,
            "claim_flags": sorted({flag for node in self.nodes for flag in node.claim.flags}),
            "delta": max(node.delta for node in self.nodes),
            "adjacency": self.adjacency,
        }

    def epsilon_after(self, rounds: list[int]) -> list[tuple[float | None, float | None]]:
        """(claimed, proven) of the worst node after so many rounds, for metrics and plots."""
        node = self.worst
        at = [min(self.draws_before + r * self.draws_per_round, node.allowance) for r in rounds]
        if math.isinf(node.proven.epsilon):
            proofs: list[float | None] = [None] * len(at)
        else:
            events = _events(self, node.factor, node.rate, max(at), node.bound)
            proofs = [_finite(e) for e in curve(events, at, node.delta, self.adjacency)]
        return [(self.claim_after(node, k), p) for k, p in zip(at, proofs, strict=True)]

    def claim_after(self, node: NodePlan, draws: int) -> float | None:
        return self.claimer(node.factor, node.rate, node.delta, draws).epsilon if draws else 0.0


# What calibration found for a node, kept while the process lives: nodes, seeds and graphs of a comparison share it.
_solved: dict[tuple[Any, ...], NodePlan] = {}
# The parts of a configuration that no accountant looks at.
_NOT_PRICED = {
    "name", "seed", "device", "data", "model", "topology", "algorithm", "evaluation", "checkpoints",
}  # fmt: skip


def plan_privacy(
    config: RunConfig,
    records: list[int],
    draws_per_round: int,
    rates: list[tuple[float, float]] | None = None,
    facts: Facts | None = None,
) -> PrivacyPlan:
    """Resolve mode, budgets and schedules into numbers, one group of equal nodes at a time.

    `rates` are (q_i, L_i) where they are not those of the configuration.
    """
    draws = config.rounds * draws_per_round
    mechanism, shape, enforced = _shape(config, draws)
    if config.privacy.centre is not None:
        shape, draws = _mean_first(config.privacy.centre, shape, draws), draws + 1
    privacy = config.privacy
    facts = replace(facts or Facts(), records=sum(records))
    mechanism, family = shaped(config, mechanism)
    claimer = _claimer(config, shape, mechanism, facts)
    base = PrivacyPlan(
        mode=config.mode,
        adjacency=privacy.adjacency,
        sampling=SAMPLER_KIND[privacy.sampling.kind],
        mechanism=mechanism,
        enforced=enforced,
        draws=draws,
        draws_per_round=draws_per_round,
        shape=shape,
        nodes=(),
        notes=(),
        claimer=claimer,
        draws_before=0 if config.privacy.centre is None else 1,
        facts=facts,
        family=family,
        on=privacy.noise.on,
    )
    _refuse_unprovable(config, mechanism, enforced)
    rates = rates or rates_of(config, records)
    epsilons, deltas = _per_node(privacy.epsilon, config.nodes), _per_node(privacy.delta, config.nodes)
    same = config.model_dump_json(exclude=_NOT_PRICED)
    nodes = []
    for J, (rate, lot), epsilon, delta in zip(records, rates, epsilons, deltas, strict=True):
        key = (same, draws_per_round, rate, epsilon, delta, facts)
        if key not in _solved:
            if len(_solved) >= 1000:
                _solved.clear()
            _solved[key] = _plan_node(config, base, J, rate, lot, epsilon, delta)
        weight = J * len(records) / sum(records) if config.weighting == "size" else 1.0
        nodes.append(replace(_solved[key], records=J, lot=lot, weight=weight))
    return replace(base, nodes=tuple(nodes), notes=_notes(config))


def _plan_node(
    config: RunConfig, base: PrivacyPlan, J: int, rate: float, lot: float, epsilon: float | None, delta: float
) -> NodePlan:
    if rate < 1 and base.sampling != "one-pass" and delta < SMALLEST_DELTA:
        raise UserError(
            f"privacy.delta = {delta:g} is below {SMALLEST_DELTA:g}, where rounding leaves nothing to prove of sampled "
            "releases; use a larger one, or privacy.sampling.kind = 'full'."
        )
    draws, shape = base.draws, base.shape
    factor, allowance, bound = 0.0, draws, math.inf
    given = config.privacy.noise.multiplier
    if base.mechanism != "none":
        if given is not None:
            factor = given / (1.0 if base.mechanism == "own-norm-gaussian" else shape(base.draws_before))
            bound = truncation(config, base, epsilon, delta)
        elif epsilon is None:
            raise UserError(
                "privacy.epsilon is not set; set it, or set privacy.noise.multiplier to fix the noise yourself."
            )
        elif config.privacy.claim == "dp-dkm" and config.mode == "paper":
            factor, bound = _dkm_noise(config, base, epsilon, delta)
        else:
            bound = truncation(config, base, epsilon, delta)
            factor = _factor(config, base, rate, epsilon, delta, bound)
        if epsilon is not None and given is not None:
            allowance = _allowance(config, base, factor, rate, epsilon, delta, bound)
    events = _events(base, factor, rate, allowance, bound)
    return NodePlan(
        records=J,
        rate=rate,
        lot=lot,
        epsilon=epsilon,
        delta=delta,
        factor=factor,
        allowance=allowance,
        claim=base.claimer(factor, rate, delta, allowance),
        proven=proven(events, delta, base.adjacency),
        bound=bound,
    )


def _factor(
    config: RunConfig, base: PrivacyPlan, rate: float, epsilon: float, delta: float, bound: float
) -> float:
    """The noise that meets ε: by the paper's formula in paper mode, by the accountant in sound mode."""
    draws, shape = base.draws, base.shape
    if config.mode == "sound":
        return _proven_factor(base, rate, epsilon, delta, bound, config.privacy.runs)
    claim = config.privacy.claim
    if claim == "lemma4" and base.facts.lemma4 is not None:
        return base.facts.lemma4.multiplier(epsilon, delta, visits(base.sampling, rate, draws))
    if claim == "gdp-clt":
        schedule = config.privacy.noise.schedule
        ratio = schedule.ratio if schedule.kind == "growing-budget" else 1.0
        return 1 / claimed.initial_budget(claimed.gdp_mu(epsilon, delta), rate, draws, ratio)
    if claim == "gdp-general":
        shapes = [shape(k) for k in range(draws)]
        return claimed.general_scale([1.0] * draws, shapes, rate, claimed.gdp_mu(epsilon, delta))[0]
    if claim == "adad2p":
        return claimed.adad2p_sigma(epsilon, draws, 1 / rate, delta)
    if claim == "rdp":
        return claimed.rdp_noise_multiplier(epsilon, rate, draws, delta)
    raise UserError(
        f"algorithm.kind = {config.algorithm.kind!r} has no formula of a paper that turns privacy.epsilon into noise; "
        'set privacy.noise.multiplier or mode = "sound".'
    )


def _proven_factor(
    base: PrivacyPlan, rate: float, epsilon: float, delta: float, bound: float, runs: int
) -> float:
    """`runs`: so many such runs together are to meet ε."""
    if base.mechanism != "gaussian":
        return float(
            calibrate.least_scale(
                lambda factor: of_several_runs([_events(base, factor, rate, base.draws, bound)] * runs),
                adjacency=base.adjacency,
                epsilon=epsilon,
                delta=delta,
            )
        )
    shapes, sampling = [base.shape(k) for k in range(base.draws)], base.sampling
    if sampling == "one-pass":  # a pass costs its worst lot, and passes compose
        sampling, shapes = "full", [min(lots) for lots in by_pass(shapes, rate)]
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


def shaped(config: RunConfig, mechanism: str) -> tuple[str, float]:
    """(the mechanism with the family of noise asked for, its shape b)."""
    family = config.privacy.noise.family
    if mechanism != "gaussian" or family.kind == "gaussian":
        return mechanism, 2.0
    if isinstance(family, TruncatedGeneralised):
        return "generalised-gaussian", family.shape
    return family.kind, claimed.KM_FAMILIES[family.kind]


def truncation(config: RunConfig, base: PrivacyPlan, epsilon: float | None, delta: float) -> float:
    """Where the noise ends, in units of its scale: as asked, or so far out that truncating costs next to nothing."""
    if not base.mechanism.startswith(("truncated", "generalised")):
        return math.inf
    asked: float | None = getattr(config.privacy.noise.family, "bound", None)
    if asked is not None:
        return asked
    share = truncated_share(10.0 if epsilon is None else epsilon, delta, base.draws * base.facts.dimension)
    return float(magnitude(base.mechanism, base.family, np.array(np.inf), np.array(share)))


def _dkm_noise(config: RunConfig, base: PrivacyPlan, epsilon: float, delta: float) -> tuple[float, float]:
    """(σ in units of the clip's bound, A/σ) by Theorem 1 and the paper's calibrations; B is γ times the bound."""
    unit = dkm_sensitivity(base.facts, base.draws)
    sigma, bound = claimed.km_noise(base.mechanism, epsilon, delta, unit, base.family)
    return sigma, bound / sigma


def dkm_sensitivity(facts: Facts, draws: int) -> float:
    """Theorem 1's Δ_K for a residual bound B = γ: what one record moves, in units of the clip's bound."""
    relaxations = facts.relaxations[:draws]
    return claimed.km_sensitivity(facts.gamma, relaxations, facts.records, 1, facts.mixing)[0]


def _allowance(
    config: RunConfig,
    base: PrivacyPlan,
    factor: float,
    rate: float,
    epsilon: float,
    delta: float,
    bound: float,
) -> int:
    """The hard stop: how many draws stay within ε, claimed in paper mode, proven in sound mode."""
    if config.mode == "sound" and base.mechanism == "gaussian":
        multipliers = [factor * base.shape(k) for k in range(base.draws)]
        sampling, turns = base.sampling, 1
        if sampling == "one-pass":
            sampling, turns = "full", turns_in(rate)
            multipliers = [min(lots) for lots in by_pass(multipliers, rate)]
        paid = calibrate.affordable(
            multipliers,
            sampling=sampling,
            rate=rate,
            adjacency=base.adjacency,
            epsilon=epsilon,
            delta=delta,
        )
        return min(int(paid) * turns, base.draws)

    def spent(draws: int) -> float | None:
        if config.mode == "sound":
            return proven(_events(base, factor, rate, draws, bound), delta, base.adjacency).epsilon
        return base.claimer(factor, rate, delta, draws).epsilon

    low, high = 0, base.draws
    while low < high:
        middle = (low + high + 1) // 2
        figure = spent(middle)
        fits = figure is not None and figure <= epsilon * (1 if config.mode == "sound" else 1 + 1e-9)
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _shape(config: RunConfig, draws: int) -> tuple[str, Shape, bool]:
    """(mechanism, shape of the noise multipliers, is the clip enforced)."""
    clip, schedule = config.privacy.clip, config.privacy.noise.schedule
    enforced = clip.kind not in ("none", "assumed")
    if schedule.kind == "none":
        return "none", Constant(0.0), enforced
    if config.privacy.noise.on == "iterate":
        return "gaussian", Constant(1.0), False  # of the iterates' sensitivity the paper has a belief only
    if schedule.kind == "own-norm":
        return "own-norm-gaussian", Constant(1.0), False
    if schedule.kind == "growing-budget":
        return "gaussian", Geometric(1.0, 1 / schedule.ratio, draws), enforced
    if schedule.kind == "sequence":
        # The values are noise levels σ̃_k; the multiplier is σ̃_k / C_k.
        return "gaussian", Ratio(Stretches(schedule.values, draws), clip_schedule(config, draws)), enforced
    return "gaussian", Constant(1.0), enforced


def _mean_first(share: float, shape: Shape, draws: int) -> After:
    """The shape with one more draw in front that takes this share of Σ 1/σ²: exact for full lots, else a rule."""
    rest = math.fsum(shape(k) ** -2 for k in range(draws)) if shape(0) else 0.0
    return After(math.sqrt((1 - share) / (share * rest)) if rest else 0.0, shape)


def clip_schedule(config: RunConfig, draws: int) -> Constant | Geometric | Stretches:
    """C_k as a function of the draw; 1 where the clip has no sequence of its own."""
    clip = config.privacy.clip
    if clip.kind == "constant":
        return Constant(clip.bound)
    if clip.kind == "decaying":
        return Geometric(clip.start, 1 / clip.ratio, draws)
    if clip.kind == "sequence":
        return Stretches(clip.values, draws)
    return Constant(1.0)


def turns_in(rate: float) -> int:
    """Lots in a pass: ⌈J / L⌉."""
    return math.ceil(1 / rate - 1e-9)


def by_pass(values: list[float], rate: float) -> list[list[float]]:
    turns = turns_in(rate)
    return [values[start : start + turns] for start in range(0, len(values), turns)]


def visits(sampling: str, rate: float, draws: int) -> float:
    """How often a record is looked at: exactly, or on average (once at least)."""
    return float(-(-draws // turns_in(rate))) if sampling == "one-pass" else max(1.0, draws * rate)


def _claimer(config: RunConfig, shape: Shape, mechanism: str, facts: Facts) -> Claimer:
    claim = config.privacy.claim

    def compute(factor: float, rate: float, delta: float, draws: int) -> Claim:
        if draws == 0:
            return Claim(0.0, "nothing was released")
        others = mechanism not in ("gaussian", "own-norm-gaussian") and claim != "dp-dkm"
        if claim == "none" or factor == 0.0 or others:
            return Claim(None, "no paper claims an ε for this mechanism", ())
        if facts.lemma4 is not None and claim == "lemma4":
            kind = SAMPLER_KIND[config.privacy.sampling.kind]
            return facts.lemma4.claim(factor * shape(0), delta, visits(kind, rate, draws))
        return of_others(factor, rate, delta, draws)

    def of_others(factor: float, rate: float, delta: float, draws: int) -> Claim:
        if claim in ("gdp-clt", "gdp-general"):
            return claimed.dyn_d2p([1 / (factor * shape(k)) for k in range(draws)], rate, delta)
        if claim == "dp-dkm":
            return claimed.km(
                mechanism, factor, delta, dkm_sensitivity(facts, draws), shaped(config, "gaussian")[1]
            )
        if claim == "rdp":
            return claimed.rdp_sampled_gaussian(factor * shape(0), rate, draws, delta)
        return claimed.adad2p(factor, draws, 1 / rate, delta)

    return compute


def _refuse_pieces(config: RunConfig) -> None:
    """A shared budget and a private mean, where they do not fit."""
    if config.privacy.runs > 1 and (config.mode == "paper" or config.privacy.noise.multiplier is not None):
        raise UserError(
            f"privacy.runs = {config.privacy.runs} shares a proven budget; leave out privacy.noise.multiplier and "
            'use mode = "sound".'
        )
    if config.privacy.centre is not None and config.privacy.clip.kind not in ("constant", "none"):
        raise UserError(
            f"privacy.centre = {config.privacy.centre:g} needs a clip that stays the same, and privacy.clip.kind = "
            f"{config.privacy.clip.kind!r} does not; use 'constant'."
        )


def _refuse_unprovable(config: RunConfig, mechanism: str, enforced: bool) -> None:
    """In sound mode a run with noise must have a proof."""
    _refuse_pieces(config)
    if config.privacy.noise.arithmetic == "lattice" and (
        mechanism != "gaussian" or not enforced or config.privacy.clip.kind == "quantile"
    ):
        raise UserError(
            "privacy.noise.arithmetic = 'lattice' needs Gaussian noise and a clip that is enforced and follows no data "
            "(constant, decaying, sequence or normalised); use 'float' here."
        )
    noise, clip = config.privacy.noise, config.privacy.clip
    if config.algorithm.kind != "dp-dkm" and (noise.on == "iterate" or config.privacy.claim == "dp-dkm"):
        raise UserError(
            f"privacy.noise.on = {noise.on!r} with privacy.claim = {config.privacy.claim!r} is for dp-dkm; "
            f"algorithm.kind = {config.algorithm.kind!r} puts noise on the gradient, with a claim of its own."
        )
    if mechanism not in ("gaussian", "none", "own-norm-gaussian") and (
        clip.kind == "quantile" or noise.arithmetic == "lattice"
    ):
        raise UserError(
            f"privacy.noise.family.kind = {noise.family.kind!r} does not go with privacy.clip.kind = 'quantile' or "
            "privacy.noise.arithmetic = 'lattice', which are for Gaussian noise."
        )
    if config.mode == "paper" and noise.family.kind != "gaussian" and config.algorithm.kind != "dp-dkm":
        raise UserError(
            f"privacy.noise.family.kind = {noise.family.kind!r} is no noise of this method's paper; use 'gaussian', or "
            'mode = "sound".'
        )
    if (
        getattr(config.algorithm, "resolvent", None) == "node"
        and noise.on == "gradient"
        and mechanism != "none"
    ):
        raise UserError(
            "algorithm.resolvent = 'node' mixes all records of a node into one vector, so clipping it bounds no "
            "record's influence; use 'record'."
        )
    if config.mode == "paper" or mechanism == "none":
        return
    if noise.on == "iterate":
        raise UserError(
            "privacy.noise.on = 'iterate' has no proof (the operator is evaluated at iterates that were never released "
            "and the last one is given out without noise); use 'gradient', or mode = \"paper\" to study it."
        )
    if mechanism == "own-norm-gaussian":
        raise UserError(
            "privacy.noise.schedule.kind = 'own-norm' has no proof (the noise scale itself reveals the record); "
            "use mode = \"paper\" to study it, or privacy.clip.kind = 'quantile' with constant noise."
        )
    if config.data.partition.kind == "sampled":
        raise UserError(
            "data.partition.kind = 'sampled' puts copies of a record on several nodes, and the ε of one node does not "
            "cover the others; use 'even' or 'sizes', or mode = \"paper\" to study it."
        )
    if config.data.pca is not None and config.data.pca_from in ("train", config.data.kind):
        raise UserError(
            f"data.pca_from = {config.data.pca_from!r} fits components on the private records, "
            "which nothing pays for; "
            "name a public set of the same width, for example 'fashion-mnist' for 'mnist', or use mode = \"paper\"."
        )
    if not enforced:
        raise UserError(
            f"privacy.clip.kind = {config.privacy.clip.kind!r} bounds no record's influence, so no ε can be proven; "
            'use constant, decaying, normalised or quantile, or mode = "paper".'
        )


def planned_events(plan: PrivacyPlan, node: NodePlan) -> list[Event]:
    """What a node will write, on sensitivity 1."""
    return _events(plan, node.factor, node.rate, node.allowance, node.bound)


def _events(
    base: PrivacyPlan, factor: float, rate: float, draws: int, bound: float = math.inf
) -> list[Event]:
    """The events the run will write, on sensitivity 1 (only the ratio matters to an accountant)."""
    sensitivity = 1.0 if base.enforced else math.inf
    raw = base.facts.lemma4 is not None and base.facts.lemma4.raw_decisions and base.mechanism != "none"
    turns = turns_in(rate) if base.sampling == "one-pass" else 0
    return [
        Event(
            step=k,
            mechanism="raw-decision" if raw else base.mechanism,
            sigma=factor * base.shape(k),
            sensitivity=sensitivity,
            sampling=base.sampling,
            rate=rate,
            adjacency=base.adjacency,
            parts=family_parts(
                base.mechanism, base.family, bound, factor * base.shape(k), base.facts.dimension
            )
            + ((("pass", float(k // turns)),) if turns else ()),
        )
        for k in range(draws)
    ]


def rates_of(config: RunConfig, records: list[int]) -> list[tuple[float, float]]:
    """(q_i, L_i) from the declared J_i."""
    sampling = config.privacy.sampling
    pairs = []
    for i, J in enumerate(records):
        if isinstance(sampling, Poisson):
            rate = sampling.rate[i] if isinstance(sampling.rate, list) else sampling.rate
            lot = rate * J if rate is not None else sampling.lot or 0.0
            rate = rate if rate is not None else lot / J
        elif isinstance(sampling, Full):
            rate, lot = 1.0, float(J)
        else:
            lot = float(1 if isinstance(sampling, Single) else sampling.lot)
            rate = lot / J
        if rate > 1:
            raise UserError(
                f"privacy.sampling.lot = {lot:g} is more than the {J} records of node {i}; use at most {J}."
            )
        pairs.append((rate, lot))
    return pairs


def _notes(config: RunConfig) -> tuple[str, ...]:
    notes = []
    notes += collaboration_notes(config)
    if config.privacy.runs > 1:
        notes.append(
            f"One of {config.privacy.runs} runs that share the budget: this ε is of it alone, the one asked for of all."
        )
    if config.privacy.clip.kind == "assumed":
        notes.append(
            "The bound on the residual is assumed, as the paper does; nothing enforces it."
            if config.privacy.claim == "dp-dkm"
            else "The gradient bound is believed, not enforced; the paper measured it on private records."
        )
    if config.data.partition.kind == "label-split":
        notes.append("Labels are split over nodes: a node's identity gives away labels.")
    if config.privacy.sampling.kind in ("fixed-size", "single"):
        notes.append("Fixed-size sampling uses the exact number of records of every node: it is public.")
    if config.data.own and getattr(config.data, "owner", None) is None:
        notes.append("The rows were dealt out from one file: ε holds for the partition as it fell.")
    if config.data.partition.kind == "sampled":
        notes.append(
            "A record may sit on several nodes; the ε of one node does not cover its copies on others."
        )
    return tuple(notes)


def _per_node(value: Any, nodes: int) -> list[Any]:
    return value if isinstance(value, list) else [value] * nodes


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value
