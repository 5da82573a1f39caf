from __future__ import annotations

from gossamer.consortium.figures import line, own_figures


def test_figures_of_one_site_say_nothing_of_all() -> None:
    row = {
        "accuracy_mean": 0.5,
        "accuracy_average_model": 0.5,
        "consensus_distance": 0.0,
        "push_sum_mass": 0.9,
    }
    assert own_figures(row) == {"accuracy_mean": 0.5, "push_sum_weight": 0.9}


def test_a_line_has_who_is_away() -> None:
    row = {"round": 4, "accuracy_mean": 0.5, "epsilon_proven": 1.25, "links": {"a": "up", "b": "down"}}
    assert line(row, 10) == "round 4 of 10, accuracy 0.500, planned ε 1.25; b down"
    assert line({**row, "epsilon_proven": None, "links": {}}, 10) == "round 4 of 10, accuracy 0.500"
