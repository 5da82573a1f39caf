"""Attacks on noise that nodes share: whoever sees all sums uses the sums of the others against one node's noise.

An observer who holds some nodes' secrets first takes off what these know of the noise: of their own sums all, of the
others' the masks they share. What is left on the sums of the honest has a covariance over nodes, and the best look at
one node's sum is along the inverse of that. The attacker does not believe the stated covariance, it learns it from
trainings of its own, in which nobody holds a record: so it also finds masks that are too small, missing or used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.accounting.observers import Observer
from gossamer.auditing.attacker import Attacker
from gossamer.auditing.recovery import Draw, Sign, Step, reads_exactly
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise.base import ROUND_UP
from gossamer.mechanism.noise.pairwise import PairwiseAmong, PairwiseNoise
from gossamer.training.assemble import Parts
from gossamer.training.privacy import PrivacyPlan

Matrix = NDArray[np.float64]
Take = Callable[[Matrix, float], None]  # (the honest nodes' sums, how far a canary would move its node's)
MOST_PAIRS = 5000  # of which masks are drawn one by one
MOST_TOGETHER = 128  # sums of all draws and honest nodes whose covariance is learned whole
SAMPLES, SAMPLES_EACH = (
    4000,
    50,
)  # to learn from, and per sum: of its μ the score loses less than one in a hundred


@dataclass(frozen=True)
class Held:
    """Of which nodes an observer holds the secrets, and whose records it is after."""

    members: tuple[int, ...]
    victim: int

    def describe(self) -> str:
        whose = (
            f"the secrets of nodes {', '.join(map(str, self.members))}"
            if self.members
            else "no node's secrets"
        )
        return f"The attacker holds {whose}, and is after the records of node {self.victim}."

    def honest(self, nodes: int) -> list[int]:
        return [i for i in range(nodes) if i not in self.members]


def held_by(view: Observer, plan: PrivacyPlan) -> Held | None:
    """None where nodes share no noise. Of "any q nodes" the worst are taken, where they can be found."""
    kind = plan.noise
    if not isinstance(kind, PairwiseAmong):
        return None
    if view.target is not None:
        return Held(view.members, view.target)
    count = kind.colluders if view.colluders is None else view.colluders
    return Held(*kind.secrets.worst_coalition(count, kind.ratio, [node.factor for node in plan.nodes]))


def held_against(plan: PrivacyPlan, view: Observer) -> tuple[PrivacyPlan, dict[str, Any] | None]:
    """The plan with what is proven against this observer, and both figures where that is not what was planned for."""
    kind = plan.noise
    if not isinstance(kind, PairwiseAmong) or (view.colluders is None and not view.members):
        return plan, None
    count, seen = view.colluders or len(view.members), plan.against(view)
    figures = {
        "colluders": count,
        "epsilon_proven": seen.figures()["epsilon_proven"],
        "colluders_planned": kind.colluders,
        "epsilon_proven_as_planned": plan.figures()["epsilon_proven"],
    }
    return seen, figures if count != kind.colluders or view.members else None


def unknown_to(held: Held, plan: PrivacyPlan) -> Matrix:
    """The stated covariance of what these nodes do not know of the noise, in units of each node's own."""
    kind = plan.noise
    assert isinstance(kind, PairwiseAmong)
    inside = np.zeros(kind.secrets.nodes, dtype=bool)
    inside[list(held.members)] = True
    laplacian = kind.secrets.laplacian()
    laplacian[inside], laplacian[:, inside] = 0.0, 0.0
    among = laplacian - np.diag(laplacian.sum(1))  # a secret with a member is none
    return np.asarray(np.diag(1.0 - inside) + kind.ratio * among, dtype=np.float64)


def prepared(parts: Parts, view: Observer, held: Held) -> Parts:
    """The same noise, drawn so that it can be said what the members know of it."""
    config, secrets = parts.plan.config, parts.plan.privacy.noise
    assert isinstance(secrets, PairwiseAmong)
    assert isinstance(parts.noise, PairwiseNoise)
    if config.privacy.sampling.needs_true_sizes:
        raise UserError(
            f"privacy.sampling.kind = {config.privacy.sampling.kind!r} needs records on every node, and an audit of "
            "noise that nodes share puts them on one; use --canary release."
        )
    if view.sees_all and not reads_exactly(parts.plan.algorithm):
        raise UserError(
            "noise that nodes share is audited where the noised sums come off the messages exactly, which those of "
            f"algorithm.kind = {config.algorithm.kind!r} do not as it is set; use --canary release."
        )
    if not held.members:
        return parts
    pairs = sum(1 for _ in secrets.secrets.pairs())
    if pairs > MOST_PAIRS:
        raise UserError(
            f"what colluding nodes know is drawn pair by pair, for up to {MOST_PAIRS:,} pairs, and nodes = "
            f"{config.nodes} share {pairs:,} secrets; use --observer all+0 or --canary release."
        )
    return replace(parts, noise=replace(parts.noise, by_pairs=True))


def known_noise(stacked: Parts, attacker: Attacker, stream: Stream, held: Held) -> Callable[[int], Tensor]:
    """(m, d) of draw k: what the members know of the noise on all sums."""
    noise, dimension = stacked.noise, stacked.plan.stack.dim
    assert isinstance(noise, PairwiseNoise)
    rows = np.arange(len(stacked.nodes))

    def known(k: int) -> Tensor:
        if not held.members:
            return torch.zeros(len(rows), dimension)
        return noise.known_to(held.members, stream, rows, k, dimension) * (ROUND_UP * attacker.spread(k))

    return known


class Sums:
    """Hands on every look at the honest nodes' sums, without what is known of their noise: (honest, runs · d)."""

    def __init__(
        self,
        attacker: Attacker,
        known: Callable[[int], Tensor],
        held: Held,
        nodes: int,
        take: Take,
    ):
        self._attacker, self._known, self._take, self._nodes = attacker, known, take, nodes
        self._held, self._honest = held, held.honest(nodes)

    def __call__(self, found: Draw | Sign | Step) -> None:
        assert isinstance(found, Draw)
        assert found.known is None
        sums = self._attacker.sums(found)
        if self._held.members:
            for k, gain in zip(found.draws, found.gains, strict=True):
                sums = sums - gain * self._known(k)
        rows = sums.double().numpy().reshape(self._nodes, -1)
        signal = self._attacker.moved(found, self._held.victim * (len(sums) // self._nodes))
        self._take(rows[self._honest], signal)


@dataclass
class Study:
    """What trainings without records showed: the honest nodes' sums, look by look, and what a canary would do."""

    together: bool  # are all looks one, or each its own?
    looks: list[Matrix] = field(default_factory=list)  # sums, or their covariance
    signals: list[float] = field(default_factory=list)

    def take(self, sums: Matrix, signal: float) -> None:
        centred = sums - sums.mean(1, keepdims=True)
        self.looks.append(centred if self.together else centred @ centred.T / centred.shape[1])
        self.signals.append(signal)

    def directions(self, place: int) -> list[Direction]:
        """How to look at the sums of each look; `place` is the victim's among the honest."""
        if not self.together:
            return [
                _alone(covariance, place, signal)
                for covariance, signal in zip(self.looks, self.signals, strict=True)
            ]
        m, all_sums = len(self.looks[0]), np.concatenate(self.looks)
        moved = np.zeros(len(all_sums))
        moved[place::m] = self.signals
        weights = np.linalg.solve(all_sums @ all_sums.T / all_sums.shape[1], moved)
        return [
            Direction(weights[i : i + m], signal, None)
            for i, signal in zip(range(0, len(weights), m), self.signals, strict=True)
        ]


@dataclass(frozen=True)
class Direction:
    weights: Matrix  # over the honest nodes
    signal: float
    spread: (
        float | None
    )  # of the weighted sum; None where all looks are weighed together, and their sum is the score


def _alone(covariance: Matrix, place: int, signal: float) -> Direction:
    inverse = np.linalg.solve(covariance, np.eye(len(covariance))[place])
    return Direction(inverse / inverse[place], signal, float(inverse[place]) ** -0.5)


class Along:
    """The scores: evidence of every look along its direction, one per run and axis."""

    def __init__(self, attacker: Attacker, row: int, directions: Sequence[Direction], coins: int):
        self._attacker, self._row, self._directions = attacker, row, iter(directions)
        self.scores: Matrix = np.zeros(coins)

    def take(self, sums: Matrix, signal: float) -> None:
        way = next(self._directions)
        seen = way.weights @ sums
        if way.spread is None:
            self.scores += seen
        else:
            evidence = self._attacker.of_one_row(torch.from_numpy(seen), way.signal, way.spread, self._row)
            self.scores += evidence.numpy()
