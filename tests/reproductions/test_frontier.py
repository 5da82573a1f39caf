"""The frontier's table: its recipes resolve, and what runs give goes into the file between the marks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.full_lots import DIGITS
from tests.support.refusals import expect_refusal

from gossamer.accounting.profiles import gdp_mu
from gossamer.config import recipes
from gossamer.studies.cells import cells
from gossamer.training.api import configure
from reproductions import frontier


def test_every_frontier_recipe_resolves_and_its_table_names_them() -> None:
    named = [name for name in recipes.names() if name.startswith("frontier/")]
    definitions = [frontier.read(name) for name in frontier.names() if name.startswith("frontier/")]
    columns = [c for definition in definitions for block in definition.block for c in block.recipes.values()]
    used = {column if isinstance(column, str) else column.recipe for column in columns}
    assert used == set(named)
    for name in named:
        assert configure(name).privacy.adjacency == "add-remove"


def test_a_column_has_the_features_it_is_named_after() -> None:
    """A change of data.kind empties its table: a variant that forgot its steps would train on pixels."""
    for block in frontier.read("frontier/more").block:
        for column, recipe in block.recipes.items():
            chosen = frontier.Variant(recipe=recipe) if isinstance(recipe, str) else recipe
            (cell,) = cells(recipes.read(chosen.recipe), {**block.set, **chosen.set}, column, 1)
            kinds = {s if isinstance(s, str) else s["kind"] for s in cell.config.data.transform}
            photographs = cell.config.data.kind != "adult"
            assert ("pretrained" in kinds) == (column in ("pretrained", "pairwise") and photographs), column
            assert ("patches" in kinds) == (column == "public features"), column
            assert ("random-fourier" in kinds or "scattering" in kinds) == (
                column == "fixed features" or (column == "pairwise" and not photographs)
            ), column
            assert "unit-norm" in kinds, column


def run(name: str, **options: Any) -> dict[str, Any]:
    how: dict[str, Any] = {
        "scale": "full",
        "out": None,
        "jobs": 1,
        "engine": "local",
        "data_dir": None,
        "quiet": True,
    }
    return frontier.run_frontier(name, **{**how, **options})


SMALL = """
layout = "frontier"
title = "A small one"
seeds = { small = 2, full = 2 }

[[block]]
title = "digits"
budgets = [4.0, 8.0]
recipes = { "pixels" = "RECIPE", "centred" = "RECIPE" }
set = { rounds = 10 }

[block.printed]
paper = "A paper"
values = ["50", "60"]
recipe = "quickstart"
"""


@pytest.mark.slow
def test_the_table_is_made_of_runs_and_goes_into_a_file(tmp_path: Path) -> None:
    import tomli_w

    recipe = tmp_path / "digits.toml"
    recipe.write_text(tomli_w.dumps(DIGITS))
    definition = tmp_path / "small.toml"
    definition.write_text(SMALL.replace("RECIPE", str(recipe)))
    page = tmp_path / "page.md"
    mark = f"<!-- {definition} -->"
    page.write_text(f"before\n{mark}\nold\n<!-- end -->\nafter\n")
    found = run(str(definition), out=tmp_path / "out", jobs=1, quiet=True, into=page, results=tmp_path)
    assert found["failed"] == {}
    first, second = found["rows"]
    assert first["columns"]["pixels"]["epsilon_proven"] == pytest.approx(4.0, rel=1e-6)
    # Twice as far: the ε of 2μ.
    assert gdp_mu(second["replace_one"], 1e-4) == pytest.approx(2 * gdp_mu(8.0, 1e-4), rel=1e-3)
    assert first["paper"]["proven"] > first["paper"]["claimed"] * 0.9
    text = page.read_text()
    assert text.startswith(f"before\n{mark}\n| experiment")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "old" not in text
    assert (tmp_path / "out/table.csv").read_text().count("\n") == 3
    # From the result file alone: the same table, and nothing is run.
    again = run(str(definition), out=tmp_path / "new", jobs=1, quiet=True, results=tmp_path)
    assert again["cells_run"] == 0
    assert again["rows"] == found["rows"]
    # Another setting is another experiment.
    definition.write_text(definition.read_text().replace("rounds = 10", "rounds = 9"))
    changed = run(str(definition), out=tmp_path / "other", jobs=1, quiet=True, results=tmp_path)
    assert changed["cells_run"] == 4


def test_as_is_runs_nothing(tmp_path: Path) -> None:
    with expect_refusal(key="--as-is", names="comparison"):
        run("frontier/table", out=tmp_path / "none", as_is=True)
    definition = tmp_path / "small.toml"
    definition.write_text(SMALL.replace("RECIPE", "frontier/fashion-mnist"))
    (tmp_path / "comparison.json").write_text("{}")
    found = run(str(definition), out=tmp_path, as_is=True, quiet=True)
    assert found["cells_run"] == found["cells_kept"] == 0
    assert "| digits | — | — | — | — | 50 | " in (tmp_path / "table.md").read_text()


def test_a_file_without_the_marks_is_refused_before_anything_runs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with expect_refusal(key="--into", names="lines"):
        run("frontier/table", out=tmp_path / "out", into=page)
    with expect_refusal(key="--into", names="read"):
        run("frontier/table", out=tmp_path / "out", into=tmp_path / "none.md")
    assert not (tmp_path / "out").exists()
