"""The verdict of an audit: scores tested against what a run promises.

What is proven is a curve, δ(ε) at every ε. It leaves an attacker a region of (false alarms, hits), see
`accounting.profiles`, and one test against the whole curve decides about it:

rates     the two rates of one event, which are outside of the region or not, at whichever ε: to test the whole curve
          costs no confidence. Both rates are tested together, exactly; two Clopper–Pearson intervals would be wider
guesses   the number of correct guesses, for scores that may depend on each other (`bounds.forced_probability`)

Events and numbers of guesses are chosen on one part of the coins and tested on the other. A paper's claim is one point
(ε, δ), and a bound at one point decides about it. That bound is also printed next to the proven ε but does not decide
there: two tests of one promise would have to share the error probability.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import bdtrc, gammaln, xlog1py, xlogy

from gossamer.accounting.profiles import TradeOff
from gossamer.auditing import bounds as at_one_point
from gossamer.auditing.bounds import (
    INDEPENDENT,
    NO_ASSUMPTION,
    Bound,
    Coins,
    Event,
    Guesses,
    at_least,
    at_most,
)

if TYPE_CHECKING:
    from gossamer.auditing.trainings import ScoreFile

RATES, GUESSES = "rates, whole curve", "guesses, whole curve"
CHOOSING = 0.2  # share of the coins that choose
_LUCK = 3.0  # standard deviations by which one event must exceed those that happen about as often
_NEAR = 10  # per cent: about as often
_CELLS = 64  # of all false alarm rates, to begin with
_SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)  # of the scores to guess on, from either end
_CHOSEN_AT = 500  # canaries: numbers of guesses are compared at this size
_EARLY = 0.1  # share of the error probability that all looks before the last have together


@dataclass(frozen=True)
class CurveTest:
    """`violated`: the scores contradict the curve at `confidence`, under the assumption `rests_on`."""

    name: str
    violated: bool
    confidence: float
    rests_on: str
    says: str  # the counts and what the curve allows, in words
    shown: dict[str, Any] = field(default_factory=dict)


def rates(coins: Coins, curve: TradeOff, confidence: float) -> CurveTest:
    """Test whether one event happens more often on its own side than the curve allows."""
    choosing, judging = coins.split(CHOOSING)
    if min(len(side) for part in (choosing, judging) for side in part.sides) == 0:
        few = "too few coins to tell"
        return CurveTest(RATES, False, confidence, INDEPENDENT, few, {"coins": len(coins)})
    event, slope = _best_event(choosing, curve)
    hits, of, misses, out_of = counts = event.counts(judging)
    hit_rate, alarm_rate, alpha = hits / of, misses / out_of, 1 - confidence
    allowed = float(curve.most_hits(alarm_rate))
    epsilon, delta, _ = curve.tightest(alarm_rate)  # the guarantee of the curve that allows least there
    least_hits, most_alarms = at_least(hits, of, alpha / 2), at_most(misses, out_of, alpha / 2)
    shown = {**event.shown(judging), "hit_rate": hit_rate, "hit_rate_at_least": float(least_hits)}
    shown |= {"false_alarm_rate": alarm_rate, "false_alarm_rate_at_most": float(most_alarms)}
    shown |= {"hit_rate_allowed": allowed, "tightest_epsilon": epsilon, "tightest_delta": delta}
    says = f"an event in {hit_rate:.2%} of one side's cases and in {alarm_rate:.2%} of the other's"
    says += f", where the proven curve allows {allowed:.2%}"
    return CurveTest(RATES, outside(curve, *counts, slope, alpha), confidence, INDEPENDENT, says, shown)


def _best_event(coins: Coins, curve: TradeOff) -> tuple[Event, float]:
    """The event that is outside by most standard deviations, and the slope of the curve there.

    Among hundreds of events the best is the luckiest, and luck is largest among the rare ones; so an event counts by
    what those around it show, unless it stands out by far.
    """

    def worth(hits: Any, of: Any, misses: Any, out_of: Any) -> Any:
        one = (1 - CHOOSING) / CHOOSING  # hit less than was seen, as there is one false alarm more
        hit, alarm = np.maximum(hits - one, 0.0) / of, misses / out_of
        allowed = curve.most_hits(alarm)
        slope = (curve.most_hits(np.minimum(alarm + 1e-4, 1.0)) - allowed) / 1e-4
        of_alarms = (alarm * (1 - alarm) + 1 / out_of) / out_of
        value = (hit - allowed) / np.sqrt((hit * (1 - hit) + 1 / of) / of + slope**2 * of_alarms)
        return np.maximum(_smoothed(value, (hits + misses) / (of + out_of)), value - _LUCK)

    event = at_one_point.choose_event(coins, worth, CHOOSING)
    _, _, misses, out_of = event.counts(coins)
    return event, curve.tightest(misses / out_of)[2]


def _smoothed(values: Any, shares: Any) -> Any:
    """Averages over the events that happen in about the same share of all cases."""
    even, window = np.linspace(0.0, 1.0, 101), np.ones(2 * _NEAR + 1)
    order = np.argsort(shares)
    known = np.interp(even, shares[order], values[order])
    around = np.convolve(known, window, "same") / np.convolve(np.ones_like(known), window, "same")
    return np.interp(shares, even, around)


def outside(curve: TradeOff, hits: int, of: int, misses: int, out_of: int, slope: float, alpha: float) -> bool:
    """Has D = hits/of − slope · misses/out_of a chance of at most α to be as large, under all rates the curve allows?

    `slope` was chosen beforehand. Hits and false alarms are binomial and independent. D grows with the hits and falls
    with the false alarms, so its chance grows with the hit rate and is largest on the edge of the region, at the rates
    (T(a), a). For all a in a cell [low, high] it is at most that of the hit rate T(high) and the false alarm rate low:
    cells are halved until that says enough, and together they cover all a.

    Canaries need not be alike (nodes may differ): their mean rates are in the region, which is convex, and counts of
    unlike cases spread no wider than binomial ones of the mean rate (Hoeffding 1956), as for Clopper–Pearson.
    """
    difference = hits / of - slope * misses / out_of
    spare = alpha / 1000  # for false alarms so many or so few that they are not summed up (Bernstein)
    many = math.log(2 / spare)

    def chance(hit: float, alarm: float) -> float:
        width = many / 3 + math.sqrt(many**2 / 9 + 2 * many * out_of * alarm * (1 - alarm))
        first, last = math.floor(out_of * alarm - width), math.ceil(out_of * alarm + width)
        b = np.arange(max(first, 0), min(last, out_of) + 1)
        logs = gammaln(out_of + 1) - gammaln(b + 1) - gammaln(out_of - b + 1)
        mass = np.exp(logs + xlogy(b, alarm) + xlog1py(out_of - b, -alarm))
        needed = np.ceil(of * (difference + slope * b / out_of) - 1e-9)  # rounding may only make it easier
        tail = bdtrc(np.clip(needed - 1, 0, of), of, hit)
        return float(mass @ np.where(needed <= 0, 1.0, tail)) + spare

    least = 1e-3 / out_of
    cells = list(itertools.pairwise(np.linspace(0.0, 1.0, _CELLS + 1).tolist()))
    while cells:
        low, high = cells.pop()
        if chance(float(curve.most_hits(high)), low) <= alpha:
            continue
        middle = (low + high) / 2
        if high - low < least or chance(float(curve.most_hits(middle)), middle) > alpha:
            return False
        cells += [(low, middle), (middle, high)]
    return True


def guesses(coins: Coins, curve: TradeOff, confidence: float) -> CurveTest:
    """Test the number of correct guesses; all trainings count as one large run, and a canary is in one of them."""
    choosing, judging = coins.split(CHOOSING)
    chosen = _best_guesses(choosing, curve)
    m, r, v = chosen.counts(judging)
    allowed = at_one_point.most_correct(curve.least_false_alarms, m, r, 1 - confidence)
    says = f"{v:,} of {r:,} guesses correct, where the proven curve allows up to {allowed:,}"
    shown = {"canaries": m, "guesses": r, "correct": v, "correct_allowed": allowed}
    return CurveTest(GUESSES, v > allowed, confidence, NO_ASSUMPTION, says, shown)


def _best_guesses(coins: Coins, curve: TradeOff) -> Guesses:
    """The shares with the smallest p-value, at a number of canaries that keeps the sums short."""
    best, chosen, scale = (2.0, 0.0), Guesses(0.5, 0.5), _CHOSEN_AT / max(1, len(coins))
    for candidate, (_, r, v) in at_one_point.promising_guesses(coins, _SHARES):
        many, correct = max(1, round(r * scale)), round(v * scale)
        counts = max(_CHOSEN_AT, many), many, min(correct, many)
        p_value = at_one_point.guess_p_value(curve.least_false_alarms, *counts)
        if (p_value, -v / r) < best:
            best, chosen = (p_value, -v / r), candidate
    return chosen


# --- the verdict --------------------------------------------------------------------------------------------


class Attack:
    """An attack: its target, its canaries and their number; `batch` trains with fair coins and scores them."""

    attacked: str  # the parts of the run that the verdict is about, in words
    description: str  # the canaries, in words
    notes: tuple[str, ...] = ()
    independent: bool = True  # are scores independent of other canaries' coins, by construction?
    runs: int  # the default number of trainings
    at_once: int  # how many fit into memory side by side
    looks: bool = False  # may it end early, once something is violated?

    def batch(self, number: int, runs: int) -> Coins:
        raise NotImplementedError


@dataclass(frozen=True)
class Verdict:
    """`bounds[0]` and `curve_tests[0]` decide: their assumptions hold by construction."""

    bounds: list[Bound]
    violated: tuple[str, ...]  # which of the promises are broken
    above_one_point: tuple[str, ...]  # which of the promised figures the declared bound exceeds
    curve_tests: list[CurveTest]  # none where nothing is proven
    looks: int
    runs: int

    @property
    def epsilon(self) -> float:
        return self.bounds[0].epsilon


@dataclass(frozen=True)
class Promised:
    """The limits to test: ε at one point each, by "claimed" and "proven", and the whole proven curve."""

    points: dict[str, float] = field(default_factory=dict)
    curve: TradeOff | None = None

    def exceeded(self, bound: Bound) -> tuple[str, ...]:
        return tuple(key for key, limit in self.points.items() if bound.epsilon > limit)

    def broken(self, bound: Bound, test: CurveTest | None) -> tuple[str, ...]:
        """The violated promises: of each one test decides."""
        above = self.exceeded(bound)
        if test is None:
            return above
        return tuple(k for k in self.points if (test.violated if k == "proven" else k in above))


def promised(figures: dict[str, Any], mode: str, curve: TradeOff | None = None) -> Promised:
    """Return the limits to test: what is proven, and in paper mode also the claim, which is all that such a run has."""
    keys = ("claimed", "proven") if mode == "paper" else ("proven",)
    points = {key: figures[f"epsilon_{key}"] for key in keys if figures[f"epsilon_{key}"] is not None}
    return Promised(points, curve if "proven" in points else None)


def batch_sizes(runs: int, at_once: int, *, doubling: bool = False) -> list[int]:
    """Trainings in each batch: as many as fit, or as many as were done before, so that a clear case ends early."""
    sizes: list[int] = []
    while (done := sum(sizes)) < runs:
        sizes.append(min(max(1, done) if doubling else at_once, at_once, runs - done))
    return sizes


def try_until_decided(
    attack: Attack,
    delta: float,
    confidence: float,
    limits: Promised,
    runs: int,
    on_batch: Callable[[int, int], None] = lambda done, of: None,
    saved: ScoreFile | None = None,
) -> tuple[Coins, Verdict]:
    """Train, test, and stop once a promise is violated or all `runs` are used.

    Early tests cost confidence: most of the error probability is kept for the last one, the others share the rest.
    """
    alpha, parts = 1 - confidence, list[Coins]()
    sizes = batch_sizes(runs, attack.at_once, doubling=attack.looks)
    bound_of, test_of, other_test = at_one_point.one_run, guesses, rates
    if attack.independent:
        bound_of, test_of, other_test = at_one_point.threshold, rates, guesses
    for number, size in enumerate(sizes):
        batch = saved.get(number, size) if saved is not None else None
        if batch is None:
            batch = attack.batch(number, size)
            if saved is not None:
                saved.save(number, batch)
        parts.append(batch)
        on_batch(sum(part.runs for part in parts), runs)
        last = number == len(sizes) - 1
        if not (attack.looks or last):
            continue
        share = alpha
        if attack.looks and len(sizes) > 1:
            share = alpha * (1 - _EARLY) if last else alpha * _EARLY / (len(sizes) - 1)
        coins = Coins.join(parts)
        bound = bound_of(coins, delta, 1 - share)
        test = test_of(coins, limits.curve, 1 - share) if limits.curve is not None else None
        violated = limits.broken(bound, test)
        if violated:
            break
    # At every look the deciding tests had a smaller error probability; all looks together hold at `confidence`.
    bounds = [replace(bound, confidence=confidence)]
    bounds += at_one_point.all_bounds(coins, delta, confidence, independent=attack.independent)[1:]
    tests = []
    if test is not None and limits.curve is not None:
        tests = [replace(test, confidence=confidence), other_test(coins, limits.curve, confidence)]
    looks = len(parts) if attack.looks else 1
    return coins, Verdict(bounds, violated, limits.exceeded(bound), tests, looks, coins.runs)
