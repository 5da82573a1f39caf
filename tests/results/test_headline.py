"""Which metric a line is read for."""

from __future__ import annotations

from gossamer.results.headline import headline, judged, no_epsilon_covers, title, unit


def test_what_a_row_says_itself_wins_then_what_the_hold_out_measured() -> None:
    assert headline({"metric": "truth_rmse", "accuracy_mean": 0.5}) == "truth_rmse"
    assert headline({"accuracy_mean": 0.5, "rmse_mean": 0.1}) == "accuracy"
    assert headline({"rmse_mean": 0.1}) == "rmse"
    assert headline({"consensus_distance": 0.1}) is None
    assert headline({"metric": None, "rmse_mean": 0.1}) == "rmse"


def test_every_metric_has_a_name_for_people() -> None:
    assert (unit("accuracy"), unit("rmse"), unit("truth_rmse")) == (
        "accuracy (%)",
        "RMSE",
        "RMSE to the truth",
    )
    assert (title("auc"), title("log_loss"), unit("calibration_error")) == (
        "AUC",
        "log loss",
        "calibration error",
    )


def test_figures_that_no_epsilon_covers_are_read_and_known() -> None:
    row = {
        "round": 3,
        "epsilon_proven": 0.0,
        "not_private": {"because": "why", "accuracy_mean": 0.5, "gradient_norm": [1]},
    }
    assert headline(judged(row)) == "accuracy"
    assert judged(row)["accuracy_mean"] == 0.5
    assert "gradient_norm" not in judged(row)
    assert no_epsilon_covers(row) == no_epsilon_covers(judged(row)) == "why"
    assert judged({"round": 3}) == {"round": 3}
    assert no_epsilon_covers({"not_private": {"gradient_norm": [1]}}) is None
