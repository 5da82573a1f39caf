"""Blocks in threads give what all nodes give, and a failure of one ends them all."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from gossamer.runtime.group import SimulatedExchange
from gossamer.testing.quadratics import in_blocks
from gossamer.topology.kinds import build

GRAPH = build("ring", nodes=5, weights="doubly", seed=0)
BLOCKS = [range(2), range(2, 5)]


def test_blocks_mix_as_all_nodes_do() -> None:
    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))

    def twice(nodes: range, mix: Any) -> torch.Tensor:
        own = rows[nodes.start : nodes.stop]
        once, _ = mix(0, own, 2 * own)
        mixed: torch.Tensor = mix(1, once)
        return mixed

    together = SimulatedExchange(GRAPH)
    assert torch.equal(torch.cat(in_blocks(twice, GRAPH, BLOCKS)), together(1, together(0, rows)))


def test_the_failure_is_raised_and_not_that_others_waited() -> None:
    def fails(nodes: range, mix: Any) -> torch.Tensor:
        if nodes.start == 0:
            raise KeyError("first block")
        mixed: torch.Tensor = mix(0, torch.zeros(len(nodes), 1))
        return mixed

    with pytest.raises(KeyError, match="first block"):
        in_blocks(fails, GRAPH, BLOCKS, patience=3600)  # no block waits for one that is gone


def test_a_block_that_mixes_less_often_ends_all() -> None:
    def uneven(nodes: range, mix: Any) -> torch.Tensor:
        for t in range(1 if nodes.start == 0 else 2):
            mix(t, torch.zeros(len(nodes), 1))
        return torch.zeros(len(nodes), 1)

    with pytest.raises(threading.BrokenBarrierError):
        in_blocks(uneven, GRAPH, BLOCKS, patience=0.2)
