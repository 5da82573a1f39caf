"""Many proven guarantees (ε, δ(ε)) of the same releases, taken together: the trade-off curve they leave an attacker.

An attacker says "in" where an event happens. Let h be how often it does on one side (hits) and a on the other (false
alarms). Each (ε, δ), with ε ≥ 0, of a guarantee that holds both ways round asks, of the event and of its complement,

    h ≤ e^ε a + δ        1 − a ≤ e^ε (1 − h) + δ,  that is  h ≤ 1 − e^{−ε} (1 − δ − a)

so all of them together allow at most T(a), the least of these straight lines, and ask for at least T⁻¹(h), the
largest of the same lines solved for a. With f the trade-off function of f-DP, T(a) = 1 − f(a) and T⁻¹(h) = f(1 − h).

A finite list of ε is on the safe side: every line is a proven guarantee by itself, and one that is left out, or a δ
that is larger than it need be, only allows more. T is concave and T⁻¹ convex, as a least and a largest of lines.
"""

import bisect
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gossamer.accounting.profiles import FloatArray

_ROUNDING = 1e-9  # δ is taken larger by this share of itself, against rounding where it was computed
_LARGEST_EPSILON = 500.0  # beyond it e^ε says nothing that an attacker could see
_FLOAT = 700.0  # beyond it e^ε is no number


@dataclass(frozen=True)
class TradeOff:
    """`points` are (ε, δ), each a guarantee that holds both ways round."""

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a trade-off curve needs a guarantee")
        if any(not (epsilon >= 0 and delta >= 0) for epsilon, delta in self.points):
            raise ValueError("a guarantee has ε ≥ 0 and δ ≥ 0")

    @classmethod
    def of(cls, epsilons: Iterable[float], deltas: Iterable[float]) -> "TradeOff | None":
        """Of the guarantees that say anything; None if there is none."""
        pairs = [(float(e), float(d) * (1 + _ROUNDING)) for e, d in zip(epsilons, deltas, strict=True)]
        told = tuple((e, d) for e, d in pairs if e <= _LARGEST_EPSILON and d < 1)
        return cls(told) if told else None

    def most_hits(self, false_alarms: "float | FloatArray") -> FloatArray:
        """T: the largest true positive rate at this false positive rate."""
        a = np.asarray(false_alarms, dtype=float)[..., None]
        grow, delta = self._table
        lines = np.minimum(grow * a + delta, 1 - (1 - delta - a) / grow)
        return np.asarray(np.clip(lines.min(axis=-1), 0.0, 1.0))

    def least_false_alarms(self, hits: float) -> float:
        """T⁻¹: the smallest false positive rate at this true positive rate."""
        at = bisect.bisect_right(self._breaks, hits)
        near = self._lines[max(at - 1, 0) : at + 1]  # the breaks are rounded
        return max(0.0, *(at_one - slope * (1 - hits) for slope, at_one in near))

    def tightest(self, false_alarms: float) -> tuple[float, float, float]:
        """(ε, δ) of the guarantee that allows fewest hits at this false positive rate, and its slope e^{±ε} there."""
        found = (math.inf, 0.0, 0.0, 0.0)
        for epsilon, delta in self.points:
            grow = math.exp(min(epsilon, _FLOAT))
            found = min(found, (grow * false_alarms + delta, epsilon, delta, grow))
            found = min(found, (1 - (1 - delta - false_alarms) / grow, epsilon, delta, 1 / grow))
        return found[1:]

    @cached_property
    def _table(self) -> tuple[FloatArray, FloatArray]:
        """e^ε and δ."""
        epsilon, delta = np.array(self.points).T
        return np.exp(np.minimum(epsilon, _FLOAT)), delta

    @cached_property
    def _hull(self) -> tuple[list[tuple[float, float]], list[float]]:
        """The lines of T⁻¹ that are largest somewhere, by slope, and the hits where the next one takes over.

        A line is (slope, value at hits = 1), for near 1 the steep ones count, and nothing may cancel there. Should
        rounding choose a line next to the largest, the answer is smaller: still a guarantee.
        """
        lines: dict[float, float] = {}
        for epsilon, delta in self.points:
            grow = math.exp(min(epsilon, _FLOAT))
            for slope, at_one in ((1 / grow, (1 - delta) / grow), (grow, 1 - delta)):
                lines[slope] = max(lines.get(slope, -math.inf), at_one)
        kept: list[tuple[float, float]] = []
        for line in sorted(lines.items()):
            # The last one is in the way if it is overtaken before it has overtaken the one before it.
            while len(kept) > 1 and _crossing(kept[-1], line) <= _crossing(kept[-2], kept[-1]):
                kept.pop()
            kept.append(line)
        return kept, [_crossing(one, other) for one, other in itertools.pairwise(kept)]

    @property
    def _lines(self) -> list[tuple[float, float]]:
        return self._hull[0]

    @property
    def _breaks(self) -> list[float]:
        return self._hull[1]


def _crossing(flat: tuple[float, float], steep: tuple[float, float]) -> float:
    """The hits from which on the steep line is the larger."""
    return 1 - (steep[1] - flat[1]) / (steep[0] - flat[0])
