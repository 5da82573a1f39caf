"""The promise in words says no more than ε and δ do, and says so where that is little or nothing."""

from __future__ import annotations

import math

import pytest
from rich.console import Console
from scipy.stats import norm
from tests.support.certificates import by_observer, certificate, dated

from gossamer.results.console import curve_line, observer_table
from gossamer.results.words import (
    day,
    explained,
    group,
    known,
    network_lines,
    nodes_of,
    not_promised,
    promise,
    right_guesses,
    shares_noise,
    what,
    who,
)


def test_the_share_of_right_guesses_is_never_below_an_attackers() -> None:
    """The best test between N(0, 1) and N(m, 1) is right with probability Φ(m/2); its exact δ(ε) is known."""
    for m in (0.3, 1.0, 2.5):
        for epsilon in (0.1, 0.5, 1.0, 2.0, 5.0):
            delta = norm.cdf(m / 2 - epsilon / m) - math.exp(epsilon) * norm.cdf(-m / 2 - epsilon / m)
            assert right_guesses(epsilon, delta) >= norm.cdf(m / 2) - 1e-12
    assert right_guesses(0.0, 0.0) == 0.5
    assert right_guesses(800.0, 0.0) == 1.0


def test_the_promise_has_its_numbers_rounded_against_itself() -> None:
    text = " ".join(promise(dated(epsilon_proven=1.0, delta=1e-5)))
    assert "a factor of at most 2.72" in text
    assert "ε ≤ 1 is proven" in text
    assert "one in 100,000" in text
    assert "right at most 73.2 times in 100" in text
    assert "whether it was used at all" in text
    assert "hardly any protection" not in text
    assert "which of two values it had" in promise(dated(adjacency="replace-one"))[0]


@pytest.mark.parametrize(
    ("epsilon", "shown"), [(8.0, "99.97"), (12.0, "99.9994"), (30.0, "100"), (900.0, "100")]
)
def test_a_weak_promise_is_called_one(epsilon: float, shown: str) -> None:
    lines = promise(dated(epsilon_proven=epsilon, delta=0.0))
    assert f"right at most {shown} times in 100" in lines[3]
    assert "hardly any protection" in lines[-1]


def test_where_there_is_no_promise_nothing_else_is_said() -> None:
    assert promise(dated(stamp="seeded noise: no privacy"))[0].startswith("There is no promise of privacy")
    assert promise(dated(epsilon_proven=None, not_proven_because="no clip")) == [
        "No promise of privacy is proven: no clip."
    ]


def test_who_what_and_when() -> None:
    text = what(dated())
    assert "2 nodes (holders of data) together trained models in 1,200 rounds" in text
    assert "201 records as declared: the public data set digits" in text
    assert "issued on 9 March 2026, 11:00 UTC, by Gossamer 1.2.3" in text
    assert "of which no digest is given" in what(dated(data={"kind": "csv", "own": True}))
    assert what(dated(nodes=1)).startswith("One node")
    assert who(dated()) == ["No organisation has signed this certificate."]
    one = {"signer": "Hospital A", "key": "ab" * 32, "at": "2026-12-31T23:59:59Z", "signature": "cd" * 64}
    assert (
        "Signed on 31 December 2026, 23:59 UTC in the name of Hospital A" in who(dated(signatures=[one]))[0]
    )
    assert day("2026-11-01T00:00:00Z") == "1 November 2026, 00:00 UTC"
    assert "groups" in not_promised(dated())


FIGURES = {"worst_pair": {"epsilon": 3.4567, "node": 4, "observer": 7}, "outsider": 1.2, "by_pair": None}


def test_who_looks_on_and_what_it_is_about():
    one, outsider = network_lines(FIGURES)
    assert one == (
        "one node, which sees what reaches it",
        "ε ≤ 3.46 (worst pair: records of node 4, seen by node 7)",
    )
    assert outsider == ("an outsider, who sees the model of every round", "ε ≤ 1.2")


def test_nothing_is_said_where_there_is_no_figure():
    assert network_lines(None) == network_lines({}) == []


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
