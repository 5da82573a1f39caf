"""A plan is an outline that can be read."""

from __future__ import annotations

import gossamer
from gossamer.planning.outline import Outline
from gossamer.results.console import summary
from gossamer.training.api import configure


def test_it_is_the_outline_with_its_figures() -> None:
    made = gossamer.plan("quickstart", {"rounds": 4})
    assert isinstance(made, Outline)
    assert made.result == summary(made)
    assert (made.epsilon_proven, made.epsilon_claimed) == (
        made.result["epsilon_proven"],
        made.result["epsilon_claimed"],
    )
    assert repr(made).startswith("Plan of quickstart: dyn-d2p")
    assert made._repr_html_().startswith("<div")


def test_a_recipe_may_be_a_name_tables_or_a_configuration() -> None:
    config = configure("quickstart", {"rounds": 4})
    by_name = gossamer.plan("quickstart", {"rounds": 4}).result
    assert gossamer.plan(config).result == by_name
    assert gossamer.plan(config.model_dump(exclude_none=True)).result == by_name
    assert gossamer.plan(config, {"rounds": 5}).config.rounds == 5
