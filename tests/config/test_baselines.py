"""What a baseline changes of a configuration, and that it changes nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from gossamer.config.checks import effective
from gossamer.config.layers import resolve
from gossamer.config.schema import RunConfig

BASE: dict[str, Any] = {
    "name": "asked",
    "nodes": 4,
    "rounds": 10,
    "weighting": "size",
    "data": {"kind": "digits", "records": [300, 300, 300, 300]},
    "model": {"kind": "softmax"},
    "topology": {"kind": "ring"},
    "algorithm": {"kind": "dyn-d2p", "lr": 0.1},
    "privacy": {"epsilon": [3.0, 1.0, 2.0, 4.0], "delta": [1e-5, 1e-4, 1e-3, 1e-4]},
}


def asked(baseline: str | None = None, **changes: Any) -> RunConfig:
    return resolve(BASE, {**changes, **({"baseline": baseline} if baseline else {})})


def differing(before: RunConfig, after: RunConfig) -> set[str]:
    return {name for name in type(before).model_fields if getattr(before, name) != getattr(after, name)}


def test_without_a_baseline_the_configuration_runs_as_it_is() -> None:
    config = asked()
    assert effective(config) is config


@pytest.mark.parametrize(
    ("baseline", "changed"),
    [
        ("non-private", {"name", "privacy"}),
        ("no-communication", {"name", "weighting"}),
        ("central", {"name", "nodes", "topology", "privacy"}),
    ],
)
def test_nothing_else_is_changed_and_the_name_says_so(baseline: str, changed: set[str]) -> None:
    config = asked(baseline)
    before = config.model_copy(deep=True)
    runs = effective(config)
    assert differing(config, runs) == changed
    assert runs.name == f"asked+{baseline}"
    assert config == before  # what was asked for is what is written


def test_non_private_has_neither_clip_nor_noise_nor_a_claim_and_draws_as_before() -> None:
    config = asked("non-private", **{"privacy.noise.source": "seeded"})
    privacy = effective(config).privacy
    assert (privacy.clip.kind, privacy.noise.schedule.kind, privacy.claim) == ("none", "none", "none")
    assert privacy.epsilon is None
    assert privacy.sampling == config.privacy.sampling
    assert privacy.noise.source == "seeded"


def test_central_is_one_node_with_the_strictest_budget() -> None:
    runs = effective(asked("central"))
    assert (runs.nodes, runs.topology.kind) == (1, "complete")
    assert (runs.privacy.epsilon, runs.privacy.delta) == (1.0, 1e-5)
    one = effective(asked("central", **{"privacy.epsilon": 2.0, "privacy.delta": 1e-5})).privacy
    assert (one.epsilon, one.delta) == (2.0, 1e-5)


def test_a_method_may_say_what_it_does_alone() -> None:
    """A shared model that nobody writes."""
    changes = {"algorithm.kind": "without-replacement", "data.scale": "unit-ball", "weighting": "uniform"}
    config = asked("no-communication", **changes)
    runs = effective(config)
    assert runs.algorithm.controller == "local" != config.algorithm.controller
    assert effective(asked("no-communication")).algorithm == asked().algorithm
