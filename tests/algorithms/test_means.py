"""Means in whole numbers: equal on all nodes to the last bit, as fine as promised, and whatever cancels cancels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gossamer.algorithms.means import FINER, WITHOUT_NOISE, FilterMean, WindowMean, grid_of
from gossamer.runtime.group import SimulatedExchange
from gossamer.topology.exact import Relabelled, filter_of, window_topology
from gossamer.topology.kinds import build


def network(nodes: int) -> tuple[Any, Callable[..., Any]]:
    topology = window_topology(build("one-peer-exponential", nodes=nodes, weights="doubly", seed=1), 1)
    exchange, numbers = SimulatedExchange(topology), iter(range(10**6))
    assert isinstance(topology.rounds, Relabelled)
    return topology.rounds.windows, lambda *rows: exchange(next(numbers), *rows)


def rows(nodes: int, width: int = 1001, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(nodes, width, generator=torch.Generator().manual_seed(nodes))


@pytest.mark.parametrize("nodes", [2, 3, 8, 20, 33])
@pytest.mark.parametrize("deviation", [1e-7, 1.0, 3e4])
def test_all_nodes_hold_the_mean_to_the_last_bit(nodes: int, deviation: float) -> None:
    windows, mix = network(nodes)
    values = rows(nodes, scale=deviation)
    mean = WindowMean(windows, grid_of(deviation, nodes))(values, mix)
    assert mean.dtype == values.dtype
    assert all(torch.equal(row, mean[0]) for row in mean)
    exact = values.double().mean(0)
    # The mean's own noise is deviation / √n, or as little as deviation / n where noises cancel: below 1e-6 of either.
    rounding = torch.finfo(torch.float32).eps * exact.abs()
    assert ((mean[0].double() - exact).abs() <= 1e-6 * deviation / nodes + rounding).all()


def test_what_cancels_may_be_of_any_size() -> None:
    """Masks ten million times larger than the noise, and values beyond what the sum of all could hold."""
    windows, mix = network(8)
    values, masks = rows(8).double(), 1e7 * rows(8, 1001).double().round()
    masks[-1] = -masks[:-1].sum(0)
    mean = WindowMean(windows, grid_of(1.0, 8))
    torch.testing.assert_close(mean(values + masks, mix)[0], mean(values, mix)[0], rtol=0, atol=1e-7)
    huge = torch.tensor([[2.0**61], [2.0**61], [2.0**61], [2.0**61], [2.0**61], [-3 * 2.0**60], [-(2.0**62)], [7.0]])
    before = huge.double()
    summed = WindowMean(windows, 1.0)(before, mix)
    assert torch.equal(before, huge.double())  # what it is given stays as it was
    assert torch.equal(summed, torch.full((8, 1), (huge.double().sum()) / 8, dtype=torch.float64))


def test_what_is_no_number_or_too_large_is_the_same_for_all() -> None:
    windows, mix = network(4)
    values = torch.tensor([[math.nan], [math.inf], [-math.inf], [1.0]])
    mean = WindowMean(windows, 2.0**-20)(values, mix)
    assert torch.equal(mean, torch.full((4, 1), 0.25))


def test_the_grid_is_a_power_of_two_below_the_noise() -> None:
    for deviation, nodes in ((1e-9, 2), (0.37, 20), (1.0, 1024), (1e6, 3)):
        grid = grid_of(deviation, nodes)
        assert math.log2(grid) == int(math.log2(grid))
        assert deviation / math.sqrt(nodes) * 2.0 ** -(FINER + 2) <= grid <= deviation / math.sqrt(nodes) * 2.0**-FINER
    assert grid_of(0.0, 5) == WITHOUT_NOISE


def test_first_messages_are_the_values() -> None:
    windows, mix = network(8)
    values, sent = rows(8), []
    WindowMean(windows, 2.0**-30)(values, lambda row: sent.append(row) or mix(row))
    torch.testing.assert_close(WindowMean(windows, 2.0**-30).read(sent[0]).float(), values, rtol=0, atol=1e-8)
    assert all(message.dtype == torch.int64 for message in sent)


@pytest.mark.parametrize(("kind", "nodes"), [("ring", 20), ("complete", 5), ("star", 7), ("grid", 12)])
def test_a_filter_works_in_double_precision(kind: str, nodes: int) -> None:
    topology = build(kind, nodes=nodes, weights="doubly", seed=0)
    exchange, values = SimulatedExchange(topology), rows(nodes)
    mean = FilterMean(filter_of(topology))
    found = mean(values, lambda part: exchange(0, part))
    torch.testing.assert_close(found.double(), values.double().mean(0).expand(nodes, -1), rtol=1e-6, atol=1e-12)
    assert exchange.bytes_sent == mean.exchanges * 8 * 1001 * int(topology.out_degree(0).sum())
    assert mean.read(values) is values
