"""Views of a planned run with exact means: what one node learns of another, what a coalition does, an outsider."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gossamer.accounting.ledger import read_all
from gossamer.accounting.network import (
    Covariance,
    Exchanges,
    Floats,
    Ints,
    epsilon_by_node,
    epsilon_by_pair,
    epsilon_of_coalition,
    squared_outsider,
    views_of_alike_noise,
    views_of_any_noise,
    views_of_own_noise,
)
from gossamer.accounting.observers import one_node, refuse_without_exact_means
from gossamer.accounting.releases import Event
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.mechanism.noise import NoiseKind
from gossamer.topology.exact import Relabelled, orders

if TYPE_CHECKING:
    from gossamer.training.plan import Plan
    from gossamer.training.privacy import PrivacyPlan

MOST_WORK, MOST_SYSTEMS = 5e7, 10_000  # of what is priced along with a plan: seconds at the most
MOST_SHOWN = 64  # nodes up to which every pair is put on file


@dataclass(frozen=True, eq=False)
class NetworkPlan:
    """The public schedule of means, and what every node will release into them.

    `deviations`: (means, nodes) of the stated noise in what the nodes add up; 0 once a node has used up its budget.
    `noise`: the covariance over nodes in units of each one's own, where there is more than that; `all_alike`: does it
    know how many nodes are honest, and nothing else of them?
    """

    exchanges: Exchanges
    histories: tuple[tuple[Event, ...], ...]
    deviations: Floats
    delta: float
    adjacency: str
    noise: Covariance | None = None
    all_alike: bool = False

    def as_written(self, ledgers: Path) -> NetworkPlan:
        """The same with what the nodes did release, from their verified ledgers; a draw's number is its mean's."""
        written = read_all(ledgers)
        if sorted(written) != list(range(self.exchanges.nodes)):
            raise UserError(f"{ledgers} has ledgers of {len(written)} of {self.exchanges.nodes} nodes; all are due.")
        histories = tuple(_alone(written[u][1]) for u in sorted(written))
        for u, (own, planned) in enumerate(zip(histories, self.histories, strict=True)):
            # What is seen of a release follows from the planned noise of all: of another one it would be too little.
            due = {event.draw: event.release.noise_multiplier for event in planned}
            for event in own:
                multiplier = event.release.noise_multiplier
                if not math.isclose(multiplier, due.get(event.draw, -1.0), rel_tol=1e-9):
                    raise UserError(
                        f"{ledgers} has in draw {event.draw} of node {u} another noise than this configuration plans; "
                        "name the run's own configuration."
                    )
        return replace(self, histories=histories)

    def by_pair(self) -> Floats:
        """(nodes, nodes): [v, u] is the ε of u's records against node v; NaN where v is u."""
        if self._alike and (self.noise is None or self.all_alike):
            view = views_of_alike_noise(self.exchanges, self.noise)
        elif self.noise is None:
            view = views_of_own_noise(self.exchanges, self.deviations)
        else:
            view = views_of_any_noise(self.exchanges, self.noise, self.deviations)
        return epsilon_by_pair(self.exchanges, view, self.histories, self.delta, self.adjacency)

    def of_coalition(self, members: Sequence[int]) -> Floats:
        """(nodes,): ε of every other node's records against these nodes together; NaN of the members."""
        known = (self.histories, self.delta, self.adjacency)
        return epsilon_of_coalition(self.exchanges, members, *known, self.noise, self.deviations)

    def of_outsider(self) -> Floats:
        """(nodes,): ε of every node's records against who sees the models of all rounds."""
        shares = squared_outsider(self.deviations, self.noise)
        return epsilon_by_node(shares, self.histories, self.delta, self.adjacency)

    @cached_property
    def _alike(self) -> bool:
        """Is the noise of all nodes the same, round by round?"""
        # To the last bits: the same number times a lot and divided by it again.
        same = np.allclose(self.deviations, self.deviations[:, :1], rtol=1e-13, atol=0.0)
        return bool(same and (self.deviations > 0).all())


def network_plan(o: Plan) -> NetworkPlan:
    """Of a run whose views can be accounted for, or a sentence about why not."""
    rounds, plan, clip = o.topology.rounds, o.privacy, o.config.privacy.clip
    sites, part = o.config.privacy.max_sites, o.config.data.partition.kind
    for refused, reason in (
        (plan.after, "evaluation.private, a release to everyone; leave it out"),
        (plan.preprocesses, "privacy.preprocessing, a release to everyone; leave it out"),
        (
            plan.copies > 1 and sites > 1,
            f"privacy.unit.max_sites = {sites}, a person on several nodes; use 1",
        ),
        (plan.copies > 1, f"data.partition.kind = {part!r}, copies on several nodes; use 'even' or 'sizes'"),
        (clip.follows_records, f"privacy.clip.kind = {clip.kind!r}, which follows counts; use 'constant'"),
        (clip.of == "lot", "privacy.clip.of = 'lot'; use of = 'record', or an observer of everything"),
    ):
        if refused:
            raise UserError(f"what one node learns has no price with {reason}.")
    refuse_without_exact_means(one_node(0), bit_equal=isinstance(rounds, Relabelled))
    assert isinstance(rounds, Relabelled)
    n, means = o.config.nodes, plan.draws
    exchanges = Exchanges(n, rounds.windows.steps, orders(n, rounds.seed, 0, means))
    by_kind = {node.spends: _alone(plan.planned(node)) for node in plan.kinds}
    histories = tuple(by_kind[node.spends] for node in plan.nodes)
    known = (exchanges, histories, deviations_of(o.config, plan), plan.delta, plan.adjacency)
    if not plan.noise.cancels:
        return NetworkPlan(*known)
    return NetworkPlan(*known, noise=_shared(plan.noise), all_alike=plan.noise.all_alike)


def _shared(noise: NoiseKind) -> Covariance:
    def among(mean: int, honest: Ints) -> Floats:
        covariance = noise.covariance(honest)
        assert covariance is not None
        return covariance

    return among


def _alone(events: Sequence[Event]) -> tuple[Event, ...]:
    """The events with their node's own noise; what other nodes add is in the covariance."""
    return tuple(replace(event, release=event.release.alone) for event in events)


def network_figures(o: Plan, ledgers: Path | None = None) -> dict[str, Any] | None:
    """Return what a plan, or a run by its ledgers, shows of every node to one other and to an outsider; or None.

    Only where it takes no time: full lots have a closed form, sampled ones a composition for many pairs.
    """
    n, means = o.config.nodes, o.privacy.draws
    plain = o.privacy.sampling.kind == "full" and math.isfinite(o.privacy.worst.proven.epsilon)
    if not isinstance(o.topology.rounds, Relabelled) or not plain or n * n * means > MOST_WORK:
        return None
    if not o.privacy.noise.gaussian:
        return None
    try:
        network = network_plan(o)
    except UserError:  # what one node learns has no price here
        return None
    if network.noise is not None and not network.all_alike and n * means > MOST_SYSTEMS:
        return None
    network = network if ledgers is None else network.as_written(ledgers)
    pairs = network.by_pair()
    observer, node = np.unravel_index(np.nanargmax(pairs), pairs.shape)
    shown = [[None if v == u else float(f"{e:.6g}") for u, e in enumerate(row)] for v, row in enumerate(pairs)]
    return {
        "worst_pair": {"epsilon": float(pairs[observer, node]), "node": int(node), "observer": int(observer)},
        "outsider": float(network.of_outsider().max()),
        "by_pair": shown if n <= MOST_SHOWN else None,
    }


def deviations_of(config: RunConfig, plan: PrivacyPlan) -> Floats:
    """(draws, nodes): of the noise on a node's gradient, from public numbers; 0 where it adds none."""
    levels = np.array([plan.shape(k) for k in range(plan.draws)])
    lots = torch.tensor([node.lot for node in plan.nodes], dtype=torch.float64)
    factors = torch.tensor([node.factor for node in plan.nodes], dtype=torch.float64)
    clip = config.privacy.clip.make(plan.draws, lots, factors * float(levels.max(initial=0.0)))
    bounds = np.array([float(clip.at(k, len(lots)).reference.min()) for k in range(plan.draws)])
    deviations = np.zeros((plan.draws, len(plan.nodes)))
    for u, node in enumerate(plan.nodes):
        if node.factor > 0:
            active = slice(0, min(node.allowance, plan.draws))
            deviations[active, u] = (levels * bounds)[active] * node.factor * node.weight / node.lot
    return deviations
