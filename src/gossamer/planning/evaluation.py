"""What figures on a private hold-out cost: one release of every node, after its last draw."""

from __future__ import annotations

import math

from gossamer.accounting.gaussian import gdp_mu
from gossamer.accounting.releases import Event, Gaussian
from gossamer.config.schema import RunConfig
from gossamer.mechanism.summaries import release_of


def planned_evaluation(config: RunConfig, noised: bool, draws: int, copies: int) -> tuple[Event, ...]:
    """Of a run of so many draws, whose records lie on so many nodes each."""
    privacy = config.privacy
    epsilon, delta = privacy.epsilon if noised else None, privacy.delta
    if config.evaluation.private is None:
        return ()
    assert not isinstance(epsilon, list)
    assert not isinstance(delta, list)
    times = privacy.runs * copies
    share, adjacency = config.evaluation.private, privacy.adjacency
    return evaluation_events(share, adjacency, step=draws, epsilon=epsilon, delta=delta, times=times)


def evaluation_events(
    share: float, adjacency: str, *, step: int, epsilon: float | None, delta: float, times: int
) -> tuple[Event, ...]:
    """Alone, so many times, it costs the share of ε; what training may then cost is what is left: no less than the
    rest. `epsilon`: None where nothing has noise."""
    multiplier = 0.0
    if epsilon is not None:
        shift = 2 if adjacency == "replace-one" else 1
        multiplier = shift * math.sqrt(times) / gdp_mu(share * epsilon, delta) * (1 + 1e-9)
    return (Event(step, release_of(Gaussian, multiplier, adjacency)),)
