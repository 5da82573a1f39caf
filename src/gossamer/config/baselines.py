"""What a method is compared with, from its own configuration: other parts, the same everything else.

non-private        the same algorithm without clip and noise; lots are drawn as before
no-communication   every node alone, privacy as it is
central            all records on one node: DP-SGD with the same (ε, δ) and the same expected number of records a round
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gossamer.config.methods import preset_of
from gossamer.config.schema import Noise, RunConfig
from gossamer.mechanism.clipping import NoClip
from gossamer.mechanism.noise.gaussian import Gaussian
from gossamer.mechanism.noise.schedules import NoNoise
from gossamer.topology.kinds import Complete


def effective(config: RunConfig) -> RunConfig:
    """The configuration that runs. It is never written: the run directory holds what was asked for."""
    privacy = config.privacy
    changes: dict[str, Any]
    if config.baseline == "non-private":
        noise = privacy.noise.model_copy(update={"schedule": NoNoise(), "multiplier": None})
        change = {"clip": NoClip(), "noise": noise, "claim": "none", "epsilon": None}
        changes = {"privacy": privacy.model_copy(update=change)}
    elif config.baseline == "no-communication":
        changes = {
            "weighting": "uniform",  # a node alone has no sum to weight, only its own step size to spoil
            "privacy": privacy.model_copy(update={"noise": _own_noise(privacy.noise)}),
        }
        if alone := preset_of(config.algorithm.kind).get("alone"):  # what the method does without the others
            changes["algorithm"] = replace(config.algorithm, **alone)
    elif config.baseline == "central":
        # One node, so one budget: the strictest of those asked for.
        change = {
            "epsilon": _least(privacy.epsilon), "delta": _least(privacy.delta), "noise": _own_noise(privacy.noise)
        }  # fmt: skip
        changes = {
            "nodes": 1,
            "topology": Complete(),
            "privacy": privacy.model_copy(update=change),
        }
    else:
        return config
    return config.model_copy(update={**changes, "name": f"{config.name}+{config.baseline}"})


def _own_noise(noise: Noise) -> Noise:
    """Masks cancel between nodes; a node alone has its own noise."""
    return noise.model_copy(update={"family": Gaussian()}) if noise.family.cancels else noise


def _least(value: float | list[float] | None) -> float | None:
    return min(value) if isinstance(value, list) else value
