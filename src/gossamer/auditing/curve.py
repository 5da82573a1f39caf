"""Scores and coins against everything that is proven, not against one point (ε, δ) of it.

What is proven is a curve, δ(ε) at every ε. It leaves an attacker a region of (false alarms, hits): see
`accounting.tradeoff`.

rates     one event's two rates, which are either outside of the region or not, whichever ε shows it: to look at the
          whole curve is still one test and costs nothing. Both rates are tested together, exactly; two intervals by
          Clopper–Pearson side by side are wider than what may go wrong, and are shown beside it
guesses   the number of right guesses, for scores that may depend on each other (`fdp`)

Events and numbers of guesses are chosen on one part of the coins and judged on the other.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import bdtrc, gammaln, xlog1py, xlogy

from gossamer.accounting.tradeoff import TradeOff
from gossamer.auditing import fdp
from gossamer.auditing.bounds import (
    INDEPENDENT,
    NO_ASSUMPTION,
    Coins,
    Event,
    Guesses,
    at_least,
    at_most,
    choose_event,
)

RATES, GUESSES = "rates, whole curve", "guesses, whole curve"
CHOOSING = 0.2  # share of the coins that choose
_LUCK = (
    3.0  # standard deviations by which a single event must stand out from those that happen about as often
)
_NEAR = 10  # per cent: about as often
_CELLS = 64  # of all false alarm rates, to begin with
_SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)  # of the scores to guess on, from either end
_CHOSEN_AT = 500  # canaries: numbers of guesses are compared as if there were so many


@dataclass(frozen=True)
class CurveTest:
    """`violated`: what was found is outside of what the whole curve allows, at `confidence`, if `rests_on` is true."""

    name: str
    violated: bool
    confidence: float
    rests_on: str
    says: str  # for people: what was found, and what the curve allows
    shown: dict[str, Any] = field(default_factory=dict)


def rates(coins: Coins, curve: TradeOff, confidence: float) -> CurveTest:
    """Does one event happen more often on its own side than anything that the curve allows would explain?"""
    choosing, judging = coins.split(CHOOSING)
    if min(len(side) for part in (choosing, judging) for side in part.sides) == 0:
        return CurveTest(
            RATES, False, confidence, INDEPENDENT, "too few coins to tell", {"coins": len(coins)}
        )
    event, slope = _best_event(choosing, curve)
    hits, of, misses, out_of = counts = event.counts(judging)
    alpha = 1 - confidence
    allowed = float(curve.most_hits(misses / out_of))
    epsilon, delta, _ = curve.tightest(misses / out_of)
    says = (
        f"an event in {hits / of:.2%} of one side's cases and in {misses / out_of:.2%} of the other's, where the "
        f"proven curve allows {allowed:.2%}"
    )
    shown = {
        "coins": len(judging),
        "hits": hits,
        "of": of,
        "false_alarms": misses,
        "out_of": out_of,
        "hit_rate": hits / of,
        "hit_rate_at_least": float(at_least(hits, of, alpha / 2)),
        "false_alarm_rate": misses / out_of,
        "false_alarm_rate_at_most": float(at_most(misses, out_of, alpha / 2)),
        "hit_rate_allowed": allowed,
        "tightest_epsilon": epsilon,  # the guarantee of the curve that allows least there
        "tightest_delta": delta,
        "threshold": event.threshold,
        "event": event.words,
    }
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
        spread = np.sqrt(
            (hit * (1 - hit) + 1 / of) / of + slope**2 * (alarm * (1 - alarm) + 1 / out_of) / out_of
        )
        value = (hit - allowed) / spread
        return np.maximum(_smoothed(value, (hits + misses) / (of + out_of)), value - _LUCK)

    event = choose_event(coins, worth, CHOOSING)
    _, _, misses, out_of = event.counts(coins)
    return event, curve.tightest(misses / out_of)[2]


def _smoothed(values: Any, shares: Any) -> Any:
    """Averages over the events that happen in about the same share of all cases."""
    even, window = np.linspace(0.0, 1.0, 101), np.ones(2 * _NEAR + 1)
    order = np.argsort(shares)
    known = np.interp(even, shares[order], values[order])
    around = np.convolve(known, window, "same") / np.convolve(np.ones_like(known), window, "same")
    return np.interp(shares, even, around)


def outside(
    curve: TradeOff, hits: int, of: int, misses: int, out_of: int, slope: float, alpha: float
) -> bool:
    """Has D = hits/of − slope · misses/out_of a chance of at most α to be as large, under all rates the curve allows?

    `slope` was chosen beforehand. Hits and false alarms are binomial and independent. D grows with the hits and falls
    with the false alarms, so its chance grows with the hit rate and is largest on the edge of the region, at the rates
    (T(a), a). For all a in a cell [low, high] it is at most that of the hit rate T(high) and the false alarm rate low:
    cells are halved until that says enough, and together they cover all a.

    Canaries need not be alike (nodes may differ): their mean rates are in the region, which is convex, and counts of
    unlike cases spread no wider than binomial ones of the mean rate (Hoeffding 1956), as for Clopper–Pearson.
    """
    found = hits / of - slope * misses / out_of
    spare = alpha / 1000  # for false alarms so many or so few that they are not summed up (Bernstein)
    many = math.log(2 / spare)

    def chance(hit: float, alarm: float) -> float:
        width = many / 3 + math.sqrt(many**2 / 9 + 2 * many * out_of * alarm * (1 - alarm))
        first, last = math.floor(out_of * alarm - width), math.ceil(out_of * alarm + width)
        b = np.arange(max(first, 0), min(last, out_of) + 1)
        logs = gammaln(out_of + 1) - gammaln(b + 1) - gammaln(out_of - b + 1)
        mass = np.exp(logs + xlogy(b, alarm) + xlog1py(out_of - b, -alarm))
        needed = np.ceil(of * (found + slope * b / out_of) - 1e-9)  # rounding may only make it easier
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
    """Are there more right guesses than the curve explains? All trainings are one large run: a canary is in one."""
    choosing, judging = coins.split(CHOOSING)
    chosen = _best_guesses(choosing, curve)
    inverse, (m, r, v) = curve.least_false_alarms, chosen.counts(judging)
    allowed = fdp.most_correct(inverse, m, r, 1 - confidence)
    says = f"{v:,} of {r:,} guesses right; the proven curve explains {allowed:,} at most"
    shown = {"canaries": m, "guesses": r, "correct": v, "correct_allowed": allowed}
    return CurveTest(GUESSES, v > allowed, confidence, NO_ASSUMPTION, says, shown)


def _best_guesses(coins: Coins, curve: TradeOff) -> Guesses:
    """By what is least likely to be explained, among so many canaries as make the sums short."""
    best, found = (2.0, 0.0), Guesses(0.5, 0.5)
    for up in _SHARES:
        for down in _SHARES:
            _, r, v = Guesses(up, down).counts(coins)
            if v <= r / 2:
                continue
            scale = _CHOSEN_AT / len(coins)
            many, right = max(1, round(r * scale)), round(v * scale)
            likely = fdp.p_value(curve.least_false_alarms, max(_CHOSEN_AT, many), many, min(right, many))
            if (likely, -v / r) < best:
                best, found = (likely, -v / r), Guesses(up, down)
    return found
