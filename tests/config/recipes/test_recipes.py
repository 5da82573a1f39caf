"""The recipes: every one resolves, opens with what it is, and is found by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.refusals import expect_refusal

from gossamer.config import recipes
from gossamer.config.layers import resolve


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_says_what_it_is_and_resolves_in_both_modes(name: str) -> None:
    assert len(recipes.description(name).split()) > 3
    config = resolve(recipes.read(name))
    assert config.name == name
    assert resolve(recipes.read(name), {"mode": "paper"}).mode == "paper"


def test_a_file_of_ones_own_is_named_after_itself_unless_it_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("nodes = 3\n")
    assert recipes.read(str(tmp_path / "mine.toml")) == {"name": "mine", "nodes": 3}
    (tmp_path / "mine.toml").write_text('name = "other"\n')
    assert recipes.read(str(tmp_path / "mine.toml")) == {"name": "other"}


@pytest.mark.parametrize(
    ("name", "names"),
    [("quikstart", "quickstart"), ("no.toml", "TOML recipe")],
)
def test_what_is_neither_is_refused_with_the_nearest_recipe(name: str, names: str) -> None:
    with expect_refusal(name, names=f"{names} `gossamer recipes`", remedy=True):
        recipes.read(name)
