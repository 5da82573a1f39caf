"""A node's clipped sum is the same to the last bit whichever nodes are computed with it, and however long their lots are."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.test_rounding import NETWORKS, records, to_norm_one
from torch import Tensor

from gossamer.kernels.clipped_sum import ClippedSum
from gossamer.kernels.memory import DEFAULT_MAX_BYTES
from gossamer.kernels.rounding import room

NODES, NUMBER = 5, 200
pytestmark = pytest.mark.filterwarnings("ignore")


class Hosted:
    """Records of a network and lots of them: the sums of nodes that are computed block by block."""

    def __init__(self, network: str, expected: int) -> None:
        self.kernel, self.point, self.x, self.y = records(network, NUMBER)
        self.kernel.module.eval()
        self.expected, self.max_bytes = expected, DEFAULT_MAX_BYTES
        draw = torch.Generator().manual_seed(expected)
        order = [torch.randperm(NUMBER, generator=draw).tolist() for _ in range(NODES)]
        self.lots = [rows[: expected + i % 3] for i, rows in enumerate(order)]

    def sums(self, *blocks: range) -> Tensor:
        return torch.cat([self.of_block(block) for block in blocks])

    def of_block(self, block: range) -> Tensor:
        kernel = ClippedSum(
            self.kernel.module, self.kernel.loss, max_bytes=self.max_bytes
        )  # as in a process of its own
        places = kernel.expect(self.expected, varies=True)
        lots = [self.lots[i] for i in block]
        longest = -(-max(map(len, lots)) // places) * places
        rows = torch.tensor([lot + [0] * (longest - len(lot)) for lot in lots])
        there = torch.arange(longest)[None] < torch.tensor([len(lot) for lot in lots])[:, None]
        points = self.point * torch.linspace(0.5, 1.5, NODES)[list(block)][:, None]
        return kernel(points, self.x[rows], self.y[rows], there, to_norm_one)[0]


def check(network: str, expected: int) -> None:
    hosted = Hosted(network, expected)
    together = hosted.sums(range(NODES))
    apart = hosted.sums(range(1), range(1, NODES))
    assert torch.equal(apart, together), f"{int((apart != together).sum())} numbers differ between blocks"
    hosted.lots[3] = list(range(150))  # more than in a billion draws
    longer, others = hosted.sums(range(NODES)), torch.arange(NODES) != 3
    assert torch.equal(longer[others], together[others])
    assert not torch.equal(longer[3], together[3])


@pytest.mark.parametrize("network", ["relu", "tanh", "channels"])
def test_blocks_of_nodes_and_other_nodes_lots_do_not_show(network: str) -> None:
    check(network, 9)


@pytest.mark.parametrize("network", ["tanh", "attention"])
def test_nor_do_nodes_that_are_left_over(network: str) -> None:
    """Two nodes share a call, the fifth is alone; the lots of two are longer than expected, one of them in a pair."""
    hosted = Hosted(network, 1)
    hosted.kernel.expect(1, varies=True)
    hosted.kernel.try_on(hosted.x[None], hosted.y[None])
    hosted.max_bytes = 5 * room(1, varies=True) * hosted.kernel.method.bytes_per_record // 2
    hosted.lots[1], hosted.lots[4] = list(range(150)), list(range(60))
    assert torch.equal(hosted.sums(range(NODES)), hosted.sums(*(range(i, i + 1) for i in range(NODES))))


@pytest.mark.slow
@pytest.mark.parametrize("expected", [1, 40])
@pytest.mark.parametrize("network", NETWORKS)
def test_nor_do_they_for_any_network(network: str, expected: int) -> None:
    check(network, expected)
