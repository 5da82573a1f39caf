"""What comes before the first round, as plans and certificates say it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.configurations import outlined

from gossamer.results.certificate import before_line, planned_before

ASKED: dict[str, Any] = {
    "rounds": 3,
    "privacy__sampling": {"kind": "full"},
    "data__standardise": {"kind": "moments"},
    "data__class_weights": "private",
    "privacy__preprocessing": 0.25,
}


def test_a_plan_lists_what_is_released_and_what_that_costs_alone() -> None:
    o = outlined("quickstart", **ASKED)
    entry = planned_before(o)
    assert entry is not None
    assert [one["name"] for one in entry["released"]] == ["class-weights", "standardise"]
    assert entry["share"] == 0.25
    assert entry["epsilon"] == pytest.approx(2.0, rel=1e-6)
    line = before_line(entry)
    assert line is not None
    assert "how many records each class has" in line
    assert "alone this costs ε = 2, which the proven ε includes" in line


def test_nodes_of_different_budgets_and_runs_without_noise_say_so() -> None:
    uneven = outlined("quickstart", **ASKED, privacy__epsilon=[4.0] * 4 + [8.0] * 4)
    assert " to " in str(before_line(planned_before(uneven)))
    assert any("rounds alone" in note for note in uneven.privacy.notes)
    silent = planned_before(outlined("quickstart", **ASKED, baseline="non-private"))
    assert silent is not None
    assert silent["epsilon"] is None
    assert "without noise" in str(before_line(silent))
    assert planned_before(outlined("quickstart")) is None
    assert before_line(None) == ""
