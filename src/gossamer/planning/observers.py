"""ε by observer of a planned run."""

from __future__ import annotations

from typing import Any

from gossamer.accounting import by_observer
from gossamer.accounting.by_observer import Sharing, Spent, sharing
from gossamer.accounting.releases import collate
from gossamer.planning.privacy import PrivacyPlan


def epsilon_by_observer(plan: PrivacyPlan) -> dict[str, Any]:
    """`epsilon_by_observer` and `epsilon_by_colluders`: of the worst node, from what the nodes will write."""
    shared, spent = planned_sharing(plan)
    return by_observer.by_observer(
        shared,
        shared.worst(spent) if shared else [],
        planned=plan.observer,
        epsilon=plan.worst.proven.epsilon,
        delta=max(node.delta for node in plan.nodes),
        adjacency=plan.adjacency,
        unit=plan.unit,
    )


def planned_sharing(plan: PrivacyPlan) -> tuple[Sharing | None, list[Spent]]:
    """How the nodes share noise, and what each will spend; nothing where every node draws its own."""
    if plan.observer.colluders is None:
        return None, []
    made: dict[tuple[Any, ...], Spent] = {}
    spent = []
    for node in plan.nodes:
        key = node.spends, node.delta
        if key not in made:
            history = tuple(collate(plan.planned(node)))
            made[key] = Spent(history, node.delta, plan.adjacency, node.proven.epsilon)
        spent.append(made[key])
    return sharing(release for one in made.values() for release, _ in one.history), spent
