"""Who writes: the simple controllers do as they say."""

from __future__ import annotations

import pytest
import torch

from gossamer.methods.without_replacement.controllers import Observation, above, always, coin, pass_end


def blank(nodes: int = 3, classes: int = 4, reward: torch.Tensor | None = None) -> Observation:
    return Observation(
        torch.zeros(nodes, classes, 2), reward, torch.zeros(nodes, dtype=torch.bool), range(nodes), nodes
    )


def test_simple_controllers() -> None:
    assert bool(always(True)(blank(), 0).all())
    assert not bool(always(False)(blank(), 0).any())
    coins = torch.stack([coin(0.2, 7)(blank(50), t) for t in range(200)]).float()
    assert float(coins.mean()) == pytest.approx(0.2, abs=0.02)  # 10,000 coins: five standard errors
    assert bool((coins == coins[..., :1]).all())  # all classes of a node together
    assert torch.equal(coin(0.2, 7)(blank(), 3), coin(0.2, 7)(blank(), 3))
    assert bool(above(0.5)(blank(), 0).all())
    losses = torch.tensor([[0.4, 0.6]])
    assert above(0.5)(blank(1, 2, -losses), 1).tolist() == [[False, True]]


def test_a_pass_ends_with_a_write_of_all_classes() -> None:
    seen = blank(3, 2)._replace(closing=torch.tensor([True, False, True]))
    assert pass_end(seen, 5).tolist() == [[True, True], [False, False], [True, True]]


def test_coins_are_the_same_wherever_a_node_is_hosted() -> None:
    together = coin(0.5, 3)(blank(10, 2), 4)
    for hosted in (range(0, 3), range(3, 10)):
        here = blank(len(hosted), 2)._replace(hosted=hosted, of=10)
        assert torch.equal(coin(0.5, 3)(here, 4), together[hosted.start : hosted.stop])
