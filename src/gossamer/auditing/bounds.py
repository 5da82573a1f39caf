"""Lower bounds on ε from scores and coins, each with the assumptions it rests on.

A coin says whether a canary was in (add/remove) or which of two records it was (replace-one); a score is any number
that an attacker computes from its observations. No bound assumes a good score: a poor attack only gives a low bound.

threshold       Clopper–Pearson on the two rates of one event. Needs independent (score, coin) pairs and nothing else
one_run         Steinke, Nasr, Jagielski 2023, Theorem 5.2: fair independent coins; scores may depend on each other
gaussian        the μ of Gaussian DP from the means and the spread of the scores: an estimate, it assumes normal scores
one_run_fdp     Mahloujifar, Melis, Chaudhuri 2024, Algorithm 3, for the Gaussian family of trade-off functions

Thresholds are chosen on one part of the coins and tested on the other, so every bound is one test. All of these are
for one point (ε, δ); `verdict` tests the same scores against the whole proven curve.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr, ndtri

from gossamer.accounting.profiles import gdp_epsilon

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

CHOOSING = 0.25  # share of the coins that choose thresholds
MOST_THRESHOLDS = 400
LARGEST_EPSILON = 60.0
MOST_FDP_GUESSES = 2000
NO_ASSUMPTION = "fair, independent coins; nothing about the mechanism"
INDEPENDENT = "fair coins, and scores that do not depend on each other's coins"
GAUSSIAN = "normal scores of equal spread: an estimate, not a bound"
GAUSSIAN_FAMILY = "a trade-off function of the Gaussian family: an estimate, not a bound"


@dataclass(frozen=True)
class Bound:
    """ε ≥ `epsilon` at `confidence` under the assumption `rests_on`; `shown` has the counts."""

    name: str
    epsilon: float
    confidence: float
    rests_on: str
    shown: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Coins:
    """Scores with their coins, of `runs` trainings numbered from 0; `run` is the training that each came from."""

    scores: Floats
    heads: Bools
    run: NDArray[np.int64]
    runs: int = 1
    seconds: float = 0.0
    samples: float = 0.0  # per-record gradients that were computed
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if np.isnan(self.scores).any():
            raise ValueError("a score is not a number")

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def sides(self) -> tuple[Floats, Floats]:
        """Scores of heads and of tails."""
        return self.scores[self.heads], self.scores[~self.heads]

    def take(self, which: Bools) -> Coins:
        return Coins(self.scores[which], self.heads[which], self.run[which])

    def split(self, share: float = CHOOSING) -> tuple[Coins, Coins]:
        """A part to choose on and a part to test on; the split depends on positions alone, not on scores or coins."""
        order = np.random.default_rng(0x5B11).permutation(len(self))
        first = np.zeros(len(self), dtype=bool)
        first[order[: round(share * len(self))]] = True
        return self.take(first), self.take(~first)

    @classmethod
    def join(cls, parts: Sequence[Coins]) -> Coins:
        """All batches of trainings as one; trainings are numbered on."""
        before = np.cumsum([0, *(part.runs for part in parts)])
        return cls(
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.heads for part in parts]),
            np.concatenate([part.run + offset for part, offset in zip(parts, before, strict=False)]),
            int(before[-1]),
            sum(part.seconds for part in parts),
            sum(part.samples for part in parts),
            {key: value for part in parts for key, value in part.details.items()},
        )


# --- Clopper–Pearson ----------------------------------------------------------------------------------------


def at_most(successes: Any, trials: Any, alpha: float) -> Any:
    """The success probability is at most this, but for a chance of α."""
    k, n = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    upper = stats.beta.ppf(1 - alpha, k + 1, np.maximum(n - k, 1e-12))
    return np.where(k < n, upper, 1.0)


def at_least(successes: Any, trials: Any, alpha: float) -> Any:
    """The success probability is at least this, but for a chance of α."""
    return 1 - at_most(trials - successes, trials, alpha)


def ratio_epsilon(hits: Any, of: Any, misses: Any, out_of: Any, delta: float, alpha: float) -> Any:
    """ln((P[E | one side] − δ) / P[E | the other]) from below, both rates by Clopper–Pearson at α/2."""
    likely, unlikely = at_least(hits, of, alpha / 2), at_most(misses, out_of, alpha / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(likely > delta, np.log(np.maximum(likely - delta, 1e-300) / unlikely), -np.inf)


@dataclass(frozen=True)
class Event:
    """The score is at least (or at most) a threshold; it speaks for heads or for tails."""

    threshold: float
    above: bool
    for_heads: bool

    def counts(self, coins: Coins) -> tuple[int, int, int, int]:
        """(times it happened on its own side, size of that side, on the other side, size of the other)."""
        happened = coins.scores >= self.threshold if self.above else coins.scores <= self.threshold
        own = coins.heads == self.for_heads
        cases = (happened & own, own, happened & ~own, ~own)
        hits, of, misses, out_of = (int(where.sum()) for where in cases)
        return hits, of, misses, out_of

    def shown(self, coins: Coins) -> dict[str, Any]:
        """Return the event and its counts, for a result."""
        counts = dict(zip(("hits", "of", "false_alarms", "out_of"), self.counts(coins), strict=True))
        words = f"score {'≥' if self.above else '≤'} threshold speaks for {'in' if self.for_heads else 'out'}"
        return {"coins": len(coins), **counts, "threshold": self.threshold, "event": words}


Worth = Callable[[Any, Any, Any, Any], Any]  # of (hits, of, false alarms, out of), whole arrays of them


def choose_event(coins: Coins, worth: Worth, share: float = CHOOSING) -> Event:
    """The event that is worth most on these coins, a `share` of all. It looks at both tails, for both sides."""
    sides = [np.sort(side) for side in coins.sides]
    grid = np.unique(coins.scores)
    if len(grid) > MOST_THRESHOLDS:  # evenly over ranks, and every one of the extremes
        dense = np.concatenate([grid[:50], grid[-50:]])
        grid = np.unique(np.concatenate([dense, np.quantile(grid, np.linspace(0, 1, MOST_THRESHOLDS))]))
    # As if there were as many coins as the judging part has, at the rates seen here, but for one false alarm more:
    # where none was seen, the rarest event would always look best.
    scale = (1 - share) / share
    best, event = -math.inf, Event(math.inf, above=True, for_heads=True)
    for above, for_heads in itertools.product((True, False), repeat=2):
        own, other = sides if for_heads else sides[::-1]
        hits, alarms = (np.searchsorted(side, grid, "left" if above else "right") for side in (own, other))
        if above:
            hits, alarms = len(own) - hits, len(other) - alarms
        alarms = np.minimum(alarms + 1, len(other))
        values = worth(scale * hits, scale * len(own), scale * alarms, scale * len(other))
        at = int(np.argmax(values))
        if values[at] > best:
            best, event = float(values[at]), Event(float(grid[at]), above, for_heads)
    return event


def threshold(coins: Coins, delta: float, confidence: float) -> Bound:
    """The event is chosen on one part; on the other it is one test, so nothing has to be corrected for."""
    choosing, judging = coins.split()
    if min(len(side) for part in (choosing, judging) for side in part.sides) == 0:
        return Bound("threshold", 0.0, confidence, INDEPENDENT, {"coins": len(coins)})
    alpha = 1 - confidence
    event = choose_event(choosing, partial(ratio_epsilon, delta=delta, alpha=alpha))
    epsilon = max(0.0, float(ratio_epsilon(*event.counts(judging), delta, alpha)))
    return Bound("threshold", epsilon, confidence, INDEPENDENT, event.shown(judging))


# --- one run ------------------------------------------------------------------------------------------------


def one_run_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """At most this likely under (ε, δ)-DP: so many correct guesses on `canaries` fair coins (Theorem 5.2)."""
    if guesses == 0:
        return 1.0
    accuracy = 1 / (1 + math.exp(-epsilon))
    beta = float(stats.binom.sf(correct - 1, guesses, accuracy))
    if delta == 0:
        return min(1.0, beta)
    # max over i of P[v − i ≤ W < v] / i: of the places from one of a grid to the next, the first divides and the last
    # counts, which is never too little.
    grid = np.unique(np.geomspace(1, correct, 200).round()) if correct else np.array([1.0])
    up_to = np.append(grid[1:] - 1, grid[-1])
    below = stats.binom.cdf(correct - 1 - up_to, guesses, accuracy)
    between = stats.binom.cdf(correct - 1, guesses, accuracy) - below
    return min(1.0, beta + 2 * canaries * delta * float(np.max(between / grid)))


Counts = tuple[int, int, int]  # canaries, guesses, correct


@dataclass(frozen=True)
class Guesses:
    """In for this share of the scores from above, out for that share from below, silent in between.

    How many guesses there are depends on the number of canaries alone: the theorems are for a number that is fixed
    before anything is released. Of equal scores those in earlier places count as lower.
    """

    up: float
    down: float

    def counts(self, coins: Coins) -> Counts:
        m = len(coins)
        says_in = min(round(self.up * m), m)
        says_out = min(round(self.down * m), m - says_in)
        order = np.argsort(coins.scores, kind="stable")
        correct = coins.heads[order[m - says_in :]].sum() + (~coins.heads[order[:says_out]]).sum()
        return m, says_in + says_out, int(correct)


def promising_guesses(coins: Coins, shares: Sequence[float]) -> Iterator[tuple[Guesses, Counts]]:
    """Those of all pairs of shares whose guesses are mostly correct on these coins, and their counts."""
    for up, down in itertools.product(shares, repeat=2):
        guesses = Guesses(up, down)
        _, r, v = counts = guesses.counts(coins)
        if v > r / 2:
            yield guesses, counts


def _largest_rejected(p_value: Callable[[float], float], alpha: float, steps: int = 30) -> float:
    """The largest ε (or μ) that the data reject; p grows with it."""
    if p_value(0.0) > alpha:
        return 0.0
    low, high = 0.0, 1.0
    while p_value(high) <= alpha:
        low, high = high, 2 * high
        if high > LARGEST_EPSILON:
            return low
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle) <= alpha else (low, middle)
    return low


def _epsilon_of_counts(counts: Sequence[Counts], delta: float, alpha: float, steps: int = 30) -> float:
    alike = Counter(counts)

    def together(epsilon: float) -> float:
        each = {count: max(one_run_p_value(*count, epsilon, delta), 1e-300) for count in alike}
        if len(counts) == 1:
            return each[counts[0]]
        # Runs are independent: Fisher's sum of logarithms.
        logs = sum(times * math.log(each[count]) for count, times in alike.items())
        return float(stats.chi2.sf(-2 * logs, 2 * len(counts)))

    return _largest_rejected(together, alpha, steps)


def choose_guesses(coins: Coins, delta: float, alpha: float, runs: int) -> tuple[Guesses, int]:
    """By what these coins would show: how many of the highest and of the lowest scores to guess on, and whether to take
    the runs one by one or all of them as one large run."""
    shares = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5)
    best, chosen = 0.0, (Guesses(0.0, 0.0), 1)
    for guesses, counts in promising_guesses(coins, shares):
        for groups in sorted({1, runs}):
            # What the judging part will have in each group, at the rate of correct guesses seen here.
            scale = (1 - CHOOSING) / CHOOSING / groups
            m, r, v = (round(count * scale) for count in counts)
            value = _epsilon_of_counts([(m, r, v)] * groups, delta, alpha, steps=8) if r else 0.0
            if value > best:
                best, chosen = value, (guesses, groups)
    return chosen


def one_run(coins: Coins, delta: float, confidence: float) -> Bound:
    """Guesses on the canaries whose coins stayed secret; those of the choosing part count as known records."""
    choosing, judging = coins.split()
    alpha, runs = 1 - confidence, len(np.unique(judging.run))
    guesses, groups = choose_guesses(choosing, delta, alpha, runs)
    parts = [judging.take(judging.run == run) for run in np.unique(judging.run)] if groups > 1 else [judging]
    counts = [guesses.counts(part) for part in parts]
    shown = dict(zip(("canaries", "guesses", "correct"), np.sum(counts, axis=0).tolist(), strict=True))
    epsilon = _epsilon_of_counts(counts, delta, alpha)
    return Bound("one run", epsilon, confidence, NO_ASSUMPTION, {**shown, "runs": runs})


# --- correct guesses against a trade-off curve --------------------------------------------------------------

Inverse = Callable[[float], float]  # T⁻¹: the least probability under one face, given that under the other
_ROUNDING = 1e-9  # of a sum of thousands of terms


def forced_probability(inverse: Inverse, canaries: int, guesses: int, correct: int, tau: float) -> float:
    """P[N ≥ 0] is at least this if P[N ≥ correct] ≥ τ; above 1 it is a contradiction, and the rest is not summed.

    Mahloujifar, Melis, Chaudhuri 2024, Algorithm 3, with its proof:

    m canaries have fair, independent coins. From what was released, whatever that is, exactly r of them are guessed
    (r is fixed beforehand, which ones is not), and N guesses are right. The released is T-private for each coin
    given all others: an event has probability at most T(a) under one face if it has a under the other
    (`accounting.profiles`; both ways round, T concave and growing).

    One coin. Let N_i count the correct guesses but for canary i, and W be a set of numbers. "i is guessed as b, and
    N_i + 1 is in W" is an event of the release, given the other coins. If coin i fell on b, then i is right and N =
    N_i + 1 is in W; if it fell on the other face, i is wrong and N = N_i is in W − 1. So, given the other coins and
    b, the probability of the first is at most T of that of the second; averaged over b, the other coins and i, and
    T being concave,

        Σ_{k∈W} k p_k / m  ≤  T( Σ_{k∈W} (r − (k − 1)) p_{k−1} / m )          with p_k = P[N = k].

    All tails. Take W = {j, j + 1, …} and write S_j = P[N ≥ j] and A_j = S_j + S_{j+1} + … + S_r. Summing by parts,
    this is

        S_{j−1}  ≥  ( A_j + m T⁻¹( ((j − 1) S_j + A_j) / m ) ) / (r − j + 1),  and of course  S_{j−1} ≥ S_j.

    Contradiction. The right-hand sides grow with every S_k. So if S_c ≥ τ, then step by step from S_c = τ and S_k =
    0 beyond it, no S_{j−1} can be below the largest of its right-hand sides. Where that passes 1, S_c ≥ τ was
    impossible: P[N ≥ c] < τ. And c is judged alone: the smallest c that is rejected at τ has P[N ≥ c] < τ, and with
    it every larger.

    The paper keeps r_j and h_j, the sums on either side, and adds to them; it is the same recursion.
    """
    m, r = canaries, guesses
    tail = together = tau  # S_j and A_j
    for j in range(correct, 0, -1):
        least = (together + m * inverse(((j - 1) * tail + together) / m)) / (r - j + 1)
        tail = max(tail, least)
        if tail > 1 + _ROUNDING:
            return tail
        together += tail
    return tail


def rejects(inverse: Inverse, canaries: int, guesses: int, correct: int, tau: float) -> bool:
    """Is the probability of so many correct guesses below τ, if the curve holds?"""
    return forced_probability(inverse, canaries, guesses, correct, tau) > 1 + _ROUNDING


def guess_p_value(inverse: Inverse, canaries: int, guesses: int, correct: int, steps: int = 12) -> float:
    """So many correct guesses are at most this likely, if the curve holds; 1 if no bound below ½ is known."""
    low, high = 1e-12, 0.5
    if not rejects(inverse, canaries, guesses, correct, high):
        return 1.0
    for _ in range(steps):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if rejects(inverse, canaries, guesses, correct, middle) else (middle, high)
    return high


def most_correct(inverse: Inverse, canaries: int, guesses: int, tau: float) -> int:
    """The largest number of correct guesses that is not rejected at τ."""
    low, high = 0, guesses + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if rejects(inverse, canaries, guesses, middle, tau) else (middle, high)
    return low


def one_run_fdp(coins: Coins, delta: float, confidence: float) -> Bound:
    """The largest μ whose Gaussian trade-off function the guesses contradict, as ε at δ."""
    _, judging = coins.split()
    alpha, share = 1 - confidence, min(0.1, MOST_FDP_GUESSES / 2 / max(1, len(judging)))
    m, r, v = Guesses(share, share).counts(judging)

    def rejected(mu: float) -> float:
        return not rejects(lambda y: float(ndtr(ndtri(min(y, 1.0)) - mu)), m, r, v, alpha)

    mu = _largest_rejected(rejected, alpha) if r else 0.0
    shown = {"mu": mu, "canaries": m, "guesses": r, "correct": v}
    return Bound("one run, f-DP", gdp_epsilon(mu, delta), confidence, GAUSSIAN_FAMILY, shown)


# --- Gaussian DP --------------------------------------------------------------------------------------------


def gaussian(coins: Coins, delta: float, confidence: float) -> Bound:
    """μ = difference of means / spread, less its standard error times the confidence's quantile."""
    heads, tails = coins.sides
    n, k, pooled = len(heads), len(tails), 0.0
    if min(n, k) >= 3:
        pooled = math.sqrt(((n - 1) * heads.var(ddof=1) + (k - 1) * tails.var(ddof=1)) / (n + k - 2))
    if pooled == 0:
        return Bound("Gaussian DP", 0.0, confidence, GAUSSIAN, {"coins": len(coins)})
    point = abs(float(heads.mean() - tails.mean())) / pooled
    error = math.sqrt(1 / n + 1 / k + point**2 / (2 * (n + k)))
    mu = max(0.0, point - float(stats.norm.isf(1 - confidence)) * error)
    shown = {"mu": mu, "mu_point": point, "epsilon_point": gdp_epsilon(point, delta), "coins": len(coins)}
    return Bound("Gaussian DP", gdp_epsilon(mu, delta), confidence, GAUSSIAN, shown)


def all_bounds(coins: Coins, delta: float, confidence: float, *, independent: bool) -> list[Bound]:
    """The declared bound first: the one whose assumptions hold by construction. The others are listed next to it."""
    first = [threshold, one_run] if independent else [one_run, threshold]
    return [bound(coins, delta, confidence) for bound in (*first, gaussian, one_run_fdp)]


# --- curves of the scores, for the page ---------------------------------------------------------------------

_POINTS, _BINS = 200, 40


def score_curves(coins: Coins) -> dict[str, Any]:
    """The ROC curve, the area below it, and two histograms, for the page."""
    return {"roc": roc(coins), "auc": auc(coins), "histogram": histogram(coins)}


def roc(coins: Coins) -> list[tuple[float, float]]:
    """(false positive rate, true positive rate) as the threshold falls, thinned towards the interesting low end."""
    heads, tails = (np.sort(side)[::-1] for side in coins.sides)
    if not len(heads) or not len(tails):
        return []
    ranks = np.unique(np.concatenate([[0], np.geomspace(1, len(coins), _POINTS).round()]).astype(int))
    cuts = np.sort(coins.scores)[::-1][np.minimum(ranks, len(coins) - 1)]
    points = [(float((tails >= cut).mean()), float((heads >= cut).mean())) for cut in cuts]
    return [(0.0, 0.0), *points, (1.0, 1.0)]


def auc(coins: Coins) -> float | None:
    """Return the share of scores with the canary above those without; ties count half (Mann and Whitney 1947)."""
    heads, tails = coins.sides
    if not len(heads) or not len(tails):
        return None
    ranks = stats.rankdata(np.concatenate([heads, tails]))[: len(heads)]
    return float((ranks.sum() - len(heads) * (len(heads) + 1) / 2) / (len(heads) * len(tails)))


def histogram(coins: Coins) -> dict[str, list[float]]:
    low, high = np.quantile(coins.scores, [0.001, 0.999])
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    counts = (np.histogram(np.clip(side, low, high), edges)[0] for side in coins.sides)
    heads, tails = ((side / max(1, side.sum())).tolist() for side in counts)
    return {"edges": edges.tolist(), "in": heads, "out": tails}
