"""ε of releases, priced again: from the ledgers alone, for other observers than planned, and for groups of records.

Noise that each node draws for itself is the same to all observers, and has one figure. Noise that nodes share has a
curve over the number of colluding nodes. A larger coalition sees more, so its figure holds for smaller ones, too.

A group of k records is k moves from one data set to the other. If each is (ε, δ₁), all are (kε, δ₁ (1 + e^ε + … +
e^((k−1)ε))): of the points of the proven curve the first counts whose δ₁ is smaller by that sum. Plain
Gaussians have a closed form: k records move each sum k times as far.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.accounting import releases
from gossamer.accounting.chain import MOST_NODES, LedgerError
from gossamer.accounting.ledger import NodeGroup, read_groups
from gossamer.accounting.observers import EVERYONE, Observer, against_all, colluders
from gossamer.accounting.proven import Proven, proven
from gossamer.accounting.releases import ADJACENCIES, Counted, Event, Gaussian, Release, collate

# Up to so many nodes each number of colluders has a figure, else about so many do.
MOST_POINTS, POINTS = 40, 20
# How close to each other the bounds of a composition that takes numbers must come, as a share of ε.
ROUGH = 0.05


@dataclass(frozen=True, eq=False)  # nodes that did the same share one: histories are long to compare
class Spent:
    """The releases of a node, and their ε against the observer that was planned for."""

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
        terms = spent.history, spent.delta, spent.adjacency
        bounds = [
            spent.epsilon if q == self.planned else proven(*terms, observer=colluders(q), tolerance=ROUGH).epsilon
            for q in self.at
        ]
        return self.around(list(accumulate(reversed(bounds), min))[::-1], spent.epsilon)

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
    def reported(self) -> tuple[int, ...]:
        """The numbers of colluders that are listed as observers: none, as planned, half of the nodes, all others.

        And one, if it was planned for none: the first that comes to mind.
        """
        return tuple(sorted({0, min(self.planned or 1, self.nodes - 1), self.nodes // 2, self.nodes - 1}))


def sharing(released: Iterable[Release]) -> Sharing | None:
    """Return how all these releases of a run share noise; None if they do not."""
    different = list(dict.fromkeys(released))
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
    different = dict.fromkeys(tuple(collate(one)) for one in histories)
    counted = [[(release.seen_by(observer), count) for release, count in one] for one in different if one]
    if any(release.unpriceable(adjacency) for one in counted for release, _ in one):
        return dict.fromkeys(sizes, math.inf)
    if not counted:
        return dict.fromkeys(sizes, 0.0)
    if all(isinstance(one, Gaussian) and one.sampling == "full" for own in counted for one, _ in own):
        moved = {k: [[(one.scaled(1 / k), count) for one, count in own] for own in counted] for k in sizes}
        return {k: max(proven(own, delta, adjacency).epsilon for own in moved[k]) for k in sizes}
    return _by_moves(counted, delta, adjacency, sizes)


def _by_moves(
    histories: Sequence[Sequence[Counted]], delta: float, adjacency: str, sizes: Sequence[int]
) -> dict[int, float]:
    """By a few points of the curve: each is a guarantee by itself, so fewer of them only say less."""
    epsilons = dict.fromkeys(sizes, math.inf)
    coarse = [tuple(_coarser(one)) for one in histories]
    for decades in _DECADES:
        left = [k for k in sizes if math.isinf(epsilons[k])]
        if not left:
            break
        smaller = delta * 10.0**-decades
        epsilon = max(_priced(one, smaller, adjacency) for one in coarse)
        for k in left:
            if _of_group(k, epsilon, smaller) <= delta:
                epsilons[k] = k * epsilon
        if min(left) * epsilon > _NOTHING:
            break
    return epsilons


@lru_cache(maxsize=512)  # plan and certificate ask for the same
def _priced(counted: tuple[Counted, ...], delta: float, adjacency: str) -> float:
    return proven(counted, delta, adjacency, tolerance=0.1).epsilon


def _coarser(counted: Sequence[Counted]) -> list[Counted]:
    """Gaussians that differ in their noise alone, in a few classes with the least noise of each: quicker to price."""
    alike: dict[tuple[object, ...], list[tuple[float, int, Release]]] = {}
    coarse: list[Counted] = []
    for release, count in counted:
        if type(release) is Gaussian and not release.in_passes:
            key = (
                release.sampling, release.rate, release.adjacency,
                release.pass_number, release.lot_number, release.clipped,
            )  # fmt: skip
            alike.setdefault(key, []).append((release.noise_multiplier, count, release))
        else:
            coarse.append((release, count))
    for members in alike.values():
        members.sort(key=lambda one: one[0])
        for part in np.array_split(np.arange(len(members)), min(_CLASSES, len(members))):
            multiplier, _, release = members[part[0]]
            unit = replace(release, sigma=multiplier, sensitivity=1.0)
            coarse.append((unit, sum(members[k][1] for k in part)))
    return coarse


def _of_group(k: int, epsilon: float, delta: float) -> float:
    """δ₁ Σ_j e^(jε), j < k."""
    if delta == 0:
        return 0.0
    log_sum = (k - 1) * epsilon + math.log(-math.expm1(-k * epsilon) / -math.expm1(-epsilon))
    return math.inf if log_sum > 700 else delta * math.exp(log_sum)


@dataclass(frozen=True)
class NodeProof:
    node: int
    header: dict[str, Any]
    draws: int
    proven: Proven
    observer: Observer  # whom it holds against
    spent: Spent  # what was priced; the same object for nodes that did the same
    path: Path  # of its ledger
    head: str  # the hash of the last line there


def recompute(directory: Path, nodes: Iterable[int] | None = None, *, observer: Observer = EVERYONE) -> list[NodeProof]:
    """Verify the chains of these nodes (of all) and price their events; equal histories are priced once."""
    priced: dict[tuple[Any, ...], tuple[Proven, Spent]] = {}
    proofs = []
    before: tuple[list[Event], tuple[Counted, ...]] = ([], ())
    for one, events in _groups(directory, nodes):
        # Most nodes do what the one before did, and its events are the very same objects: quick to compare.
        history = before[1] if events and events == before[0] else tuple(collate(events))
        before = events, history
        terms = one.header["delta"], one.header["adjacency"]
        if (history, terms) not in priced:
            price = proven(history, *terms, observer=observer)
            priced[history, terms] = price, Spent(history, *terms, price.epsilon)
        price, spent = priced[history, terms]
        against = observer
        if observer is EVERYONE:
            against = against_all(release.planned_for for release, _ in history)
        proofs += [
            NodeProof(node, one.header, len(one.events), price, against, spent, one.path, one.head)
            for node in one.nodes
        ]
    return sorted(proofs, key=lambda proof: proof.node)


def shared_noise(proofs: Sequence[NodeProof]) -> Sharing | None:
    """Return how these nodes share noise, as their ledgers state."""
    if all(proof.observer.colluders is None for proof in proofs):
        return None
    different = dict.fromkeys(proof.spent for proof in proofs)
    return sharing(release for spent in different for release, _ in spent.history)


def worst_epsilon(directories: Sequence[Path], adjacency: str | None = None) -> float:
    """The worst node's ε over runs on the same records, all releases composed; `adjacency`: another than theirs."""
    runs: dict[int, list[list[Event]]] = {}
    terms: dict[int, tuple[float, str]] = {}
    for directory in directories:
        for one, events in _groups(directory):
            for node in one.nodes:
                runs.setdefault(node, []).append(events)
                terms[node] = one.header["delta"], adjacency or one.header["adjacency"]
    # Nodes that did the same share their lists: these are looked at once.
    different = {(*map(id, own), terms[node]): (own, terms[node]) for node, own in runs.items()}
    every = ((collate(releases.of_several_runs(own)), terms) for own, terms in different.values())
    histories = {(tuple(history), terms) for history, terms in every}
    return max(proven(history, *of_node).epsilon for history, of_node in histories)


def _groups(directory: Path, nodes: Iterable[int] | None = None) -> list[tuple[NodeGroup, list[Event]]]:
    """The nodes of a directory by what they did, headers checked, each with all events that one record is in.

    Where copies of a record are on k nodes, these are what the k nodes release together, at most. Nodes may have
    released different things (who writes when is their own choice). Whatever one did is among what all of them did,
    each kind as often as the node that did it most: so many times that, k nodes release no more.
    """
    groups = read_groups(directory, nodes)
    for one in groups:
        _check_header(one)
    copied: dict[int, list[Event]] = {}
    if copies := {one.header.get("copies", 1) for one in groups} - {1}:
        # Ledgers of nodes that are not asked about count, too: a copy may be theirs.
        most: Counter[Release] = Counter()
        for one in read_groups(directory):
            most |= Counter(dict(collate(one.events)))
        together = [Event(draw, one) for draw, one in enumerate(most.elements())]
        copied = {k: releases.on_several_nodes(together, k) for k in copies}
    return [(one, copied.get(one.header.get("copies", 1), one.events)) for one in groups]


def _check_header(group: NodeGroup) -> None:
    """Refuse a first line without all that its events are priced by; remember the graph of secrets that it lists."""
    delta, copies = group.header.get("delta"), group.header.get("copies", 1)
    texts = [key for key in ("unit", "noise") if not isinstance(group.header.get(key), str)]
    problem = None
    if not isinstance(delta, float) or not 0 < delta < 1:
        problem = "'delta' is no number between 0 and 1"
    elif group.header.get("adjacency") not in ADJACENCIES:
        problem = f"'adjacency' is none of {', '.join(ADJACENCIES)}"
    elif type(copies) is not int or not 1 <= copies <= MOST_NODES:
        problem = "'copies' is no whole number from 1 on"
    elif texts:
        problem = f"{texts[0]!r} is missing or no text"
    try:
        releases.remember_listed(group.header.get("secrets"), [event.release for event in group.events[:1]])
    except ValueError as error:
        problem = problem or f"'secrets' {error}"
    if problem:
        raise LedgerError(f"{group.path} line 1 is damaged: its {problem}; put it back")
