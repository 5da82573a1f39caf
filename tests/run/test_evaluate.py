"""When a run is evaluated, and what has been spent by then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.configurations import outlined

from gossamer.run.assemble import assemble
from gossamer.run.begin import begin
from gossamer.run.evaluate import evaluation_of, evaluation_rounds
from gossamer.runtime.group import Alone


@given(rounds=st.integers(1, 3000), every=st.none() | st.integers(1, 400))
def test_the_last_round_is_always_evaluated_and_about_ten_if_not_said(rounds: int, every: int | None) -> None:
    at = evaluation_rounds(rounds, every)
    assert at[-1] == rounds
    assert at == sorted(set(at))
    if every is None:
        assert len(at) <= 11
    else:
        assert all(t % every == 0 for t in at[:-1])


def test_figures_are_due_at_their_rounds_with_what_is_spent_by_then(tmp_path: Path) -> None:
    fixed: dict[str, Any] = {
        "privacy__sampling": {"kind": "full"},
        "evaluation__every": 4,
        "evaluation__rows": 50,
    }
    o = outlined(rounds=10, **fixed)
    parts, group = assemble(o), Alone(8)
    run = begin(parts, group, tmp_path / "r")
    try:
        evaluate = evaluation_of(parts, run, group)
        assert evaluate(3, run.state) is None
        rows = {t: evaluate(t, run.state) for t in (4, 8, 10)}
        spent = dict(zip((4, 8, 10), o.plan.epsilon_after([4, 8, 10]), strict=True))
        for t, row in rows.items():
            assert row is not None
            assert (row["round"], row["epsilon_proven"]) == (t, pytest.approx(spent[t][1]))
            assert row["push_sum_mass"] == pytest.approx(8.0)
            assert row["hold_out_rows"] == (360 if t == 10 else 50)
            assert "not_private" not in row
        run.reader.draws = 3  # spent before a stop and lost: ε is never said to be lower than it is
        late = evaluation_of(parts, run, group)(4, run.state)
        assert late is not None
        assert late["epsilon_proven"] == pytest.approx(o.plan.epsilon_after([7])[0][1])
    finally:
        run.book.close()
