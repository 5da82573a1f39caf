"""What a method is compared with, from its own configuration: other parts, the same everything else.

non-private        the same algorithm without clip and noise; lots are drawn as before
no-communication   every node alone, privacy as it is
central            all records on one node: DP-SGD with the same (ε, δ) and the same expected number of records a round
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gossamer.config.schema import NoClip, NoNoise, RunConfig
from gossamer.errors import UserError
from gossamer.topology.makers import Complete


def effective(asked: RunConfig) -> RunConfig:
    """The configuration that runs. It is never written: the run directory holds what was asked for."""
    privacy = asked.privacy
    changes: dict[str, Any]
    if asked.baseline == "non-private":
        noise = privacy.noise.model_copy(update={"schedule": NoNoise(kind="none"), "multiplier": None})
        change = {"clip": NoClip(kind="none"), "noise": noise, "claim": "none", "epsilon": None}
        changes = {"privacy": privacy.model_copy(update=change)}
    elif asked.baseline == "no-communication":
        changes = {
            "weighting": "uniform"
        }  # a node alone has no sum to weight, only its own step size to spoil
        if asked.algorithm.rule == "collaborative":  # nobody writes the shared model
            changes["algorithm"] = replace(asked.algorithm, controller="local")  # type: ignore[call-arg]
    elif asked.baseline == "central":
        # One node, so one budget: the strictest of those asked for.
        change = {"epsilon": _least(privacy.epsilon), "delta": _least(privacy.delta)}
        changes = {
            "nodes": 1,
            "topology": Complete(),
            "privacy": privacy.model_copy(update=change),
        }
    else:
        return asked
    return asked.model_copy(update={**changes, "name": f"{asked.name}+{asked.baseline}"})


@dataclass(frozen=True)
class Pool:
    """The one node of the central baseline."""

    records: int  # Σ J_i
    lot: float  # Σ L_i: as many records a round as all nodes together
    rates: list[float]  # of the records that came from node i

    @property
    def rate(self) -> float:
        """What is priced: no record is drawn more often."""
        return max(self.rates)


def pool(config: RunConfig, records: list[int], pairs: list[tuple[float, float]]) -> Pool:
    """The pooled records with the objective of the decentralized run.

    Weighted by size that is the plain mean over records: one rate for all. Uniform weights give every node's records
    together the same say, so a record's rate is L / (n J_i). Sizes that differ by one (an even split) count as equal.
    """
    total, lot, n = sum(records), sum(lot for _, lot in pairs), len(records)
    if config.weighting == "size" or max(records) - min(records) <= 1:
        return Pool(total, lot, [lot / total] * n)
    if config.privacy.sampling.kind != "poisson":
        raise UserError(
            f"privacy.sampling.kind = {config.privacy.sampling.kind!r} cannot give nodes of different sizes equal "
            "weight in the pooled records of baseline = 'central'; use kind = 'poisson' or weighting = 'size'."
        )
    rates = [lot / (n * J) for J in records]
    if max(rates) > 1:
        raise UserError(
            f"weighting = 'uniform' would draw each record of the smallest node {max(rates):.3g} times a round in "
            "baseline = 'central'; use a smaller privacy.sampling.rate or weighting = 'size'."
        )
    return Pool(total, lot, rates)


def _least(value: float | list[float] | None) -> float | None:
    return min(value) if isinstance(value, list) else value
