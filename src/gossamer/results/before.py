"""What a run releases of the records before its first round, in plans and certificates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Release, release


def planned_before(o: Any) -> dict[str, Any] | None:
    """The entry `preprocessing` of a plan or certificate; None where nothing is released ahead of the first draw.

    `epsilon` is what this alone costs the worst node, at the δ and adjacency beside it; it is part of the proven ε.
    """
    from gossamer.preprocess.steps import steps_of  # brings torch along

    plan, steps = (
        o.plan,
        steps_of(o.asked.data),
    )  # as asked: weights that were found are declared in what runs
    if not plan.preprocesses:
        return None
    alone = {node.before: proven(node.before, node.delta, plan.adjacency).epsilon for node in plan.nodes}
    worst = max(alone.values())
    return {
        "share": o.config.privacy.preprocessing,
        "epsilon": worst if worst < float("inf") else None,
        "released": [
            {
                "name": step.name,
                "what": step.says,
                "kind": plan.nodes[0].before[place].release.kind,
                "noise_multiplier": [node.before[place].release.noise_multiplier for node in plan.nodes],
            }
            for place, step in enumerate(steps)
        ],
    }


def before_line(entry: Mapping[str, Any] | None) -> str | None:
    """The same for people; δ, adjacency, unit and observer stand beside it."""
    if entry is None:
        return None
    what = "; ".join(f"{one['what']}{_noise(one['noise_multiplier'])}" for one in entry["released"])
    if entry["epsilon"] is None:
        return f"before the first round every node releases, without noise: {what}"
    return (
        f"before the first round every node releases, with noise: {what}; alone this costs ε = {entry['epsilon']:.3g}, "
        "which the proven ε includes"
    )


def _noise(multipliers: Sequence[float]) -> str:
    least, most = min(multipliers), max(multipliers)
    if not least:
        return ""
    return f" (σ/sensitivity {least:.3g})" if least == most else f" (σ/sensitivity {least:.3g} to {most:.3g})"


def stated_releases(entry: Mapping[str, Any], node: int, adjacency: str) -> list[Release]:
    """What a certificate says that a node released: to be found in its ledger."""
    found = []
    for one in entry["released"]:
        sigma = float(one["noise_multiplier"][node])
        found.append(
            release(
                str(one["kind"]), sigma=sigma, sensitivity=1.0, sampling="full", rate=1.0, adjacency=adjacency
            )
        )
    return found
