"""Attacks on noise that nodes share: an observer of all sums uses those of the others to predict one node's noise.

An observer that holds the secrets of some nodes first subtracts their share of the noise: all of it from their own
sums, the common masks from the others'. The rest on the honest nodes' sums has a covariance over nodes, and the best
score of one node's sum is along the inverse of it. The attacker does not rely on the stated covariance but estimates
it from trainings of its own without records, so it also detects masks that are too small, missing or used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gossamer.accounting.observers import Observer
from gossamer.auditing.recovery import Attacker, Draw, Revealed, reads_exactly
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream
from gossamer.mechanism.noise.pairwise import PairwiseAmong, PairwiseNoise
from gossamer.training.assemble import Parts
from gossamer.training.privacy import PrivacyPlan

Matrix = NDArray[np.float64]
MOST_PAIRS = 5000  # of which masks are drawn one by one
_MOST_JOINT = 128  # sums of all draws and honest nodes whose joint covariance is estimated
# Samples of the estimate, and per sum: the score loses less than one hundredth of its μ.
_SAMPLES, _SAMPLES_EACH = 4000, 50


def proven_against(plan: PrivacyPlan, view: Observer) -> tuple[PrivacyPlan, dict[str, Any] | None]:
    """The plan with what is proven against this observer, and both figures if that is not what was planned for."""
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


@dataclass(frozen=True)
class Secrets:
    """The nodes whose secrets an observer holds, and the node whose records it attacks."""

    members: tuple[int, ...]
    victim: int

    @classmethod
    def held_by(cls, view: Observer, plan: PrivacyPlan) -> Secrets | None:
        """None where nodes share no noise. Of "any q nodes" the worst are taken, where they can be found."""
        kind = plan.noise
        if not isinstance(kind, PairwiseAmong):
            return None
        if view.target is not None:
            return cls(view.members, view.target)
        count = kind.colluders if view.colluders is None else view.colluders
        return cls(*kind.secrets.worst_coalition(count, kind.ratio, [node.factor for node in plan.nodes]))

    @property
    def note(self) -> str:
        nodes = ", ".join(map(str, self.members))
        secrets = f"the secrets of nodes {nodes}" if self.members else "no node's secrets"
        return f"The attacker holds {secrets} and attacks the records of node {self.victim}."

    def honest(self, nodes: int) -> list[int]:
        return [i for i in range(nodes) if i not in self.members]

    def unknown(self, plan: PrivacyPlan) -> Matrix:
        """The stated covariance of the noise that the members do not know, in units of each node's own."""
        kind = plan.noise
        assert isinstance(kind, PairwiseAmong)
        inside = np.zeros(kind.secrets.nodes, dtype=bool)
        inside[list(self.members)] = True
        laplacian = kind.secrets.laplacian
        laplacian[inside], laplacian[:, inside] = 0.0, 0.0
        among = laplacian - np.diag(laplacian.sum(1))  # a secret with a member is none
        return np.asarray(np.diag(1.0 - inside) + kind.ratio * among, dtype=np.float64)

    def prepare(self, parts: Parts, view: Observer) -> Parts:
        """The same noise, drawn pair by pair so that the members' share of it can be computed."""
        config, secrets = parts.plan.config, parts.plan.privacy.noise
        assert isinstance(secrets, PairwiseAmong)
        assert isinstance(parts.noise, PairwiseNoise)
        sampling, algorithm = config.privacy.sampling, config.algorithm.kind
        if sampling.needs_true_sizes or (view.sees_all and not reads_exactly(parts.plan.algorithm)):
            raise UserError(
                f"privacy.sampling.kind = {sampling.kind!r} or algorithm.kind = {algorithm!r} does not let messages "
                "reveal the noised sums exactly, with records at one node alone, as an audit of noise that nodes share "
                "needs it; use --canary release."
            )
        if not self.members:
            return parts
        pairs = sum(1 for _ in secrets.secrets.pairs())
        if pairs > MOST_PAIRS:
            what = f"nodes = {config.nodes} share {pairs:,} secrets, and colluding nodes' noise is drawn pair by pair"
            remedy = "use --observer all+0 or --canary release"
            raise UserError(f"{what}, for up to {MOST_PAIRS:,} pairs; {remedy}.")
        return replace(parts, noise=replace(parts.noise, by_pairs=True))

    def known_noise(self, stacked: Parts, attacker: Attacker, stream: Stream) -> Callable[[int], Tensor]:
        """(m, d) of draw k: the noise on all sums that the members know."""
        noise, dimension = stacked.noise, stacked.plan.stack.dim
        assert isinstance(noise, PairwiseNoise)
        rows = np.arange(len(stacked.nodes))

        def known(k: int) -> Tensor:
            if not self.members:
                return torch.zeros(len(rows), dimension)
            return noise.known_to(self.members, stream, rows, k, dimension) * attacker.spread(k)

        return known

    def honest_sums(
        self,
        stacked: Parts,
        attacker: Attacker,
        stream: Stream,
        nodes: int,
        take: Callable[[Matrix, float], None],
    ) -> Callable[[Revealed], None]:
        """Hand the honest nodes' sums of every look, without their known noise, to `take`: (honest, runs · d).

        With them goes the distance by which a canary would move its node's sum.
        """
        known, honest = self.known_noise(stacked, attacker, stream), self.honest(nodes)

        def note(revealed: Revealed) -> None:
            assert isinstance(revealed, Draw)
            sums = attacker.sums(revealed)
            if self.members:
                for k, gain in zip(revealed.draws, revealed.gains, strict=True):
                    sums = sums - gain * known(k)
            signal = attacker.moved(revealed, self.victim * (len(sums) // nodes))
            take(sums.double().numpy().reshape(nodes, -1)[honest], signal)

        return note


class Direction(NamedTuple):
    """Weights over the honest nodes' sums of one look.

    `spread` of the weighted sum; None where all looks are weighed together, and the sum itself is the score.
    """

    weights: Matrix
    signal: float
    spread: float | None = None


@dataclass
class CovarianceEstimate:
    """The honest nodes' sums in trainings without records: jointly over all looks, or look by look."""

    joint: bool
    samples: int
    looks: list[Matrix] = field(default_factory=list)  # centred sums if joint, else their covariance
    signals: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, honest: int, rounds: int, rates: Sequence[float]) -> CovarianceEstimate:
        """Jointly where lots are full and the sums are few, with enough samples for either."""
        joint = all(rate == 1.0 for rate in rates) and honest * rounds <= _MOST_JOINT
        return cls(joint, max(_SAMPLES, _SAMPLES_EACH * honest * (rounds if joint else 1)))

    def take(self, sums: Matrix, signal: float) -> None:
        centred = sums - sums.mean(1, keepdims=True)
        self.looks.append(centred if self.joint else centred @ centred.T / centred.shape[1])
        self.signals.append(signal)

    def directions(self, place: int) -> list[Direction]:
        """The direction of every look; `place` is the victim's among the honest nodes."""
        m = len(self.looks[0])
        if self.joint:
            sums = np.concatenate(self.looks)
            moved = np.zeros(len(sums))
            moved[place::m] = self.signals
            weights = np.linalg.solve(sums @ sums.T / sums.shape[1], moved).reshape(-1, m)
            return list(map(Direction, weights, self.signals))
        inverses = [np.linalg.solve(covariance, np.eye(m)[place]) for covariance in self.looks]
        return [
            Direction(inverse / float(inverse[place]), signal, float(inverse[place]) ** -0.5)
            for inverse, signal in zip(inverses, self.signals, strict=True)
        ]


class DirectionScores:
    """The evidence of every look along its direction, one score per run and axis."""

    def __init__(self, attacker: Attacker, row: int, directions: Sequence[Direction], coins: int):
        self._attacker, self._row, self._directions = attacker, row, iter(directions)
        self.scores: Matrix = np.zeros(coins)

    def take(self, sums: Matrix, signal: float) -> None:
        direction = next(self._directions)
        seen = direction.weights @ sums
        if direction.spread is not None:
            about = torch.from_numpy(seen), direction.signal, direction.spread, self._row
            seen = self._attacker.of_one_row(*about).numpy()
        self.scores += seen
