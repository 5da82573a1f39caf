"""The exchange of ranks gives the simulator's numbers, whatever the algorithm, the graph and the blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.support.pool import Pool, uneven
from tests.support.quadratics import CASES
from tests.support.registries import rules

from gossamer.runtime.exchange import first_not_finite
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run
from gossamer.testing.quadratics import Quadratic, problem
from gossamer.topology.kinds import build as build_topology


@pytest.fixture(scope="module")
def four_ranks() -> Iterator[Any]:
    pool = Pool(4)
    yield pool
    pool.close()


def stacked(parts: list[Any]) -> dict[str, torch.Tensor]:
    for part in parts:
        if isinstance(part, Exception):
            raise part
    return {key: torch.cat([part[0][key] for part in parts]) for key in parts[0][0]}


def agree_on_a_case(pool: Any, case: str, topology: dict[str, Any]) -> None:
    sizes = uneven(pool.ranks)
    algorithm = CASES[case].make(0.1)
    a, b, x0 = problem(sum(sizes), seed=5)
    topo = build_topology(weights=algorithm.weights, nodes=sum(sizes), **topology)
    exchange = SimulatedExchange(topo)
    start = algorithm.init(torch.from_numpy(x0).float())
    state = run(algorithm, start, Quadratic(a, b), exchange, rounds=25)
    parts = pool.call("train", case=case, sizes=sizes, topology=topology, lr=0.1, rounds=25)
    together = stacked(parts)
    for key, value in state._asdict().items():
        torch.testing.assert_close(together[key], value, rtol=1e-5, atol=1e-6)
    assert sum(sent for _, sent, _ in parts) == exchange.bytes_sent


def topologies(case: str) -> list[dict[str, Any]]:
    if CASES[case].make(0.1).weights == "column":
        return [
            {"kind": "one-peer-exponential", "seed": 0},
            {"kind": "resampled", "base": {"kind": "digraph", "p": 0.3}, "seed": 1, "dropout": 0.2},
            {"kind": "complete", "seed": 0},
        ]
    return [{"kind": "ring", "seed": 0}, {"kind": "erdos-renyi", "p": 0.4, "seed": 2, "dropout": 0.3}]


@pytest.mark.parametrize("case", sorted(set(rules()) - {"without-replacement"}))
def test_two_ranks_do_what_the_simulator_does(two_ranks: Any, case: str) -> None:
    for topology in topologies(case):
        agree_on_a_case(two_ranks, case, topology)


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(set(rules()) - {"without-replacement"}))
def test_four_ranks_do_what_the_simulator_does(four_ranks: Any, case: str) -> None:
    for topology in topologies(case):
        agree_on_a_case(four_ranks, case, topology)


@pytest.mark.parametrize("topology", ["ring", "directed-ring", "complete"])
def test_long_and_short_rows_travel_together_and_each_once(two_ranks: Any, topology: str) -> None:
    """Rows of 80 kB leave from where they are, a message for each run of them; short ones are packed."""
    values = [torch.randn(7, 20_000), torch.ones(7, 1, dtype=torch.float64)]
    topo = build_topology(topology, nodes=7, weights="column", seed=0)
    simulated, expected = SimulatedExchange(topo), values
    for t in range(2):
        expected = list(simulated(t, *expected))
    parts = two_ranks.call("mixed_rows", sizes=[3, 4], topology=topology, values=values)
    for k, rows in enumerate(expected):
        assert torch.equal(torch.cat([own[k] for own, _ in parts]), rows)
    crossing = {"ring": 4, "directed-ring": 2, "complete": 7}[topology]
    assert sum(sent for _, sent in parts) == 2 * crossing * (80_000 + 8)


@pytest.mark.parametrize("spoil", ["nan", "inf"])
def test_a_message_that_is_not_finite_is_refused_and_its_node_named(two_ranks: Any, spoil: str) -> None:
    answers = two_ranks.call("one_exchange", sizes=[3, 2], spoil=spoil)
    assert "node 2 (rank 0) sent NaN or infinite values in round 7: refused" in str(answers[1])
    right = two_ranks.call("one_exchange", sizes=[3, 2])  # and the ranks are as good as before
    assert all(torch.allclose(answer, torch.ones(1)) for answer in right)


def test_the_first_row_that_is_not_finite_is_found_and_an_overflow_is_none() -> None:
    rows = torch.zeros(4, 3)
    assert first_not_finite(rows) is None
    assert first_not_finite(torch.full((4, 3), 3e38)) is None  # the sum overflows, no value does
    for bad in (float("nan"), float("inf"), -float("inf")):
        spoiled = rows.clone()
        spoiled[2, 1] = spoiled[3, 0] = bad
        assert first_not_finite(spoiled) == 2


def test_digraphs_of_every_round_cannot_deadlock_two_ranks(two_ranks: Any) -> None:
    mass_is_kept(two_ranks, [3, 4], rounds=60)


@pytest.mark.slow
def test_three_hundred_digraphs_cannot_deadlock_eight_ranks() -> None:
    pool = Pool(8)
    try:
        mass_is_kept(pool, [2, 1, 1, 2, 1, 1, 1, 1], rounds=300)
    finally:
        pool.close()


def mass_is_kept(pool: Any, sizes: list[int], rounds: int) -> None:
    parts = pool.call("digraphs", sizes=sizes, rounds=rounds, seed=3)
    x, w = (torch.cat([part[i] for part in parts]) for i in (0, 1))
    n = sum(sizes)
    assert float(w.sum()) == pytest.approx(n, rel=1e-12)
    assert float(w.std()) > 0.05  # the graphs are irregular: the weights do work
    torch.testing.assert_close(x / w, torch.full_like(x, (n - 1) / 2), rtol=1e-3, atol=1e-3)
