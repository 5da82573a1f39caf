"""The promise in words says no more than ε and δ do, and says so where that is little or nothing."""

from __future__ import annotations

import math

import pytest
from scipy.stats import norm
from tests.support.certificates import by_observer, certificate, dated

from gossamer.results.console import curve_line, observer_table
from gossamer.results.pages import certificate_page
from gossamer.results.terminal import Terminal
from gossamer.results.words import (
    day,
    group,
    known,
    network_lines,
    nodes_of,
    promise,
    right_guesses,
    shares_noise,
    spans,
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
    found = promise(dated(epsilon_proven=1.0, delta=1e-5))
    assert (found["ratio"], found["one_in"], found["right"]) == ("2.72", "one in 100,000", "73.2")
    assert not found["hardly"]
    page = certificate_page(dated(epsilon_proven=1.0, delta=1e-5))
    assert "For every single record of every node there is a proven limit" in page
    assert "has to guess whether it was used at all" in page
    assert "how well anybody can tell which of two values it had" in certificate_page(dated(adjacency="replace-one"))


@pytest.mark.parametrize(("epsilon", "shown"), [(8.0, "99.97"), (12.0, "99.9994"), (30.0, "100"), (900.0, "100")])
def test_a_weak_promise_is_called_one(epsilon: float, shown: str) -> None:
    found = promise(dated(epsilon_proven=epsilon, delta=0.0))
    assert (found["right"], found["hardly"]) == (shown, True)
    assert "hardly any protection" in certificate_page(dated(epsilon_proven=epsilon, delta=0.0))


def test_where_there_is_no_promise_none_is_made() -> None:
    for changes, words in (
        ({"stamp": "seeded noise: no privacy"}, "There is no promise of privacy"),
        ({"epsilon_proven": None, "not_proven_because": "no clip"}, "is proven: no clip."),
    ):
        text = certificate_page(dated(**changes))
        assert words in text
        assert "a proven limit" not in text


def test_who_what_and_when() -> None:
    text = " ".join(certificate_page(dated()).split())
    assert "2 nodes (holders of data) together trained models in 1,200 rounds" in text
    assert "201 records as declared: the public data set digits" in text
    assert "issued on 9 March 2026, 11:00 UTC, by Gossamer 1.2.3" in text
    assert "No organisation has signed this certificate." in text
    one = {"signer": "Hospital A", "key": "ab" * 32, "at": "2026-12-31T23:59:59Z", "signature": "cd" * 64}
    text = certificate_page(dated(signatures=[one], data={"kind": "csv", "own": True}))
    assert "Signed on 31 December 2026, 23:59 UTC in the name of Hospital A" in text
    assert "of which no digest is given" in text
    assert day("2026-11-01T00:00:00Z") == "1 November 2026, 00:00 UTC"


def test_equal_neighbours_share_a_row() -> None:
    assert spans(enumerate("aaba"), str) == [("0–1", "a"), ("2", "b"), ("3", "a")]


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
    console = Terminal(width=80, markup=False, force_terminal=True)
    for nodes in (2, 8, 100_000):
        with console.capture() as shown:
            observer_table(by_observer(nodes=nodes)).show(console)
        lines = shown.get().splitlines()
        assert len(lines) == len(by_observer(nodes=nodes)["epsilon_by_observer"]) + 1  # no line is broken
        assert [line.split()[0] for line in lines].count("→") == 1
        assert sum("(planned)" in line for line in lines) == 1


def test_the_curve_is_drawn_where_no_number_is_left_out_and_told_else() -> None:
    assert curve_line(by_observer()) == "ε for 0 … 7 colluding nodes  ▂▃▄▅▆▇██  0.25 … 2"
    few = by_observer()
    few["epsilon_by_colluders"] = [few["epsilon_by_colluders"][q] for q in (0, 1, 7)]
    assert curve_line(few) == "ε by the number of colluding nodes: 0.25 for 0, 0.5 for 1, 2 for 7"


@pytest.mark.parametrize(
    ("planned", "present", "absent"),
    [
        (1, ["is any one of the 8 nodes", "two of the other nodes share", "If more than 1 node collude"], []),
        (3, ["If more than 3 nodes collude, ε = 1 does not hold", "At the most it is ε = 2,"], []),
        (0, ["none of the 8 nodes", "If more than 0 nodes collude"], []),
        (7, ["the 7 other nodes together", "There are no more"], ["two of the other nodes share"]),
    ],
)
def test_who_may_collude_is_explained(planned: int, present: list[str], absent: list[str]) -> None:
    text = " ".join(certificate_page(dated(**by_observer(planned=planned))).split())
    assert all(words in text for words in present)
    assert not any(words in text for words in absent)
