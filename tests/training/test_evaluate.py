"""When a run is evaluated, and what has been spent by then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics
from tests.support.configurations import outlined

import gossamer
from gossamer.runtime.group import Alone
from gossamer.training.assemble import assemble
from gossamer.training.evaluate import Evaluation, evaluation_rounds, scored_nodes
from gossamer.training.run import Run


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
    run = Run.begin(parts, tmp_path / "r", group)
    try:
        evaluate = Evaluation(run, group)
        assert evaluate.rounds == [4, 8, 10]
        rows = {t: evaluate(t, run.state) for t in evaluate.rounds}
        spent = dict(zip((4, 8, 10), o.privacy.epsilon_after([4, 8, 10]), strict=True))
        for t, row in rows.items():
            assert (row["round"], row["epsilon_proven"]) == (t, pytest.approx(spent[t][1]))
            assert row["push_sum_mass"] == pytest.approx(8.0)
            assert row["hold_out_rows"] == (360 if t == 10 else 50)
            assert "not_private" not in row
        run.reader.draws = 3  # spent before a stop and lost: ε is never said to be lower than it is
        late = Evaluation(run, group)(4, run.state)
        assert late["epsilon_proven"] == pytest.approx(o.privacy.epsilon_after([7])[0][1])
    finally:
        run.book.close()


SMALL = {"n": 200, "features": 3, "test": 100}
TASKS: list[Any] = [
    (
        {"data": {"kind": "synthetic-counts", **SMALL}, "loss": {"kind": "poisson"}},
        ["poisson-deviance", "mae"],
    ),
    pytest.param(
        {"data": {"kind": "synthetic-regression", **SMALL}, "loss": {"kind": "quantile", "tau": 0.9}},
        ["pinball-loss", "rmse"],
        marks=pytest.mark.slow,
    ),
    ({"data": {"kind": "synthetic-labels", **SMALL}}, ["auc", "f1", "accuracy"]),
]


@pytest.mark.parametrize(("changes", "measures"), TASKS, ids=["counts", "quantile", "labels"])
def test_tasks_and_measures_through_the_door(changes: dict[str, Any], measures: list[str], tmp_path: Path) -> None:
    """Every figure of the average model is scikit-learn's of what its predictions say."""
    few = {"nodes": 2, "rounds": 2, "topology.kind": "complete", "privacy.sampling": {"kind": "full"}}
    outcome = gossamer.run("quickstart", {**few, **changes, "evaluation.measures": measures}, out=tmp_path / "run")
    data = outlined(nodes=2, topology__kind="complete", **changes).config.data.load(seed=0)
    x, y, found = data.x_test, data.y_test, outcome.result
    said = outcome.predict(x)
    by_hand = {
        "poisson_deviance": lambda: metrics.mean_poisson_deviance(y, said),
        "mae": lambda: metrics.mean_absolute_error(y, said),
        "pinball_loss": lambda: metrics.mean_pinball_loss(y, said, alpha=0.9),
        "rmse": lambda: metrics.root_mean_squared_error(y, said),
        "auc": lambda: metrics.roc_auc_score(y, outcome.predict_proba(x)),
        "f1": lambda: metrics.f1_score(y, said, average="macro"),
        "accuracy": lambda: metrics.accuracy_score(y, said),
    }
    keys = [name.replace("-", "_") for name in measures]
    assert found["metric"] == keys[0]
    for key in keys:
        assert found[f"{key}_average_model"] == pytest.approx(by_hand[key](), rel=1e-5), key
        assert len(found[f"{key}_by_node"]) == 2
    assert found["epsilon_proven"] is not None
    assert gossamer.load(tmp_path / "run").predict(x).tolist() == said.tolist()


def test_of_many_nodes_a_sample_is_judged_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    o = outlined(rounds=2, privacy__sampling={"kind": "full"}, evaluation__nodes=3)
    sample = scored_nodes(o.config)
    assert sample is not None
    assert len(set(sample)) == 3
    assert sample == scored_nodes(o.config)  # by the seed alone
    assert scored_nodes(outlined(rounds=2, evaluation__nodes=8).config) is None
    assert scored_nodes(outlined(rounds=2).config) is None
    chosen = {tuple(scored_nodes(outlined(rounds=2, evaluation__nodes=3, seed=s).config) or ()) for s in range(9)}
    assert len(chosen) > 3
    parts, group = assemble(o), Alone(8)
    run = Run.begin(parts, tmp_path / "r", group)
    try:
        state = run.state._replace(x=torch.randn_like(run.state.x)) if hasattr(run.state, "_replace") else run.state
        row = Evaluation(run, group)(2, state)
        monkeypatch.setattr("gossamer.training.evaluate.scored_nodes", lambda config: None)
        whole = Evaluation(run, group)(2, state)
        assert row is not None
        assert whole is not None
        assert row["scored_nodes"] == sample
        assert row["accuracy_by_node"] == [whole["accuracy_by_node"][i] for i in sample]
        assert row["accuracy_min"] == min(row["accuracy_by_node"])
        assert row["consensus_distance"] == whole["consensus_distance"]  # of all nodes
        assert "scored_nodes" not in whole
    finally:
        run.book.close()
