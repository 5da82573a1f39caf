"""Which metric a line is read for."""

from __future__ import annotations

from gossamer.results.headline import UNITS, headline


def test_what_a_row_says_itself_wins_then_what_the_hold_out_measured() -> None:
    assert headline({"metric": "truth_rmse", "accuracy_mean": 0.5}) == "truth_rmse"
    assert headline({"accuracy_mean": 0.5, "rmse_mean": 0.1}) == "accuracy"
    assert headline({"rmse_mean": 0.1}) == "rmse"
    assert headline({"consensus_distance": 0.1}) is None
    assert headline({"metric": None, "rmse_mean": 0.1}) == "rmse"


def test_every_metric_has_a_name_for_people() -> None:
    assert {"accuracy", "rmse", "truth_rmse"} == set(UNITS)
