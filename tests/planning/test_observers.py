"""ε by observer of a plan: priced from what the nodes will write."""

from __future__ import annotations

import pytest
from tests.support.configurations import outlined

from gossamer.planning.observers import epsilon_by_observer, planned_sharing

PAIRWISE = {
    "privacy__epsilon": 1.0, "privacy__noise__kind": "pairwise", "privacy__sampling": {"kind": "full"}, "rounds": 20,
}  # fmt: skip


def test_a_plan_with_shared_noise_has_the_whole_curve() -> None:
    plan = outlined(**PAIRWISE).plan
    found = epsilon_by_observer(plan)
    curve = {point["colluders"]: point["epsilon"] for point in found["epsilon_by_colluders"]}
    assert list(curve) == list(range(8))
    assert curve[1] == plan.worst.proven.epsilon == pytest.approx(1.0)
    assert list(curve.values()) == sorted(curve.values())
    assert curve[7] > 2 * curve[1]
    assert [line["planned"] for line in found["epsilon_by_observer"]] == [False, True, False, False]
    shared, spent = planned_sharing(plan)
    assert shared is not None
    assert (shared.nodes, shared.planned, len(spent)) == (8, 1, 8)
    assert spent[0] is spent[4] is not spent[7]  # equal nodes are priced once


def test_a_plan_with_noise_of_each_nodes_own_has_one_observer() -> None:
    plan = outlined(rounds=5, privacy__sampling={"kind": "full"}).plan
    found = epsilon_by_observer(plan)
    (line,) = found["epsilon_by_observer"]
    assert line["words"] == plan.observer.describe()
    assert line["epsilon"] == plan.worst.proven.epsilon
    assert found["epsilon_by_colluders"] == []
    assert planned_sharing(plan) == (None, [])
