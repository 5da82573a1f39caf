"""Who writes: the simple controllers do as they say."""

from __future__ import annotations

import pytest
import torch

from gossamer.methods.without_replacement.controllers import Always, Coin, Threshold
from gossamer.methods.without_replacement.local_models import Seen


def blank(nodes: int = 3, classes: int = 4, reward: torch.Tensor | None = None) -> Seen:
    return Seen(torch.zeros(nodes, classes, 2), reward, torch.zeros(nodes, dtype=torch.bool))


def test_simple_controllers() -> None:
    assert bool(Always(True).choose(blank(), 0).all())
    assert not bool(Always(False).choose(blank(), 0).any())
    coins = torch.stack([Coin(0.2, 7).choose(blank(50), t) for t in range(200)]).float()
    assert float(coins.mean()) == pytest.approx(0.2, abs=0.02)  # 10,000 coins: five standard errors
    assert bool((coins == coins[..., :1]).all())  # all classes of a node together
    assert torch.equal(Coin(0.2, 7).choose(blank(), 3), Coin(0.2, 7).choose(blank(), 3))
    assert bool(Threshold(0.5).choose(blank(), 0).all())
    losses = torch.tensor([[0.4, 0.6]])
    assert Threshold(0.5).choose(blank(1, 2, -losses), 1).tolist() == [[False, True]]
