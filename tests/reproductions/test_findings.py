"""Findings: what counts as an order, a level line, a printed number reached, and which verdict that makes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError
from scipy import stats

from reproductions.definition import Finding
from reproductions.findings import Judged, Outcome, difference_half_width, half_width
from reproductions.findings import judge as judge_readings


def cell(labels: dict[str, str], values: list[float], *, printed: float | None = None, metric: str = "accuracy",
         mode: str = "paper") -> dict[str, Any]:  # fmt: skip
    return {"labels": labels, "paper_mean": printed, "modes": {mode: {"metric": metric, "values": values}}}


def table(**rows: list[float]) -> list[dict[str, Any]]:
    return [cell({"method": name, "budget": "ε = 1"}, values) for name, values in rows.items()]


def judge(findings: list[Finding], cells: list[dict[str, Any]]) -> tuple[Outcome, ...]:
    return judge_readings(findings, cells)[0].outcomes


def verdict(outcomes: Any) -> str:
    return Judged("", tuple(outcomes)).verdict


ORDER = Finding(says="a, then b, then c", along="method", order=["a", "b", "c"])


def test_an_order_is_checked_pair_by_pair_and_beyond_the_spread() -> None:
    (outcome,) = judge([ORDER], table(a=[90.0, 90.1, 90.2], b=[80.0, 80.1, 80.2], c=[79.9, 80.2, 80.5]))
    assert [(c.holds, c.clearly) for c in outcome.checks] == [(True, True), (False, False)]
    assert outcome.word == "in part"
    (outcome,) = judge([ORDER], table(a=[90.0, 80.0, 91.0], b=[85.0, 86.0, 84.0], c=[10.0, 11.0, 12.0]))
    assert [(c.holds, c.clearly) for c in outcome.checks] == [(True, False), (True, True)]
    assert outcome.word == "holds"


def test_of_errors_the_smaller_is_first() -> None:
    cells = [
        cell({"method": name}, [value], metric="truth_rmse") for name, value in (("a", 0.1), ("b", 0.2), ("c", 0.3))
    ]
    assert judge([ORDER], cells)[0].word == "holds"
    assert judge([ORDER.model_copy(update={"order": ["c", "b", "a"]})], cells)[0].word == "does not hold"


def test_pairs_are_taken_within_the_same_other_labels() -> None:
    cells = [
        cell({"method": m, "budget": b}, [v])
        for m, b, v in (("a", "1", 50.0), ("b", "1", 40.0), ("a", "2", 90.0), ("b", "2", 95.0))
    ]
    (outcome,) = judge([ORDER], cells)
    assert [c.holds for c in outcome.checks] == [True, False]  # 90 against 95, never 90 against 40
    (outcome,) = judge([ORDER.model_copy(update={"where": {"budget": "1"}})], cells)
    assert len(outcome.checks) == 1


def test_a_level_line_may_differ_by_so_much() -> None:
    finding = Finding(says="level", along="method", level=2.0)
    assert judge([finding], table(a=[90.0], b=[91.9]))[0].word == "holds"
    assert judge([finding], table(a=[90.0], b=[92.1]))[0].word == "does not hold"
    errors = [cell({"method": m}, [v], metric="rmse") for m, v in (("a", 0.100), ("b", 0.103))]
    assert judge([finding.model_copy(update={"level": 3.1})], errors)[0].word == "holds"  # 2.96 per cent
    assert judge([finding.model_copy(update={"level": 2.8})], errors)[0].word == "does not hold"


def test_a_figure_above_print_is_exceeded_and_does_not_hold() -> None:
    cells = [cell({"method": "a"}, [88.0], printed=90.0), cell({"method": "b"}, [95.0], printed=90.0)]
    cells.append(cell({"method": "c"}, [1.0]))  # nothing is printed there: no check
    near = Finding(says="", near=2.0)
    (outcome,) = judge([near], cells)
    assert [(c.holds, c.exceeded) for c in outcome.checks] == [(True, False), (False, True)]
    assert (outcome.word, verdict([outcome])) == ("exceeded", "exceeded")
    (outcome,) = judge([near], [*cells, cell({"method": "d"}, [80.0], printed=90.0)])
    assert (outcome.held, outcome.exceeded, outcome.word) == (1, 1, "does not hold")
    assert verdict([outcome]) == "not"
    errors = [cell({"method": "a"}, [0.1], printed=0.5, metric="rmse")]
    assert judge([Finding(says="", near=0.1)], errors)[0].word == "exceeded"  # of errors less is more


def test_a_lead_is_held_against_the_printed_one_on_both_sides() -> None:
    lead = Finding(says="", along="method", order=["a", "b"], lead=39.0, near=5.0)
    words = [judge([lead], table(a=[v], b=[45.0]))[0].word for v in (60.0, 80.0, 95.0)]
    assert words == ["does not hold", "holds", "exceeded"]
    times = [cell({"method": m}, [v], metric="seconds") for m, v in (("a", 2.0), ("b", 5.0))]
    slower = lead.model_copy(update={"lead": 150.0})
    assert judge([slower], times)[0].word == "holds"  # 150 per cent longer
    assert lead.part == "size"


def test_where_the_lead_is_largest_is_checked_pair_by_pair() -> None:
    gain = Finding(
        says="the smaller ε, the larger the lead", along="method", order=["a", "b"],
        lead_along="budget", lead_order=["0.3", "1", "3"],
    )  # fmt: skip
    cells = [
        cell({"method": m, "budget": b}, [v])
        for b, a_value, b_value in (("0.3", 80.0, 60.0), ("1", 82.0, 70.0), ("3", 90.0, 75.0))
        for m, v in (("a", a_value), ("b", b_value))
    ]
    (outcome,) = judge([gain], cells)
    assert [c.holds for c in outcome.checks] == [True, False]  # 20, 12 and 15 points
    assert outcome.finding.part == "size"


def test_a_void_statement_is_not_checked_and_counts_for_nothing() -> None:
    void = Finding(says="both", void="Section 1 says so, Table 1 the opposite")
    outcomes = judge([ORDER, void], table(a=[3.0], b=[2.0], c=[1.0]))
    assert [o.word for o in outcomes] == ["holds", "void"]
    assert verdict(outcomes) == "reproduced"
    assert verdict(judge([void], [])) == "void"


def test_readings_are_judged_one_by_one_the_nearest_to_the_paper_first() -> None:
    def under(reading: str, a: float, b: float) -> list[dict[str, Any]]:
        return [cell({"reading": reading, "method": m}, [v], printed=80.0) for m, v in (("a", a), ("b", b))]

    cells = [*under("wrong", 50.0, 60.0), *under("right", 80.5, 79.5)]
    cells.append(cell({"reading": "no noise", "method": "c"}, [50.0], printed=80.0))
    findings = [ORDER.model_copy(update={"order": ["a", "b"]}), Finding(says="", near=1.0)]
    readings = {"wrong": ["no noise"], "right": []}
    judged = judge_readings(findings, cells, readings)
    assert [(j.reading, j.verdict, j.whole) for j in judged] == [
        ("right", "reproduced", ["order", "level"]),
        ("wrong", "not", []),
    ]
    assert [len(o.checks) for o in judged[1].outcomes] == [1, 3]  # with what is shared between readings
    about_one = findings[0].model_copy(update={"where": {"reading": "wrong"}})
    assert {j.reading: len(j.outcomes) for j in judge_readings([about_one], cells, readings)} == {
        "wrong": 1,
        "right": 0,
    }


def test_the_verdict_counts_paper_mode_only() -> None:
    holds = judge([ORDER], table(a=[3.0], b=[2.0], c=[1.0]))
    fails = judge([ORDER], table(a=[1.0], b=[2.0], c=[3.0]))
    sound = judge([ORDER.model_copy(update={"mode": "sound"})], table(a=[1.0], b=[2.0], c=[3.0]))
    assert verdict(holds) == "reproduced"
    assert verdict(fails) == "not"
    assert verdict([*holds, *fails]) == "in part"
    assert verdict([*holds, *sound]) == "reproduced"
    assert verdict(sound) == "not"  # nothing was held against the paper


def test_a_finding_that_no_cell_answers_is_not_checked_and_nothing_is_reproduced_by_it() -> None:
    assert judge([ORDER], [])[0].word == "not checked"
    assert verdict(judge([ORDER], [])) == "not"
    holds = judge([ORDER], table(a=[3.0], b=[2.0], c=[1.0]))
    assert verdict([*holds, *judge([ORDER], [])]) == "in part"
    missing = [cell({"method": m}, [math.nan if m == "x" else 1.0]) for m in "ab"]
    missing[0]["modes"]["paper"]["values"] = [None]  # diverged
    assert judge([ORDER], missing)[0].word == "not checked"


def test_what_was_run_in_one_mode_stands_for_both() -> None:
    finding = ORDER.model_copy(update={"mode": "sound", "order": ["a", "b"]})
    cells = [cell({"method": "a"}, [2.0]), cell({"method": "b"}, [1.0], mode="sound")]
    cells[1]["modes"]["paper"] = {"metric": "accuracy", "values": [9.0]}
    assert judge([finding], cells)[0].word == "holds"


def test_intervals_are_those_of_student_and_welch() -> None:
    a, b = [1.0, 2.0, 4.0], [5.0, 5.5, 7.0, 8.0]
    low, high = stats.t.interval(0.95, 2, loc=sum(a) / 3, scale=stats.sem(a))
    assert half_width(a) == pytest.approx((high - low) / 2)
    assert half_width([1.0]) is None
    test = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert difference_half_width(a, b) == pytest.approx((test.high - test.low) / 2)
    assert difference_half_width(a, [1.0]) == math.inf
    assert difference_half_width([1.0, 1.0], [2.0, 2.0]) == 0.0


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"near": 1.0, "level": 1.0, "along": "a"},
        {"order": ["a", "b"]},
        {"order": ["a", "b"], "along": "a", "near": 1.0},
        {"order": ["a", "b"], "along": "a", "lead": 1.0},
        {"order": ["a", "b", "c"], "along": "a", "lead": 1.0, "near": 1.0},
        {"order": ["a", "b"], "along": "a", "lead_order": ["c", "d"]},
    ],
)
def test_a_finding_is_one_check_with_its_axis(keys: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Finding(says="", **keys)


def test_a_cell_of_the_other_mode_stands_in_only_where_it_has_no_epsilon() -> None:
    """A sound run is no evidence for what the paper says of its own mechanism; a noiseless one is the same in both."""

    def three(**epsilon: float) -> list[dict[str, Any]]:
        cells = table(a=[90.0], b=[80.0], c=[70.0])
        found = cells[1].pop("modes")["paper"]
        cells[1]["modes"] = {"sound": {**found, **epsilon}}
        return cells

    assert [c.about for c in judge([ORDER], three(epsilon_proven=1.0))[0].checks] == ["a before c, ε = 1: +20"]
    assert len(judge([ORDER], three())[0].checks) == 2
