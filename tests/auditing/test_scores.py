"""Scores of those who see messages."""

from __future__ import annotations

import pytest
from tests.support.observed import N

from gossamer.auditing.scores import observer_of
from gossamer.errors import UserError
from gossamer.topology.exact import window_topology
from gossamer.topology.kinds import build as build_topology


@pytest.mark.parametrize(
    "text", ["everyone", "coalition", "coalition:", "coalition:9", "coalition:a", "coalition:0,1,2,3,4", ""]
)
def test_unknown_observers_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--observer"):
        observer_of(text, build_topology("ring", nodes=N, weights="doubly", seed=0))


def test_a_nodes_own_view_is_for_exact_means() -> None:
    ring = build_topology("ring", nodes=N, weights="doubly", seed=0)
    for text in ("node:1", "outsider"):
        with pytest.raises(UserError, match=r"algorithm\.mixes = 'exact'"):
            observer_of(text, ring)
        windows = window_topology(
            build_topology("one-peer-exponential", nodes=N, weights="doubly", seed=0), 0
        )
        assert observer_of(text, windows).name == text
