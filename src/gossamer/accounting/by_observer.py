"""ε by observer: what the same releases cost if more or fewer nodes pool what they know than was planned for.

Noise that each node draws for itself is the same to all observers, and has one figure. Noise that nodes share has a
curve over the number of colluding nodes. Whoever is more sees more, so a figure for some holds for fewer, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from gossamer.accounting.observers import UNIT, Colluders, Observer, against_all
from gossamer.accounting.passes import Counted
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Release

MOST_POINTS, POINTS = (
    40,
    20,
)  # up to so many nodes each number of colluders has a figure, else about so many do
ROUGH = (
    0.05  # how close to each other the bounds of a composition that takes numbers must come, as a share of ε
)


@dataclass(frozen=True, eq=False)  # nodes that did the same share one: histories are long to compare
class Spent:
    """What a node released, and what that costs against whom it was planned for."""

    history: tuple[Counted, ...]
    delta: float
    adjacency: str
    epsilon: float


@dataclass(frozen=True)
class Sharing:
    """Noise that these nodes share, planned against so many of them, and the numbers of colluders with a figure."""

    nodes: int
    planned: int
    at: tuple[int, ...]

    def epsilons(self, spent: Spent) -> list[float]:
        """Of one node's records, at each of `at`."""
        found = [
            spent.epsilon
            if q == self.planned
            else proven(
                spent.history, spent.delta, spent.adjacency, observer=Colluders(q), tolerance=ROUGH
            ).epsilon
            for q in self.at
        ]
        return self.around(list(accumulate(reversed(found), min))[::-1], spent.epsilon)

    def around(self, epsilons: Sequence[float], planned: float) -> list[float]:
        """These, with the planned figure in its place: no more for fewer colluders, no less for more."""
        return [
            min(e, planned) if q < self.planned else max(e, planned) if q > self.planned else planned
            for q, e in zip(self.at, epsilons, strict=True)
        ]

    def worst(self, spent: Iterable[Spent]) -> list[float]:
        """Of the worst node at each of `at`; what several nodes share is priced once."""
        return [max(figures) for figures in zip(*map(self.epsilons, dict.fromkeys(spent)), strict=True)]

    @property
    def told(self) -> tuple[int, ...]:
        """The numbers of colluders that stand for an observer: nobody, as planned, half of the nodes, all others.

        And one, if it was planned for nobody: the first that comes to mind.
        """
        return tuple(sorted({0, min(self.planned or 1, self.nodes - 1), self.nodes // 2, self.nodes - 1}))


def sharing(releases: Iterable[Release]) -> Sharing | None:
    """How all these releases of a run share noise; None if they do not."""
    different = list(dict.fromkeys(releases))
    most = max((one.most_colluders for one in different if one.most_colluders is not None), default=None)
    planned = against_all(one.planned_for for one in different).colluders
    if most is None or planned is None:
        return None
    nodes = most + 1
    quick = all(one.amplifying_rate == 1 and one.sampling != "balls-and-bins" for one in different)
    return Sharing(nodes, planned, _counts(nodes, planned, quick=quick))


def _counts(nodes: int, planned: int, *, quick: bool) -> tuple[int, ...]:
    """In closed form all are priced, or enough for a curve; where each takes a composition, a few."""
    last = nodes - 1
    if quick and nodes <= MOST_POINTS:
        return tuple(range(nodes))
    few = {0, planned, min(2 * planned or 1, last), nodes // 2, last}
    if not quick:
        return tuple(sorted(few))
    # Close together where few collude, which is what is planned for, and where few are left, where ε grows most.
    steps = [round(last ** (k / (POINTS // 2 - 1))) for k in range(POINTS // 2)]
    return tuple(sorted({*few, *(min(q, last) for q in steps), *(max(last - q, 0) for q in steps)}))


def by_observer(
    shared: Sharing | None,
    epsilons: Sequence[float],
    *,
    planned: Observer,
    epsilon: float,
    delta: float,
    adjacency: str,
    unit: str = UNIT,
) -> dict[str, Any]:
    """As plans and certificates have it; `epsilons` at `shared.at`. Where nothing is proven ε is None."""
    figures = dict(zip(shared.at if shared else (), map(_finite, epsilons), strict=True))
    return {
        "epsilon_by_observer": rows(
            shared,
            figures,
            planned=planned,
            epsilon=_finite(epsilon),
            delta=delta,
            adjacency=adjacency,
            unit=unit,
        ),
        "epsilon_by_colluders": [{"colluders": q, "epsilon": figure} for q, figure in figures.items()],
    }


def rows(
    shared: Sharing | None,
    figures: Mapping[int, float | None],
    *,
    planned: Observer,
    epsilon: float | None,
    delta: float,
    adjacency: str,
    unit: str = UNIT,
) -> list[dict[str, Any]]:
    """A line for each observer, complete by itself; `figures` by the number of colluders."""
    found: list[tuple[Observer, float | None]] = [(planned, epsilon)]
    if shared is not None:
        found = [(Colluders(q), figures[q]) for q in shared.told]
    return [
        {
            "observer": who.name,
            "words": who.describe(),
            "colluders": who.colluders,
            "epsilon": figure,
            "delta": delta,
            "adjacency": adjacency,
            "unit": unit,
            "planned": who == planned,
        }
        for who, figure in found
    ]


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value
