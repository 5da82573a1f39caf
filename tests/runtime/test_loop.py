"""The one loop: rounds in order, a graph of its own for every exchange, and a look at the state after each."""

from __future__ import annotations

from typing import Any

from gossamer.runtime.loop import run


class Twice:
    """Two exchanges a round, written down."""

    mixes = 2
    weights, draws = "doubly", 1

    def step(self, state: list[Any], grad: Any, mix: Any, t: int) -> list[Any]:
        return [*state, (t, grad(t), mix("a"), mix("b", "c"))]


class Once(Twice):
    mixes = 1

    def step(self, state: list[Any], grad: Any, mix: Any, t: int) -> list[Any]:
        return [*state, (t, grad(t), mix("a"))]


def play(algorithm: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    seen: list[Any] = []
    end = run(
        algorithm, [], lambda t: -t, lambda graph, *tensors: (graph, tensors),
        after_round=lambda t, state: seen.append((t, len(state))), **options,
    )  # fmt: skip
    return end, seen


def test_rounds_go_from_start_to_the_end_and_are_seen_complete() -> None:
    end, seen = play(Once(), rounds=5, start=2)
    assert end == [(2, -2, (2, ("a",))), (3, -3, (3, ("a",))), (4, -4, (4, ("a",)))]
    assert seen == [(2, 1), (3, 2), (4, 3)]
    assert play(Once(), rounds=3, start=3) == ([], [])


def test_exchanges_of_a_round_have_graphs_of_their_own() -> None:
    end, _ = play(Twice(), rounds=3)
    graphs = [mixed[0] for _, _, *both in end for mixed in both]
    assert graphs == [0, 1, 2, 3, 4, 5]
    late, _ = play(Twice(), rounds=3, start=2)  # a run that goes on uses the same graphs
    assert late == end[2:]
