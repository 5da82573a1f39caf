"""Right guesses in one run against a trade-off curve (Mahloujifar, Melis, Chaudhuri 2024, Algorithm 3), with its proof.

m canaries have fair, independent coins. From what was released, whatever that is, exactly r of them are guessed (r is
fixed beforehand, which ones is not), and N guesses are right. The released is T-private for each coin given all
others: an event has probability at most T(a) under one face if it has a under the other (`accounting.tradeoff`; both
ways round, T concave and growing).

One coin. Let N_i count the right guesses but for canary i, and W be a set of numbers. "i is guessed as b, and N_i + 1
is in W" is an event of the release, given the other coins. If coin i fell on b, then i is right and N = N_i + 1 is in
W; if it fell on the other face, i is wrong and N = N_i is in W − 1. So, given the other coins and b, the probability of
the first is at most T of that of the second; averaged over b, the other coins and i, and T being concave,

    Σ_{k∈W} k p_k / m  ≤  T( Σ_{k∈W} (r − (k − 1)) p_{k−1} / m )          with p_k = P[N = k].

All tails. Take W = {j, j + 1, …} and write S_j = P[N ≥ j] and A_j = S_j + S_{j+1} + … + S_r. Summing by parts, this is

    S_{j−1}  ≥  ( A_j + m T⁻¹( ((j − 1) S_j + A_j) / m ) ) / (r − j + 1),  and of course  S_{j−1} ≥ S_j.

Contradiction. The right-hand sides grow with every S_k. So if S_c ≥ τ, then step by step from S_c = τ and S_k = 0
beyond it, no S_{j−1} can be below the largest of its right-hand sides. Where that passes 1, S_c ≥ τ was impossible:
P[N ≥ c] < τ. And c is judged alone: the smallest c that is rejected at τ has P[N ≥ c] < τ, and with it every larger.

The paper keeps r_j and h_j, the sums on either side, and adds to them; it is the same recursion.
"""

from __future__ import annotations

from collections.abc import Callable

Inverse = Callable[
    [float], float
]  # T⁻¹: the smallest probability under the one face at this one under the other
_ROUNDING = 1e-9  # of a sum of thousands of terms


def forced_probability(inverse: Inverse, canaries: int, guesses: int, correct: int, tau: float) -> float:
    """P[N ≥ 0] is at least this if P[N ≥ correct] ≥ τ; above 1 that is a contradiction, and the rest is not summed."""
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
    """Is the probability of so many right guesses below τ, if the curve holds?"""
    return forced_probability(inverse, canaries, guesses, correct, tau) > 1 + _ROUNDING


def p_value(inverse: Inverse, canaries: int, guesses: int, correct: int, steps: int = 12) -> float:
    """So many right guesses are at most this likely, if the curve holds; 1 if nothing below ½ can be said."""
    low, high = 1e-12, 0.5
    if not rejects(inverse, canaries, guesses, correct, high):
        return 1.0
    for _ in range(steps):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if rejects(inverse, canaries, guesses, correct, middle) else (middle, high)
    return high


def most_correct(inverse: Inverse, canaries: int, guesses: int, tau: float) -> int:
    """The largest number of right guesses that is not rejected at τ."""
    low, high = 0, guesses + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if rejects(inverse, canaries, guesses, middle, tau) else (middle, high)
    return low
