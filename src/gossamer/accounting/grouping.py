"""Groups of Gaussian pairs: thousands of different μ stand for a few, from above or from below.

All of a group take its largest μ for the upper bound (less noise dominates more noise: the difference can be added
afterwards) and its smallest for the lower. Groups are narrow where the cost of one more step reacts to μ and wide
elsewhere; that choice only affects how close the bounds are.
"""

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from gossamer.accounting.grid import Weighted
from gossamer.accounting.pairs import GaussianPair, Pair
from gossamer.accounting.profiles import FloatArray

COARSE_GROUPS = 12


class Grouping:
    """Gaussian pairs equal but for μ, cut into ranges of μ; other pairs stay as they are."""

    def __init__(self, pairs: Iterable[Weighted], per_family: int):
        families: dict[tuple[float, str], dict[float, int]] = {}
        others: dict[Pair, int] = {}
        for pair, count in pairs:
            if isinstance(pair, GaussianPair):
                members = families.setdefault((pair.rate, pair.kind), {})
                members[pair.mu] = members.get(pair.mu, 0) + count
            else:
                others[pair] = others.get(pair, 0) + count
        self._families = {
            GaussianPair(1.0, *family): sorted(members.items()) for family, members in families.items()
        }
        self._others = list(others.items())
        # position of each μ on a scale whose unit is one group
        self._scale = {
            family: spread(np.log([mu for mu, _ in members]), per_family)
            for family, members in self._families.items()
        }

    def choose(self, cost: Callable[[GaussianPair], float], error: float) -> None:
        """Cut so that all widths together move the bound by about `error`, with as few groups as that allows.

        `cost` is what one more step adds to ε. If a step at log μ = x costs c(x), a group of width w around
        it errs by w c′(x); the number of groups is least for w ∝ 1/sqrt(density of c′), and their error is
        then (Σ sqrt(n c′ Δx))² / groups.
        """
        roots = {}
        for family, members in self._families.items():
            x = np.log([mu for mu, _ in members])
            counts = np.array([count for _, count in members], dtype=float)
            knots = np.linspace(x[0] - 1e-3, x[-1] + 1e-3, COARSE_GROUPS)
            costs = [cost(replace(family, mu=float(np.exp(k)))) for k in knots] if len(x) > 1 else [math.inf]
            # where the coarse run could not price one more step, spread the groups evenly
            slope = np.gradient(costs, knots) if np.all(np.isfinite(costs)) else np.ones_like(knots)
            gaps = np.append(np.diff(x), 0.0)
            # above 0, so that no range stays uncut however often it is refined
            floor = max(1e-3 * float(np.max(slope)), 1e-12)
            roots[family] = np.sqrt(np.maximum(np.interp(x, knots, slope), floor) * counts * gaps)
        total = sum(float(root.sum()) for root in roots.values())
        if total == 0:
            return
        for family, root in roots.items():
            members = self._families[family]
            if len(members) <= COARSE_GROUPS:  # few enough to be told apart
                self._scale[family] = np.arange(len(members), dtype=float)
                continue
            positions = np.concatenate([[0.0], np.cumsum(root)[:-1]])
            # No group is wider than a factor of e: slopes at a few knots say nothing of what lies so far apart.
            widths = np.log([mu for mu, _ in members]) - math.log(members[0][0])
            self._scale[family] = positions * (total / error) + widths

    def finer(self, times: float) -> "Grouping":
        """So many times as many groups."""
        twin = copy.copy(self)
        twin._scale = {family: times * scale for family, scale in self._scale.items()}
        return twin

    def pessimistic(self) -> list[Weighted]:
        return self._others + [(replace(f, mu=m[-1][0]), sum(c for _, c in m)) for f, m in self._groups()]

    def optimistic(self) -> list[Weighted]:
        return self._others + [(replace(f, mu=m[0][0]), sum(c for _, c in m)) for f, m in self._groups()]

    def anchors(self) -> dict[Pair, Pair]:
        """pair → the pair that stands for it in the upper bound."""
        found: dict[Pair, Pair] = {}
        for family, members in self._groups():
            stands = replace(family, mu=members[-1][0])
            found.update((GaussianPair(mu, family.rate, family.kind), stands) for mu, _ in members)
        return found

    def _groups(self) -> Iterator[tuple[GaussianPair, list[tuple[float, int]]]]:
        for family, members in self._families.items():
            cell = np.floor(self._scale[family])
            cuts = [0, *(np.flatnonzero(np.diff(cell)) + 1), len(members)]
            for begin, end in itertools.pairwise(cuts):
                yield family, members[begin:end]


def spread(x: FloatArray, groups: int) -> FloatArray:
    width = (x[-1] - x[0]) / groups
    return np.zeros_like(x) if width == 0 else np.minimum((x - x[0]) / width, groups - 0.5)
