"""The simulator's exchange is the product with the round's matrix, and counts what messages would hold."""

from __future__ import annotations

import numpy as np
import torch

from gossamer.runtime.group import SimulatedExchange
from gossamer.topology.kinds import build


def test_an_exchange_is_the_matrix_of_its_round() -> None:
    topology = build("one-peer-exponential", nodes=8, weights="column", seed=0)
    exchange = SimulatedExchange(topology)
    x, w = torch.randn(8, 5, generator=torch.Generator().manual_seed(0)), torch.ones(8, 1)
    for t in (0, 1, 2, 3, 7):
        P = topology.weights(t)
        P = torch.from_numpy(np.asarray(P.todense() if hasattr(P, "todense") else P)).float()
        mixed, mass = exchange(t, x, w)
        torch.testing.assert_close(mixed, P @ x)
        torch.testing.assert_close(mass, P @ w)


def test_bytes_are_a_rows_over_every_link_of_the_round() -> None:
    topology = build("ring", nodes=6, weights="doubly", seed=0)
    exchange = SimulatedExchange(topology)
    exchange(0, torch.zeros(6, 5))
    assert exchange.bytes_sent == 5 * 4 * 12
    exchange(1, torch.zeros(6, 5), torch.zeros(6, 1, dtype=torch.float64))
    assert exchange.bytes_sent == 5 * 4 * 12 + (5 * 4 + 8) * 12


def test_one_tensor_comes_back_as_one_and_graphs_that_change_are_not_kept() -> None:
    topology = build("resampled", base={"kind": "digraph", "p": 0.4}, nodes=6, weights="column", seed=1)
    exchange = SimulatedExchange(topology)
    first, later = exchange(0, torch.eye(6)), exchange(5, torch.eye(6))
    assert first.shape == (6, 6)
    assert not torch.equal(first, later)
    assert torch.equal(exchange(0, torch.eye(6)), first)
    torch.testing.assert_close(first.sum(0), torch.ones(6))  # column-stochastic: mass stays
