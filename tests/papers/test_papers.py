"""The papers' tables: every one can be read, and says which paper, which place and which runs it means."""

import pytest

from gossamer import papers
from gossamer.config import recipes
from gossamer.errors import UserError


@pytest.mark.parametrize("name", papers.names())
def test_a_table_names_its_paper_its_place_and_its_runs(name):
    table = papers.read(name)
    assert table["title"]
    if table.get("layout") == "frontier":
        named = [recipe for block in table["block"] for recipe in block["recipes"].values()]
        used = {recipe["recipe"] if isinstance(recipe, dict) else recipe for recipe in named}
        assert used <= set(recipes.names())
        return
    assert table["paper"]
    if table.get("layout") == "no-experiment":
        assert table["source"]
        return
    assert table["recipe"] in recipes.names()
    for grid in table["grid"]:
        assert grid["source"]  # where the paper prints it
        lines = [line.split("|") for line in grid["cells"].strip().splitlines()]
        assert len({len(line) for line in lines}) == 1  # a rectangle


def test_tables_are_named_paper_and_place():
    assert papers.names() == sorted(papers.names())
    assert "dyn-d2p/table2" in papers.names()
    assert all(name.count("/") == 1 for name in papers.names())


def test_a_table_of_the_users_own_is_read_by_its_path(tmp_path):
    (tmp_path / "own.toml").write_text('title = "mine"\n')
    assert papers.read(str(tmp_path / "own.toml")) == {"title": "mine"}


def test_a_table_like_another_takes_over_what_it_does_not_say_and_its_rules_come_last(tmp_path):
    (tmp_path / "one.toml").write_text(
        'title = "one"\npaper = "P"\n[scale.full]\nseeds = 5\n[[rule]]\nset = {a = 1}\n'
    )
    (tmp_path / "two.toml").write_text(
        f'like = "{(tmp_path / "one.toml").as_posix()}"\ntitle = "two"\n[[rule]]\nset = {{a = 2}}\n'
    )
    assert papers.read(str(tmp_path / "two.toml")) == {
        "title": "two",
        "paper": "P",
        "scale": {"full": {"seeds": 5}},
        "rule": [{"set": {"a": 1}}, {"set": {"a": 2}}],
    }
    figure, table = papers.read("dp-consensus/figure1"), papers.read("dp-consensus/table1")
    taken, own = figure["rule"][: len(table["rule"])], figure["rule"][len(table["rule"]) :]
    assert taken == table["rule"]  # so that it draws the table's runs,
    assert all(rule["leave_out"] and "set" not in rule for rule in own)  # or fewer of them


def test_an_unknown_table_is_refused_with_those_there_are():
    with pytest.raises(
        UserError, match=r"'dyn-d2p/table9' is not a table I know; the tables are adad2p/figure1, "
    ):
        papers.read("dyn-d2p/table9")
