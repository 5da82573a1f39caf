"""Observers by their names, and what they see."""

import pytest
from tests.support.refusals import expect_refusal

from gossamer.accounting.observers import (
    EVERYONE,
    FINAL_MODELS,
    MESSAGES,
    OUTSIDER,
    Observer,
    against_all,
    coalition,
    colluders,
    one_node,
    parse_observer,
    refuse_without_exact_means,
)

NEIGHBOUR = "node 1, a neighbour: what reaches them, and their own state"
RING = [(i, (i + step) % 6) for i in range(6) for step in (1, 5)]


@pytest.mark.parametrize(
    ("text", "expected", "words"),
    [
        ("all", EVERYONE, "everyone: all messages of all nodes in every round, and the final models"),
        ("messages", MESSAGES, "everyone's messages: all that is sent in any round, without the final models"),
        ("all+1", colluders(1), colluders(1).description),
        ("final", FINAL_MODELS, "the final models of all nodes, and nothing else"),
        ("neighbour", Observer("neighbour", NEIGHBOUR, members=(1,), target=0), NEIGHBOUR),
        ("coalition:3,1,3", coalition((1, 3), target=0), "nodes 1, 3 together: what reaches them, and their own state"),
        ("node:5", one_node(5), "node 5: the sums that reach it in every exact mean, and its own state"),
        ("outsider", OUTSIDER, "an outsider: the common model after every round, and nothing else"),
        # node 0 sends to neither of them: they look at one whom they hear
        ("coalition:3", coalition((3,), target=2), "nodes 3 together: what reaches them, and their own state"),
    ],
)  # fmt: skip
def test_an_observer_by_its_name(text: str, expected: Observer, words: str) -> None:
    found = parse_observer(text, 6, RING)
    assert found == expected
    assert found.description == words
    assert parse_observer(found.name, 6, RING) == found


def test_what_they_see() -> None:
    seen = {o.name: (o.sees_all, o.sees_models, o.members) for o in (EVERYONE, MESSAGES, FINAL_MODELS)}
    assert seen == {"all": (True, True, ()), "messages": (True, False, ()), "final": (False, True, ())}
    assert one_node(4).members == (4,)
    assert (OUTSIDER.sees_all, OUTSIDER.sees_models, OUTSIDER.members) == (False, True, ())


def test_a_nodes_view_needs_points_that_it_knows() -> None:
    for observer in (one_node(2), OUTSIDER):
        refuse_without_exact_means(observer, bit_equal=True)
        with expect_refusal("--observer", observer.name):
            refuse_without_exact_means(observer, bit_equal=False)
    refuse_without_exact_means(EVERYONE, bit_equal=False)


@pytest.mark.parametrize(
    "text",
    [
        "everyone",
        "coalition",
        "coalition:",
        "coalition:9",
        "coalition:a",
        "coalition:0,1,2,3,4,5",
        "node",
        "node:",
        "node:6",
        "node:-1",
        "outsider:1",
        "",
        "all+",
        "all+6",
        "all+-1",
        "all+x",
        "all:2",
        "coalition+1",
    ],
)
def test_unknown_observers_are_refused(text: str) -> None:
    with expect_refusal(key="--observer"):
        parse_observer(text, 6, RING)


def test_a_neighbour_needs_a_node_that_sends() -> None:
    with expect_refusal(key="--observer", value="neighbour", names="0"):
        parse_observer("neighbour", 6, [(1, 0)])


def test_colluders_are_everyone_and_some_nodes_secrets():
    one, several, nobody = colluders(1), colluders(3), colluders(0)
    assert [o.name for o in (one, several, nobody)] == ["all+1", "all+3", "all+0"]
    assert "any one node" in one.description
    assert "any 3 of the nodes together" in several.description
    assert "everyone but the nodes" in nobody.description


def test_several_figures_hold_together_against_the_fewest_colluders_of_any():
    assert against_all([]) == against_all([EVERYONE, EVERYONE]) == EVERYONE
    assert against_all([EVERYONE, colluders(5), colluders(2)]) == colluders(2)
