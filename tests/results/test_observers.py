"""Who looks on, in words: what a figure rests on is said, and what happens where it fails."""

from __future__ import annotations

import pytest
from rich.console import Console
from tests.support.certificates import by_observer, certificate

from gossamer.results.observers import (
    curve_line,
    explained,
    group,
    known,
    nodes_of,
    observer_table,
    shares_noise,
)


def test_only_shared_noise_has_more_than_one_observer() -> None:
    assert shares_noise(by_observer())
    assert not shares_noise(certificate())  # from before it was stated
    assert not shares_noise({"epsilon_by_colluders": []})
    assert nodes_of(by_observer(nodes=20)) == 20


@pytest.mark.parametrize(
    ("colluders", "nodes", "words"),
    [
        (0, 8, "nothing that only nodes know"),
        (1, 8, "all that any one of the 8 nodes knows"),
        (3, 8, "all that any 3 of the 8 nodes together know"),
        (7, 8, "all that the 7 other nodes together know"),
        (1, 2, "all that the other node knows"),
    ],
)
def test_an_observer_has_what_its_nodes_have(colluders: int, nodes: int, words: str) -> None:
    assert known(colluders, nodes) == words
    assert colluders == 0 or group(colluders, nodes) in words


def test_the_table_fits_into_eighty_columns_and_marks_the_planned_line() -> None:
    console = Console(width=80, markup=False)
    for nodes in (2, 8, 100_000):
        with console.capture() as shown:
            console.print(observer_table(by_observer(nodes=nodes)))
        lines = shown.get().splitlines()
        assert len(lines) == len(by_observer(nodes=nodes)["epsilon_by_observer"]) + 1  # no line is broken
        assert [line.split()[0] for line in lines].count("→") == 1
        assert sum("(planned)" in line for line in lines) == 1


def test_the_curve_is_drawn_where_no_number_is_left_out_and_told_else() -> None:
    assert curve_line(by_observer()) == "ε for 0 … 7 colluding nodes  ▂▃▄▅▆▇██  0.25 … 2"
    few = by_observer()
    few["epsilon_by_colluders"] = [few["epsilon_by_colluders"][q] for q in (0, 1, 7)]
    assert curve_line(few) == "ε by the number of colluding nodes: 0.25 for 0, 0.5 for 1, 2 for 7"


def test_the_words_say_who_what_it_lacks_and_what_if_more() -> None:
    said = dict(explained(by_observer(planned=1)))
    assert said["who the observer is"].startswith(
        "Any one of the 8 nodes, whichever, but not the node that holds"
    )
    assert "every message of every node in every round" in said["who the observer is"]
    assert "two of the other nodes share" in said["what it must not have"]
    assert said["what else it rests on"].startswith(
        "All other nodes follow the protocol: each adds the noise"
    )
    assert "If more than one node tells what it knows, ε = 0.5 does not hold" in said["if more collude"]
    assert "At the most it is ε = 2," in said["if more collude"]
    several = dict(explained(by_observer(planned=3)))
    assert "If more than 3 nodes pool what they know" in several["if more collude"]
    nobody = dict(explained(by_observer(planned=0)))
    assert nobody["who the observer is"].startswith("Anyone who is none of the 8 nodes.")
    assert "If any node tells what it knows" in nobody["if more collude"]
    everyone = dict(explained(by_observer(planned=7)))
    assert everyone["who the observer is"].startswith(
        "The 7 other nodes together, that is, all but the node that"
    )
    assert everyone["what else it rests on"].startswith(
        "The node that holds the record follows the protocol: it adds"
    )
    assert "what it must not have" not in everyone  # no two are left
    assert everyone["if more collude"].startswith("There are no more")
    for words in (said, several, nobody, everyone):
        assert all(sentence.endswith(".") for sentence in words.values())
