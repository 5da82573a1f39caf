"""How much noise a budget takes, and how many draws it pays for: by the paper's formula or by the accountant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gossamer.accounting import calibrate
from gossamer.accounting.noise_comparison import truncated_share
from gossamer.accounting.releases import Event, of_several_runs
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.mechanism.clipping import After, Schedule, extremes
from gossamer.mechanism.noise import NoiseKind
from gossamer.mechanism.noise.shaped import magnitude
from gossamer.methods.claims import Draws
from gossamer.options.types import LEAST_BOUND, MOST_BOUND
from gossamer.planning.privacy import NodePlan, PrivacyPlan
from gossamer.preprocess import planned_events, steps_of


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
        found = least if least < LEAST_BOUND else largest
        raise UserError(
            f"privacy.clip.kind = {privacy.clip.kind!r} has a bound of {found:.3g} in one of its draws, which float32 "
            f"cannot keep to; stay between {LEAST_BOUND:g} and {MOST_BOUND:g} in all of them."
        )
    noise = extremes(_Noise(factor, base.shape, bound, base.draws_before), base.draws)
    if not (noise.least >= LEAST_NOISE and noise.largest <= MOST_NOISE):
        found = noise.least if noise.least < LEAST_NOISE else noise.largest
        raise UserError(
            f"privacy.noise would have scale {found:.3g} in one of the draws, which float32 cannot say; "
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
    factor, said = base.claim.noise(base.run, rate, epsilon, delta)
    return factor, _end(base, epsilon, delta) if said is None else said


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
    share = truncated_share(10.0 if epsilon is None else epsilon, delta, numbers)
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
