"""What a plan owes to its unit: on how many nodes it may be, and what several records cost together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gossamer.accounting.groups import group_epsilons
from gossamer.accounting.units import RECORD
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError

if TYPE_CHECKING:
    from gossamer.planning.privacy import NodePlan, PrivacyPlan


def most_nodes(config: RunConfig) -> int:
    """On how many nodes the same unit may be: as records are dealt out, or as it is declared of persons."""
    return max(config.data.partition.most_copies(config.nodes), min(config.privacy.max_sites, config.nodes))


def refuse_unlike(config: RunConfig, nodes: Sequence[NodePlan]) -> None:
    """Copies of a record, or the parts of a person, are priced as so many nodes that do the same."""
    if len({(node.delta, node.spends) for node in nodes}) > 1:
        said = (
            f"privacy.unit.max_sites = {config.privacy.max_sites} has a person"
            if config.privacy.max_sites > 1
            else "data.partition.kind = 'sampled' puts copies of a record"
        )
        raise UserError(
            f"{said} on several nodes, which are priced together only where all nodes have the same size, budget and "
            "sampling; give all the same (data.records: one number for all)."
        )


def by_group(plan: PrivacyPlan) -> dict[int, float]:
    """k → proven ε of k records together, for runs that protect records; empty where persons or nodes are."""
    if plan.protects.kind != RECORD or not plan.noise.adds or math.isinf(plan.worst.proven.epsilon):
        return {}
    kinds = {node.spends: node for node in plan.nodes}
    delta = max(node.delta for node in plan.nodes)
    histories = [plan.planned(node) for node in kinds.values()]
    return group_epsilons(histories, delta, plan.adjacency, observer=plan.observer)
