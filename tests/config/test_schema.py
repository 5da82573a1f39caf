"""What is written out is read back as the same configuration, and so is what older versions wrote."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from gossamer.config import recipes
from gossamer.config.layers import resolve, stored
from gossamer.config.methods import method_names
from gossamer.config.schema import RunConfig
from gossamer.results.rundir import RunDirectory

BASELINES = ("none", "non-private", "no-communication", "central")
OLD = """
name = "old"
mode = "sound"
nodes = 4
rounds = 10
seed = 0
device = "cpu"
baseline = "none"
weighting = "uniform"

[data]
kind = "digits"
scale = "unit-ball"

[data.partition]
kind = "label-split"
t = 0.5

[model]
kind = "one-vs-all"

[topology]
kind = "complete"
dropout = 0.0

[algorithm]
kind = "without-replacement"
lr = 0.1
momentum = 0.0
mixes = 1
tail_average = 0.0
final_gossip = 0
observes = "released"

[privacy]
epsilon = 1.0
delta = 1e-05
adjacency = "replace-one"
runs = 1
claim = "lemma4"

[privacy.sampling]
kind = "one-pass"
lot = 50

[privacy.clip]
kind = "record-ball"
radius = 1.0

[privacy.noise]
source = "system"
on = "gradient"

[privacy.noise.family]
kind = "gaussian"

[privacy.noise.schedule]
kind = "constant"

[evaluation]
diagnostics = false
metric = "hold-out"

[runtime]
kind = "simulator"
timeout = 60.0
"""


def round_trip(config: RunConfig, folder: Path) -> None:
    RunDirectory.create(folder).write_config(config.model_dump())
    assert stored(folder / "config.toml") == config
    assert RunConfig.model_validate(config.model_dump()) == config
    assert RunConfig.model_validate(config.model_dump(exclude_none=True)) == config
    again = tomllib.loads(tomli_w.dumps(config.model_dump(exclude_none=True)))
    assert RunConfig.model_validate(again) == config


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("mode", ["sound", "paper"])
def test_every_recipe_is_stored_and_read_back(baseline: str, mode: str, tmp_path: Path) -> None:
    for k, name in enumerate(recipes.names()):
        round_trip(resolve(recipes.read(name), {"baseline": baseline, "mode": mode}), tmp_path / str(k))


@pytest.mark.parametrize(
    "changes",
    [
        *({"algorithm.kind": kind} for kind in method_names()),
        {"algorithm.kind": "dp-dkm", "algorithm.penalty": {"kind": "elastic-net", "weight": 0.1, "l2": 0.2}},
        {"algorithm.lr": {"start": 1.0, "decay": 0.1}},
        {"topology": {"kind": "resampled", "base": {"kind": "erdos-renyi", "p": 0.5}, "every": 3}},
        {"topology": {"kind": "ring", "slow": {"share": 0.5, "every": 4}, "dropout": 0.1}},
        {"topology": {"kind": "edges", "edges": [[0, 1], [1, 2]]}},
        {
            "data": {
                "kind": "csv",
                "path": "a.csv",
                "label": "y",
                "ranges": {"x": [0, 1.5]},
                "classes": ["a", 2],
            }
        },
        {"data.transform": ["scattering", {"kind": "group-norm", "groups": 27}], "data.records": 12},
        {"data.partition": {"kind": "sampled", "size": [3] * 8}},
        {"model.kind": "mlp", "model.hidden": [4, 5]},
        {"loss": {"kind": "huber", "delta": 2.0}},
    ],
    ids=str,
)
def test_every_kind_of_table_is_stored_and_read_back(changes: dict[str, Any], tmp_path: Path) -> None:
    round_trip(resolve(recipes.read("quickstart"), changes), tmp_path / "r")


def test_what_an_older_version_wrote_has_the_keys_that_were_given(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(OLD)
    config = stored(tmp_path / "config.toml")
    assert (config.algorithm.controller, config.algorithm.observes) == ("deep-q", "released")
    assert (config.data.scale, config.data.partition.kind) == ("unit-ball", "label-split")
    assert config.loss is None
