from __future__ import annotations

import torch

from gossamer.consortium.group import PLANNED, OneSite
from gossamer.runtime.group import Group
from gossamer.training.several import nodes_here


def test_a_site_states_its_own_node_and_nobody_else_s() -> None:
    site: Group = OneSite("mercy", 2, 4)
    assert site.join([7], per_node=True) == [None, None, 7, None]
    assert site.join([7]) == [7]
    assert nodes_here(site) == [2]
    assert [site.whose(node) for node in range(4)] == [PLANNED, PLANNED, "mercy", PLANNED]
    assert site.spread  # so that ledgers are forced to disk
    assert torch.equal(site.mean(torch.ones(1, 3)), torch.ones(3))
