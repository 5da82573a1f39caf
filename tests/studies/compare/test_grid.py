"""The layout of a comparison, and mistakes in it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.refusals import expect_refusal

from gossamer.config.layers import parse_overrides
from gossamer.errors import UserError
from gossamer.studies import cells as module
from gossamer.studies.cells import BASELINES, parse_overs, split_values


def lay_out(recipes: list[Any], sets: Any = (), overs: Any = (), **how: Any) -> list[module.Row]:
    """As the command line does."""
    typed = overs if isinstance(overs, dict) else parse_overs(overs)
    return module.lay_out(recipes, sets=parse_overrides(sets), overs=typed, **how)


def test_commas_inside_brackets_braces_and_quotes_do_not_split() -> None:
    assert split_values("1,2") == ["1", "2"]
    assert split_values("[1, 2],{a = 1, b = [3, 4]} , 'x,y'") == ["[1, 2]", "{a = 1, b = [3, 4]}", "'x,y'"]


def test_values_are_read_as_set_reads_them() -> None:
    overs = parse_overs(["privacy.epsilon=0.3,1", "algorithm.kind=dyn-d2p,sgp", "topology={kind = 'ring'}"])
    assert overs == {
        "privacy.epsilon": [0.3, 1],
        "algorithm.kind": ["dyn-d2p", "sgp"],
        "topology": [{"kind": "ring"}],
    }


def test_every_combination_is_a_row_and_every_seed_a_cell() -> None:
    rows = lay_out(
        ["quickstart", "dyn-d2p/fashion-mnist"],
        overs=["privacy.epsilon=1,4,8", "algorithm.kind=dyn-d2p,const-d2p"],
        sets=["rounds=20", "seed=5"],
        seeds=3,
    )
    assert len(rows) == 2 * 3 * 2
    assert [cell.config.seed for cell in rows[0].cells] == [5, 6, 7]
    assert len({cell.name for row in rows for cell in row.cells}) == 36
    last = rows[-1].cells[0].config
    assert (last.privacy.epsilon, last.algorithm.kind, last.rounds) == (8, "const-d2p", 20)
    # Another method brings its own parts, at the recipe's clip and step size.
    assert (last.privacy.clip.kind, last.privacy.noise.schedule.kind, last.algorithm.lr) == (
        "constant",
        "constant",
        0.03,
    )


def test_a_change_of_kind_keeps_the_other_keys_set_with_it() -> None:
    rows = lay_out(["quickstart"], sets=["privacy.clip.gamma=0.5"], overs=["privacy.clip.kind=normalised"])
    assert rows[0].cells[0].config.privacy.clip.gamma == 0.5


def test_the_folder_follows_from_the_configuration_alone() -> None:
    by_set = lay_out(["quickstart"], sets=["rounds=20", "privacy.epsilon=4.0"])
    by_over = lay_out(["quickstart"], overs=["privacy.epsilon=4.0"], sets=["rounds=20"])
    assert by_set[0].cells[0].name == by_over[0].cells[0].name


def test_baselines_come_with_every_row_but_the_non_private_once() -> None:
    rows = lay_out(["quickstart"], overs=["privacy.epsilon=1,8"], baselines=True)
    assert [(row.settings["privacy.epsilon"], row.baseline) for row in rows] == [
        (1, None),
        (None, "non-private"),
        (1, "no-communication"),
        (1, "central"),
        (8, None),
        (8, "no-communication"),
        (8, "central"),
    ]
    assert {row.cells[0].config.baseline for row in rows} == {"none", *BASELINES}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"overs": ["privacy.epsilom=1,2"]}, ["epsilom", "epsilon"]),
        ({"overs": ["privacy.epsilon"]}, ["--over", "key=value,value"]),
        ({"overs": ["privacy.epsilon=1,,2"]}, ["--over", "key=value,value"]),
        ({"overs": ["rounds=1,1"]}, ["rounds", "[1, 1]", "twice"]),
        ({"overs": ["rounds=1", "rounds=2"]}, ["rounds", "twice"]),
        ({"overs": ["rounds=1,2"], "sets": ["rounds=3"]}, ["rounds", "--set", "--over"]),
        ({"overs": ["seed=1,2"], "seeds": 2}, ["--over seed", "--seeds"]),
        ({"seeds": 0}, ["--seeds 0"]),
        ({"overs": ["privacy.epsilon=1,-1"]}, ["privacy.epsilon = -1"]),
    ],
)
def test_a_mistake_is_one_sentence(given: dict[str, object], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        lay_out(["quickstart"], **given)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(("over", "says"), [(4.0, "values"), ("ab", "values"), ([1, 1], "twice")])
def test_values_given_in_python_are_lists(over: Any, says: str) -> None:
    with expect_refusal(key="privacy.epsilon", names=says):
        lay_out(["quickstart"], overs={"privacy.epsilon": over})
