"""The privacy plan of a run: public constants, noise, claimed and proven ε of every node.

Everything here follows from the configuration and the declared record counts alone; no record is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gossamer.accounting.alternatives import Sharing, Spent, by_observer, finite, group_epsilons, sharing
from gossamer.accounting.claimed import Claim
from gossamer.accounting.observers import EVERYONE, ONE_RECORD, RECORD, Observer, Unit
from gossamer.accounting.profiles import TradeOff
from gossamer.accounting.proven import Proven, curve, profile, proven
from gossamer.accounting.releases import Event, Release, collate, on_several_nodes
from gossamer.kernels.rounding import excess
from gossamer.mechanism.clipping import Schedule
from gossamer.mechanism.noise import NoiseKind, Participation
from gossamer.mechanism.sampling import SamplingKind
from gossamer.methods.claims import ClaimRule, Draws

DRAWN = 0.05  # relative tolerance of figures for charts
NO_CLAIM = Claim(None, "no paper claims an ε for this mechanism", ())
UNPRICED = Proven(math.inf, "", because="it was not priced")


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """One node's public constants and what its releases cost."""

    records: int  # declared J: of records, or of persons where they are protected
    rate: float  # sampling rate q
    lot: float  # divisor L
    epsilon: float | None  # what was asked for
    delta: float
    allowance: int  # draws the budget pays for
    factor: float = 0.0  # noise multiplier of draw k = factor · shape(k)
    claim: Claim = NO_CLAIM
    proven: Proven = UNPRICED
    weight: float = 1.0  # the node's share in the objective, 1 on average
    end: float = math.inf  # where truncated noise ends, in units of its scale
    before: tuple[Event, ...] = ()  # ahead of its draws: preprocessing

    @property
    def spends(self) -> tuple[Any, ...]:
        """Key of equal nodes: those with the same key write the same events."""
        return self.before, self.factor, self.rate, self.allowance, self.end

    @property
    def divisor(self) -> float:
        """What its sums are divided by."""
        return self.lot / self.weight


@dataclass(frozen=True)
class PrivacyPlan:
    mode: str
    adjacency: str
    run: Draws
    enforced: bool  # does something bound every record's contribution?
    draws_per_round: int
    nodes: tuple[NodePlan, ...]
    notes: tuple[str, ...]
    claim: ClaimRule
    on: str = "gradient"  # what carries the noise: the answers about records, or the messages
    draws_before: int = 0  # of the first round: the mean of the records, where it is released
    observer: Observer = EVERYONE  # whom the proven figures hold against
    copies: int = 1  # nodes on which the same record, or person, may be
    after: tuple[Event, ...] = ()  # of every node, behind its draws: figures on private records
    clipped: str | None = None  # "lot" where lots are clipped as a whole
    protects: Unit = ONE_RECORD
    # The last events: calibration, figure, curve and groups use the same tens of thousands.
    last_events: list[tuple[Any, list[Event]]] = field(default_factory=list, repr=False, compare=False)

    @property
    def unit(self) -> str:
        """What every ε here protects, in words."""
        return self.protects.words(self.copies)

    @property
    def preprocesses(self) -> bool:
        """Is something released of the records before the first draw?"""
        return any(node.before for node in self.nodes)

    @property
    def draws(self) -> int:
        return self.run.count

    @property
    def shape(self) -> Schedule:
        return self.run.shape

    @property
    def noise(self) -> NoiseKind:
        return self.run.noise

    @property
    def sampling(self) -> SamplingKind:
        return self.run.sampling

    @cached_property
    def worst(self) -> NodePlan:
        return max(self.nodes, key=lambda node: node.proven.epsilon)

    @cached_property
    def kinds(self) -> list[NodePlan]:
        """One of every group of nodes that write the same events: equal nodes are priced once."""
        return list({node.spends: node for node in self.nodes}.values())

    @property
    def delta(self) -> float:
        return max(node.delta for node in self.nodes)

    def figures(self) -> dict[str, Any]:
        """The keys that `run`, `plan` and `audit` share."""
        claims = [node.claim.epsilon for node in self.nodes if node.claim.epsilon is not None]
        return {
            "epsilon_claimed": max(claims, default=None),
            "epsilon_proven": finite(self.worst.proven.epsilon),
            "epsilon_proven_lower": self.worst.proven.lower,
            "epsilon_audited": None,
            "violation": None,
            "epsilon_by_node": [
                {"claimed": node.claim.epsilon, "proven": finite(node.proven.epsilon), "audited": None}
                for node in self.nodes
            ],
            "not_proven_because": self.worst.proven.because,
            "claim_reference": self.nodes[0].claim.reference,
            "claim_flags": sorted({flag for node in self.nodes for flag in node.claim.flags}),
            "delta": self.delta,
            "adjacency": self.adjacency,
        }

    @cached_property
    def _drawn(self) -> dict[tuple[int, ...], list[tuple[float | None, float | None]]]:
        return {}

    def drawn_after(self, rounds: list[int]) -> list[tuple[float | None, float | None]]:
        """`epsilon_after` for charts: still upper bounds, but no finer than a picture, and computed once.

        A part costs no more than the whole, which was priced finely.
        """
        key, most = tuple(rounds), self.worst.proven.epsilon
        if key not in self._drawn:
            self._drawn[key] = [
                (claimed, None if proof is None else min(proof, most))
                for claimed, proof in self.epsilon_after(rounds, tolerance=DRAWN)
            ]
        return self._drawn[key]

    def epsilon_after(
        self, rounds: list[int], tolerance: float = 0.01
    ) -> list[tuple[float | None, float | None]]:
        """(claimed, proven) of the worst node after so many rounds, for metrics and charts."""
        node = self.worst
        at = [min(self.draws_before + r * self.draws_per_round, node.allowance) for r in rounds]
        proofs: list[float | None] = [None] * len(at)
        if math.isfinite(node.proven.epsilon):
            events = self.planned(replace(node, allowance=max(at)))
            last = (self.draws - self.draws_before) // self.draws_per_round
            marks = [
                self.copies * (len(node.before) + k + len(self.after) * (r >= last))
                for k, r in zip(at, rounds, strict=True)
            ]
            bounds = curve(
                events, marks, node.delta, self.adjacency, observer=self.observer, tolerance=tolerance
            )
            proofs = [finite(e) for e in bounds]
        return [(self.claimed(node, k).epsilon, proof) for k, proof in zip(at, proofs, strict=True)]

    def claimed(self, node: NodePlan, draws: int | None = None) -> Claim:
        """The paper's figure after so many draws (all of them, if None); none where it does not cover this noise."""
        draws = node.allowance if draws is None else draws
        if draws == 0:
            return Claim(0.0, "nothing was released")
        if node.factor == 0.0 or not self.claim.covers(self.noise):
            return NO_CLAIM
        return self.claim.claim(self.run, node.factor, node.rate, node.delta, draws)

    def proven(self, node: NodePlan) -> Proven:
        return proven(self.planned(node), node.delta, self.adjacency, observer=self.observer)

    def without_rounding(self) -> tuple[float, float] | None:
        """What of the clip the noise also covers, as a share, and the worst node's ε if sums were exact.

        None where nothing is proven, or where sums are not of clipped records.
        """
        node = self.worst
        if not self.enforced or self.protects.kind != RECORD or not math.isfinite(node.proven.epsilon):
            return None
        share = excess(max(each.lot for each in self.nodes))
        return share, self.proven(replace(node, factor=node.factor * (1 + share))).epsilon

    def against(self, observer: Observer) -> PrivacyPlan:
        """The same noise, with the proven figures for another observer than was planned for."""
        other = replace(self, observer=observer)
        return replace(other, nodes=tuple(replace(node, proven=other.proven(node)) for node in self.nodes))

    def trade_off(self) -> TradeOff | None:
        """All that is proven, δ at many ε: the printed (ε, δ) is one point of it. At each ε the worst node counts."""
        figure = self.worst.proven.epsilon
        if math.isinf(figure):
            return None
        top = max(1.25 * figure, 0.1)
        epsilons = sorted({*np.linspace(0.0, top, 65).tolist(), *np.geomspace(top / 1000, top, 64).tolist()})
        profiles = [
            profile(self.planned(node), epsilons, node.delta, self.adjacency, observer=self.observer)
            for node in self.kinds
        ]
        deltas = [max(of_nodes) for of_nodes in zip(*profiles, strict=True)]
        return TradeOff.of([*epsilons, figure], [*deltas, self.delta])

    def priced(self, node: NodePlan) -> tuple[str, list[float], int] | None:
        """What an accountant is asked about in place of a node's draws, as `SamplingKind.priced` has it.

        None where other events are around them, or noise is not Gaussian. A lot that is clipped as a whole costs what a
        lot of fixed size does, however it was drawn: see `accounting.pairs`.
        """
        if not self.noise.gaussian or node.before or self.after:
            return None
        # Of the releases as they will be written: of correlated noise less counts than is added.
        multipliers = [release.noise_multiplier for release in self._releases(node)]
        priced = self.sampling.priced(multipliers, node.rate)
        return priced if priced is None or self.clipped is None else ("fixed-size", *priced[1:])

    def planned(self, node: NodePlan) -> list[Event]:
        """Planned events of all nodes that hold a copy of a record, on sensitivity 1; these nodes do the same."""
        key = (node.spends, self.run, self.enforced, self.adjacency, self.clipped, self.after, self.copies)
        if not self.last_events or self.last_events[0][0] != key:
            events = [*self.events(node), *self.after]
            self.last_events[:] = [
                (key, on_several_nodes(events, self.copies) if self.copies > 1 else events)
            ]
        return self.last_events[0][1]

    def events(self, node: NodePlan) -> list[Event]:
        """Preprocessing and the draws of one node."""
        return [*node.before, *(Event(k, release) for k, release in enumerate(self._releases(node)))]

    def _releases(self, node: NodePlan) -> list[Release]:
        """Of the draws of one node, on sensitivity 1: only the ratio matters to an accountant."""
        sensitivity = 1.0 if self.enforced else math.inf
        release, shape, sampling, rate = self.noise.release, self.shape, self.sampling, node.rate
        draws = range(node.allowance)
        parts = [
            Participation(
                sampling.drawn_as,
                rate,
                self.adjacency,
                sampling.pass_of(k, rate),
                sampling.lot_number_of(k, rate),
                self.clipped,
            )
            for k in draws
        ]
        return [
            release(node.factor * shape(k), sensitivity, self.run.dimension, part, node.end)
            for k, part in zip(draws, parts, strict=True)
        ]

    def by_group(self) -> dict[int, float]:
        """k → proven ε of k records together, for runs that protect records; empty where persons or nodes are."""
        if self.protects.kind != RECORD or not self.noise.adds or math.isinf(self.worst.proven.epsilon):
            return {}
        histories = [self.planned(node) for node in self.kinds]
        return group_epsilons(histories, self.delta, self.adjacency, observer=self.observer)

    def by_observer(self) -> dict[str, Any]:
        """`epsilon_by_observer` and `epsilon_by_colluders`: of the worst node, from what the nodes will write."""
        shared, spent = self.sharing()
        return by_observer(
            shared,
            shared.worst(spent) if shared else [],
            planned=self.observer,
            epsilon=self.worst.proven.epsilon,
            delta=self.delta,
            adjacency=self.adjacency,
            unit=self.unit,
        )

    def sharing(self) -> tuple[Sharing | None, list[Spent]]:
        """How the nodes share noise, and what each will spend; nothing where every node draws its own."""
        if self.observer.colluders is None:
            return None, []
        kinds: dict[tuple[Any, ...], Spent] = {}
        for node in self.nodes:
            if (key := (node.spends, node.delta)) not in kinds:
                history = tuple(collate(self.planned(node)))
                kinds[key] = Spent(history, node.delta, self.adjacency, node.proven.epsilon)
        spent = [kinds[node.spends, node.delta] for node in self.nodes]
        return sharing(release for one in kinds.values() for release, _ in one.history), spent
