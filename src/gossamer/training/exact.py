"""`algorithm.mixes = "exact"`: which way the nodes' mean is taken, and what of it is public."""

from __future__ import annotations

import math
from dataclasses import replace

from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.means import FilterMean, WindowMean, grid_of
from gossamer.algorithms.wrappers import ExactMean, Mean
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.planning.network import deviations_of
from gossamer.planning.privacy import PrivacyPlan
from gossamer.topology.exact import Relabelled, filter_of, window_topology
from gossamer.topology.schedule import Topology


def takes_exact_means(config: RunConfig) -> bool:
    """Asked for, and is there anybody to exchange with?"""
    return config.algorithm.mixes == "exact" and config.nodes > 1 and config.baseline != "no-communication"


def exact_topology(config: RunConfig) -> Topology:
    """The network of a run with exact means: windows where a node may send to any other, else the graph as it is."""
    asked = config.topology
    if asked.dropout or asked.slow:
        key = f"dropout = {asked.dropout:g}" if asked.dropout else "slow"
        raise UserError(
            f"topology.{key} loses messages, and algorithm.mixes = 'exact' needs every one of them; leave it out, or "
            "use a number of mixes."
        )
    base = asked.build(nodes=config.nodes, weights="doubly", seed=config.seed)
    if asked.any_peer:
        return window_topology(base, config.seed)
    filter_of(base)  # refused now, not after a plan was made
    return base


def with_exact_means(
    config: RunConfig, algorithm: Algorithm, topology: Topology, plan: PrivacyPlan
) -> tuple[Algorithm, PrivacyPlan]:
    """The algorithm on common means, and the plan with a line about them."""
    mean: Mean
    if isinstance(topology.rounds, Relabelled):
        mean = WindowMean(topology.rounds.windows, grid_of(_least_deviation(config, plan), config.nodes))
        equal = "all nodes hold the same model to the last bit"
    else:
        mean = FilterMean(filter_of(topology))
        equal = f"models of two nodes differ by rounding (at most {mean.filter.error:.1g} of the largest value a mean)"
    times = "1 exchange" if mean.exchanges == 1 else f"{mean.exchanges} exchanges"
    note = f"Every gradient is the exact mean over all nodes, by {times}; {equal}."
    return ExactMean(algorithm, mean), replace(plan, notes=(*plan.notes, note))


def _least_deviation(config: RunConfig, plan: PrivacyPlan) -> float:
    """Of the noise on a node's gradient, over all nodes and draws that have some; 0 where there is none."""
    found = deviations_of(config, plan)
    return float(found[found > 0].min(initial=math.inf)) if (found > 0).any() else 0.0
