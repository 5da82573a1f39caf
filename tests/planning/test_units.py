from __future__ import annotations

import math

import pytest

from gossamer.accounting.gaussian import gdp_epsilon
from gossamer.config import recipes, resolve
from gossamer.errors import UserError
from gossamer.planning.units import by_group, most_nodes
from gossamer.training.outline import outline

FULL = {"privacy.sampling": {"kind": "full"}, "privacy.clip": {"kind": "constant", "bound": 1.0}, "rounds": 4,
        "privacy.noise.schedule": {"kind": "constant"}, "privacy.noise.multiplier": 8.0, "privacy.epsilon": None}  # fmt: skip


def test_a_group_is_priced_for_runs_that_protect_records_alone() -> None:
    plan = outline(resolve(recipes.read("quickstart"), FULL)).plan
    assert by_group(plan)[5] == pytest.approx(gdp_epsilon(5 * math.sqrt(4) / 8, 1e-4))
    assert by_group(outline(resolve(recipes.read("quickstart"), {**FULL, "privacy.unit": "node"})).plan) == {}


def test_sites_are_no_more_than_nodes() -> None:
    unit = {"column": "p", "max_sites": 50}
    assert most_nodes(resolve(recipes.read("quickstart"), {"nodes": 3, "privacy.unit": unit})) == 3


def test_unlike_nodes_have_no_joint_price() -> None:
    asked = {**FULL, "nodes": 2, "data.persons": 100, "privacy.unit": {"column": "p", "max_sites": 2},
             "privacy.sampling": {"kind": "poisson", "rate": [0.1, 0.2]}}  # fmt: skip
    with pytest.raises(
        UserError, match="max_sites = 2 has a person on several nodes, which are priced together only"
    ):
        outline(resolve(recipes.read("quickstart"), asked))
