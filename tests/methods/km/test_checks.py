"""What DP-dKM refuses: a configuration, its sentence, and the nearest one that passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gossamer.config import recipes
from gossamer.config.layers import resolve
from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.methods.km import checks

Changes = dict[str, Any]
KM: Changes = {}
SILENT: Changes = {"privacy.noise.schedule": {"kind": "none"}}
TABLE: list[tuple[Callable[[RunConfig], None], Changes, str, Changes]] = [
    (
        checks.node_resolvents_bound_no_record,
        {**KM, "algorithm.resolvent": "node"},
        "algorithm.resolvent = 'node' mixes all records of a node into one vector",
        {**KM, "algorithm.resolvent": "record"},
    ),
    (
        checks.node_resolvents_bound_no_record,
        {**KM, "algorithm.resolvent": "node"},
        "use 'record'",
        {**KM, "algorithm.resolvent": "node", **SILENT},
    ),
    (
        checks.iterates_have_no_proof,
        {**KM, "privacy.noise.on": "iterate"},
        "privacy.noise.on = 'iterate' has no proof",
        {**KM, "privacy.noise.on": "iterate", "mode": "paper"},
    ),
    *[
        (
            checks.messages_pay_for_one_exchange,
            {**KM, "privacy.noise.on": "iterate", **more},
            "privacy.noise.on = 'iterate' pays for one message a round",
            {**KM, "privacy.noise.on": "gradient", **more},
        )
        for more in ({"algorithm.mixes": 2}, {"algorithm.final_gossip": 3}, {"privacy.centre": 0.1})
    ],
    (
        checks.messages_have_the_same_noise_each,
        {
            **KM,
            "privacy.noise.on": "iterate",
            "privacy.noise.schedule": {"kind": "growing-budget", "ratio": 2.0},
        },
        "privacy.noise.schedule.kind = 'growing-budget' does not go with privacy.noise.on = 'iterate'",
        {**KM, "privacy.noise.on": "iterate", "privacy.noise.schedule": {"kind": "constant"}},
    ),
]
rows = pytest.mark.parametrize(
    ("refuse", "refused", "says", "passes"),
    TABLE,
    ids=[f"{i}-{row[0].__name__}" for i, row in enumerate(TABLE)],
)


def lasso(changes: Changes) -> RunConfig:
    return resolve(recipes.read("dp-dkm/lasso"), changes)


@rows
def test_it_refuses_in_one_sentence(refuse: Any, refused: Changes, says: str, passes: Changes) -> None:
    config = lasso(refused)
    for check in (refuse, checks.check):
        with pytest.raises(UserError) as caught:
            check(config)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError) as caught:
        refuse(config)
    assert says in str(caught.value)


@rows
def test_it_lets_the_nearest_pass(refuse: Any, refused: Changes, says: str, passes: Changes) -> None:
    refuse(lasso(passes))
