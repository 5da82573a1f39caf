"""One node and an outsider, in words."""

from gossamer.results.network import network_lines

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
