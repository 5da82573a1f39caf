"""The front door of the package."""

from __future__ import annotations

QUICK = {"rounds": 40}


def test_the_front_door_is_not_shadowed_by_a_module() -> None:
    import gossamer

    assert gossamer.plan("quickstart", QUICK).plan.nodes[0].proven.epsilon <= 8.0
