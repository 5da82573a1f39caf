"""What a run will cost, before it starts: public constants, noise, claimed and proven ε of every node.

Everything here follows from the configuration and the declared record counts alone; no record is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gossamer.accounting.alternatives import Sharing, Spent, by_observer, group_epsilons, sharing
from gossamer.accounting.claimed import Claim
from gossamer.accounting.observers import EVERYONE, ONE_RECORD, RECORD, Observer, Unit
from gossamer.accounting.profiles import TradeOff
from gossamer.accounting.proven import Proven, curve, profile, proven
from gossamer.accounting.releases import Event, collate, on_several_nodes
from gossamer.mechanism.clipping import Schedule
from gossamer.mechanism.noise import NoiseKind, Participation
from gossamer.mechanism.sampling import NodeLot, SamplingKind
from gossamer.methods.claims import ClaimRule, Draws

DRAWN = 0.05  # of ε: how close bounds come that are only drawn


@dataclass(frozen=True)
class NodePlan:
    """One node's public constants and what its releases cost."""

    records: int  # declared J: of records, or of persons where they are protected
    rate: float  # sampling rate q
    lot: float  # divisor L
    epsilon: float | None  # what was asked for
    delta: float
    factor: float  # noise multiplier of draw k = factor · shape(k)
    allowance: int  # draws the budget pays for
    claim: Claim
    proven: Proven
    weight: float = 1.0  # the node's share in the objective, 1 on average
    end: float = math.inf  # where truncated noise ends, in units of its scale
    before: tuple[Event, ...] = ()  # ahead of its draws: what preprocesses the records

    @property
    def spends(self) -> tuple[Any, ...]:
        """Nodes in which this is the same write the same events."""
        return self.before, self.factor, self.rate, self.allowance, self.end

    @property
    def divisor(self) -> float:
        """What its sums are divided by."""
        return self.lot / self.weight

    def named(self, node: int) -> NodeLot:
        return NodeLot(node, self.records, self.rate, self.lot)


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

    def figures(self) -> dict[str, Any]:
        """The keys that `run`, `plan` and `audit` share."""
        claims = [node.claim.epsilon for node in self.nodes]
        known = [c for c in claims if c is not None]
        proofs = [node.proven.epsilon for node in self.nodes]
        return {
            "epsilon_claimed": max(known) if known else None,
            "epsilon_proven": finite(max(proofs)),
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
            "delta": max(node.delta for node in self.nodes),
            "adjacency": self.adjacency,
        }

    def drawn_after(self, rounds: list[int]) -> list[tuple[float | None, float | None]]:
        """`epsilon_after` to be looked at: still upper bounds, but no finer than a picture, and made once.

        A part costs no more than the whole, which was priced finely.
        """
        key, most = tuple(rounds), self.worst.proven.epsilon
        if key not in self._drawn:
            self._drawn[key] = [
                (claimed, None if proof is None else min(proof, most))
                for claimed, proof in self.epsilon_after(rounds, tolerance=DRAWN)
            ]
        return self._drawn[key]

    @cached_property
    def _drawn(self) -> dict[tuple[int, ...], list[tuple[float | None, float | None]]]:
        return {}

    def epsilon_after(
        self, rounds: list[int], tolerance: float = 0.01
    ) -> list[tuple[float | None, float | None]]:
        """(claimed, proven) of the worst node after so many rounds, for metrics and plots."""
        node = self.worst
        at = [min(self.draws_before + r * self.draws_per_round, node.allowance) for r in rounds]
        if math.isinf(node.proven.epsilon):
            proofs: list[float | None] = [None] * len(at)
        else:
            events = self.events_over_copies(node.factor, node.rate, max(at), node.end, node.before)
            last = (self.draws - self.draws_before) // self.draws_per_round
            counts = [
                len(node.before) + k + len(self.after) * (r >= last) for k, r in zip(at, rounds, strict=True)
            ]
            marks = [self.copies * count for count in counts]
            bounds = curve(
                events, marks, node.delta, self.adjacency, observer=self.observer, tolerance=tolerance
            )
            proofs = [finite(e) for e in bounds]
        return [(self._claim_after(node, k), p) for k, p in zip(at, proofs, strict=True)]

    def _claim_after(self, node: NodePlan, draws: int) -> float | None:
        return self.claimed(node.factor, node.rate, node.delta, draws).epsilon if draws else 0.0

    def claimed(self, factor: float, rate: float, delta: float, draws: int) -> Claim:
        """The paper's figure after so many draws; none where it does not speak of this noise."""
        if draws == 0:
            return Claim(0.0, "nothing was released")
        if factor == 0.0 or not self.claim.covers(self.noise):
            return Claim(None, "no paper claims an ε for this mechanism", ())
        return self.claim.claim(self.run, factor, rate, delta, draws)

    def proven(
        self,
        factor: float,
        rate: float,
        delta: float,
        draws: int,
        end: float,
        before: tuple[Event, ...],
    ) -> Proven:
        events = self.events_over_copies(factor, rate, draws, end, before)
        return proven(events, delta, self.adjacency, observer=self.observer)

    def against(self, observer: Observer) -> PrivacyPlan:
        """The same noise, with the proven figures for another observer than was planned for."""
        other = replace(self, observer=observer)
        nodes = (
            replace(
                node,
                proven=other.proven(
                    node.factor, node.rate, node.delta, node.allowance, node.end, node.before
                ),
            )
            for node in self.nodes
        )
        return replace(other, nodes=tuple(nodes))

    def trade_off(self) -> TradeOff | None:
        """All that is proven, δ at many ε: the printed (ε, δ) is one point of it. At each ε the worst node counts."""
        figure, delta = self.worst.proven.epsilon, max(node.delta for node in self.nodes)
        if math.isinf(figure):
            return None
        top = max(1.25 * figure, 0.1)
        epsilons = sorted({*np.linspace(0.0, top, 65).tolist(), *np.geomspace(top / 1000, top, 64).tolist()})
        # Equal nodes are priced once.
        kinds = {node.spends: node for node in self.nodes}
        profiles = [
            profile(self.planned(node), epsilons, node.delta, self.adjacency, observer=self.observer)
            for node in kinds.values()
        ]
        deltas = [max(of_nodes) for of_nodes in zip(*profiles, strict=True)]
        return TradeOff.of([*epsilons, figure], [*deltas, delta])

    def priced(
        self, multipliers: Sequence[float], rate: float, before: tuple[Event, ...] = ()
    ) -> tuple[str, list[float], int] | None:
        """What an accountant is asked about in place of these draws, as `SamplingKind.priced` says it.

        None where events of another kind come before them, or noise is not Gaussian. A lot that is clipped as a whole
        costs what a lot of fixed size does, however it was drawn: see `accounting.pairs`.
        """
        plain = self.noise.gaussian and not before and not self.after
        priced = self.sampling.priced(multipliers, rate) if plain else None
        return priced if priced is None or self.clipped is None else ("fixed-size", *priced[1:])

    def planned(self, node: NodePlan) -> list[Event]:
        """What the nodes that hold a record will write, on sensitivity 1."""
        return self.events_over_copies(node.factor, node.rate, node.allowance, node.end, node.before)

    def events_over_copies(
        self, factor: float, rate: float, draws: int, end: float, before: tuple[Event, ...]
    ) -> list[Event]:
        """So many draws of every node that holds a copy of a record; `_alike` says that they do the same."""
        key = (factor, rate, draws, end, before)
        if key not in self._last_events:
            events = [*self.events(*key), *self.after]
            self._last_events.clear()
            self._last_events[key] = events if self.copies == 1 else on_several_nodes(events, self.copies)
        return self._last_events[key]

    @cached_property
    def _last_events(self) -> dict[tuple[float, float, int, float, tuple[Event, ...]], list[Event]]:
        """The last of `events_over_copies`: figure, curve and groups ask for the same tens of thousands."""
        return {}

    def events(
        self, factor: float, rate: float, draws: int, end: float = math.inf, before: tuple[Event, ...] = ()
    ) -> list[Event]:
        """What comes before, and so many draws, on sensitivity 1: only the ratio matters to an accountant."""
        sensitivity = 1.0 if self.enforced else math.inf
        return [*before] + [
            Event(
                draw=k,
                release=self.noise.release(
                    factor * self.shape(k),
                    sensitivity,
                    self.run.dimension,
                    Participation(
                        self.sampling.drawn_as,
                        rate,
                        self.adjacency,
                        self.sampling.pass_of(k, rate),
                        self.sampling.lot_number_of(k, rate),
                        self.clipped,
                    ),
                    end,
                ),
            )
            for k in range(draws)
        ]

    def by_group(self) -> dict[int, float]:
        """k → proven ε of k records together, for runs that protect records; empty where persons or nodes are."""
        if self.protects.kind != RECORD or not self.noise.adds or math.isinf(self.worst.proven.epsilon):
            return {}
        kinds = {node.spends: node for node in self.nodes}
        delta = max(node.delta for node in self.nodes)
        histories = [self.planned(node) for node in kinds.values()]
        return group_epsilons(histories, delta, self.adjacency, observer=self.observer)

    def by_observer(self) -> dict[str, Any]:
        """`epsilon_by_observer` and `epsilon_by_colluders`: of the worst node, from what the nodes will write."""
        shared, spent = self.sharing()
        return by_observer(
            shared,
            shared.worst(spent) if shared else [],
            planned=self.observer,
            epsilon=self.worst.proven.epsilon,
            delta=max(node.delta for node in self.nodes),
            adjacency=self.adjacency,
            unit=self.unit,
        )

    def sharing(self) -> tuple[Sharing | None, list[Spent]]:
        """How the nodes share noise, and what each will spend; nothing where every node draws its own."""
        if self.observer.colluders is None:
            return None, []
        by_spending: dict[tuple[Any, ...], Spent] = {}
        spent = []
        for node in self.nodes:
            key = node.spends, node.delta
            if key not in by_spending:
                history = tuple(collate(self.planned(node)))
                by_spending[key] = Spent(history, node.delta, self.adjacency, node.proven.epsilon)
            spent.append(by_spending[key])
        return sharing(release for one in by_spending.values() for release, _ in one.history), spent


def finite(value: float) -> float | None:
    return None if math.isinf(value) else value
