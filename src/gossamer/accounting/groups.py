"""What a promise about one record says about k of them: information for runs that protect records.

A group of k records is k moves from one data set to the other. If each is (ε, δ₁), all are (kε, δ₁ (1 + e^ε + … +
e^((k−1)ε))): of the points of the proven curve the first counts whose δ₁ is smaller by that sum. Plain
Gaussians have a closed form: k records move each sum k times as far.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from gossamer.accounting.observers import EVERYONE, Observer
from gossamer.accounting.passes import Counted
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Event, Gaussian, Release, collate

SIZES = (2, 5, 20)  # records of one person
_DECADES = (0, 1, 3, 6, 10, 18, 32)  # by how much smaller a δ the curve is asked for
_CLASSES = 2  # of noises that go over a run
_NOTHING = 100.0  # an ε that promises nothing any more


def group_epsilons(
    histories: Iterable[Sequence[Event | Release]],
    delta: float,
    adjacency: str,
    *,
    observer: Observer = EVERYONE,
    sizes: Sequence[int] = SIZES,
) -> dict[int, float]:
    """k → proven ε of any k records, wherever they lie: the worst of these nodes' histories counts; ∞: none.

    At `delta` for every k.
    """
    kinds: list[list[Counted]] = list(
        {tuple(found): found for one in histories if (found := collate(one))}.values()
    )
    if any(release.unpriceable(adjacency) for one in kinds for release, _ in one):
        return dict.fromkeys(sizes, math.inf)
    seen = [[(release.seen_by(observer), count) for release, count in one] for one in kinds]
    if not seen:
        return dict.fromkeys(sizes, 0.0)
    if all(
        isinstance(release, Gaussian) and release.sampling == "full" for one in seen for release, _ in one
    ):
        return {k: max(_moved_together(one, k, delta, adjacency) for one in seen) for k in sizes}
    return _by_moves(seen, delta, adjacency, sizes)


def _moved_together(counted: Sequence[Counted], k: int, delta: float, adjacency: str) -> float:
    return proven([(release.scaled(1 / k), count) for release, count in counted], delta, adjacency).epsilon


def _by_moves(
    kinds: Sequence[Sequence[Counted]], delta: float, adjacency: str, sizes: Sequence[int]
) -> dict[int, float]:
    """By a few points of the curve: each is a guarantee by itself, so fewer of them only say less."""
    found = dict.fromkeys(sizes, math.inf)
    coarse = [tuple(_coarser(one)) for one in kinds]
    for decades in _DECADES:
        left = [k for k in sizes if math.isinf(found[k])]
        if not left:
            break
        smaller = delta * 10.0**-decades
        epsilon = max(_priced(one, smaller, adjacency) for one in coarse)
        for k in left:
            if _of_group(k, epsilon, smaller) <= delta:
                found[k] = k * epsilon
        if min(left) * epsilon > _NOTHING:
            break
    return found


@lru_cache(maxsize=512)  # plan and certificate ask for the same
def _priced(counted: tuple[Counted, ...], delta: float, adjacency: str) -> float:
    return proven(counted, delta, adjacency, tolerance=0.1).epsilon


def _coarser(counted: Sequence[Counted]) -> list[Counted]:
    """Gaussians that differ in their noise alone, in a few classes with the least noise of each: quicker to price."""
    alike: dict[Release, list[Counted]] = {}
    kept: list[Counted] = []
    for release, count in counted:
        if type(release) is Gaussian and not release.in_passes:
            form = replace(release, sigma=1.0, sensitivity=1.0)
            alike.setdefault(form, []).append((release, count))
        else:
            kept.append((release, count))
    for members in alike.values():
        ordered = sorted(members, key=lambda one: one[0].noise_multiplier)
        for part in np.array_split(np.arange(len(ordered)), min(_CLASSES, len(ordered))):
            own = [ordered[place] for place in part.tolist()]
            least = own[0][0]
            least = replace(least, sigma=least.noise_multiplier, sensitivity=1.0)
            kept.append((least, sum(count for _, count in own)))
    return kept


def _of_group(k: int, epsilon: float, delta: float) -> float:
    """δ₁ Σ_j e^(jε), j < k."""
    if delta == 0:
        return 0.0
    log_sum = (k - 1) * epsilon + math.log(-math.expm1(-k * epsilon) / -math.expm1(-epsilon))
    return math.inf if log_sum > 700 else delta * math.exp(log_sum)
