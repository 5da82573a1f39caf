"""Deep-Q learning finds the better of two actions; its slopes are autograd's and its step is Adam's."""

from __future__ import annotations

import pytest
import torch

from gossamer.methods.without_replacement.controllers import (
    ADAM,
    BATCH,
    DeepQ,
    Learners,
    Network,
    Observation,
)


def seen(state: torch.Tensor, reward: torch.Tensor | None) -> Observation:
    nodes = len(state)
    return Observation(state, reward, torch.zeros(nodes, dtype=torch.bool), range(nodes), nodes)


@pytest.mark.parametrize("discount", [0.0, 0.5])
def test_deep_q_finds_the_better_action(discount: float) -> None:
    """Twenty learners, ten of which are rewarded for writing and ten for staying; after training all know."""
    generator = torch.Generator().manual_seed(0)
    better = torch.arange(20).reshape(4, 5) % 2
    learner = DeepQ(discount=discount, target_every=20, anneal=200, seed=1)
    reward, late = None, []
    for t in range(400):
        state = torch.randn(4, 5, 3, generator=generator)
        chosen = learner(seen(state, reward), t)
        # A tenth of a loss apart, with as much noise.
        noise = 0.1 * torch.randn(4, 5, generator=generator)
        reward = -0.3 + 0.1 * (chosen.long() == better) + noise
        if t >= 300:
            late.append((chosen.long() == better).float())
    assert float(torch.stack(late).mean()) > 0.8  # 0.95 is all that exploration of 0.1 allows, 0.5 is chance


def test_deep_q_finds_an_action_that_depends_on_the_state() -> None:
    generator = torch.Generator().manual_seed(0)
    learner = DeepQ(discount=0.0, target_every=20, anneal=300, seed=1)
    reward, late = None, []
    for t in range(800):
        state = torch.randn(3, 3, 2, generator=generator)
        best = (state[..., 0] > 0).long()
        chosen = learner(seen(state, reward), t)
        reward = -0.3 + 0.1 * (chosen.long() == best)
        if t >= 600:
            late.append((chosen.long() == best).float())
    assert float(torch.stack(late).mean()) > 0.75


@pytest.mark.slow
def test_discount_looks_ahead() -> None:
    """Action 1 costs now and pays next turn: without a discount it is the worse one, with one the better."""
    shares = {}
    for discount in (0.0, 0.9):
        learner = DeepQ(discount=discount, target_every=10, anneal=500, seed=3)
        reward, paid, late = None, torch.zeros(1, 40), []
        for t in range(1500):
            chosen = learner(seen(paid[..., None], reward), t).float()
            reward = 0.1 * paid - 0.03 * chosen
            paid = chosen
            if t >= 1200:
                late.append(chosen)
        shares[discount] = float(torch.stack(late).mean())
    assert shares[0.0] < 0.4
    assert shares[0.9] > 0.6


def test_slopes_are_those_of_autograd_and_the_step_is_adams() -> None:
    random = torch.Generator().manual_seed(2)
    learners = Learners(3, 4, discount=0.7, target_every=100, random=random, own=slice(3), of=3)
    for _ in range(30):  # more than the memory holds: the oldest are forgotten
        learners.remember(
            torch.randn(3, 4, generator=random),
            torch.randint(2, (3,), generator=random),
            torch.randn(3, generator=random),
            torch.randn(3, 4, generator=random),
        )
    weights = [w.clone().requires_grad_() for w in learners.network]
    optimiser = torch.optim.Adam(weights, lr=ADAM)
    for _ in range(3):
        state = learners._random.get_state()
        learners.learn()
        learners._random.set_state(state)
        picked = torch.randint(20, (BATCH,), generator=learners._random)
        x, a, r, x2 = (
            part[:, picked] for part in (learners._before, learners._actions, learners._rewards, learners._after)
        )
        own = Network(*weights)
        y = r + 0.7 * learners.target.values(x2).amax(2)
        loss = (own.values(x).gather(2, a[..., None])[..., 0] - y).square().mean(1).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for mine, theirs in zip(learners.network, weights, strict=True):
        torch.testing.assert_close(mine, theirs.detach(), rtol=1e-4, atol=1e-5)


def test_learners_do_not_see_each_other() -> None:
    """The same learner in a batch of one and of five, given the same transitions, ends with the same network."""
    ends = []
    for count in (1, 5):
        random = torch.Generator().manual_seed(0)
        learners = Learners(count, 2, discount=0.5, target_every=3, random=random, own=slice(count), of=count)
        for mine in (learners.network, learners.target):
            for weight in mine:
                weight[:1] = 0.1
        generator = torch.Generator().manual_seed(9)
        for _ in range(25):
            s, r, s2 = (torch.randn(1, 2, generator=generator) for _ in range(3))
            learners.remember(
                s.expand(count, -1),
                torch.ones(count, dtype=torch.long),
                r[0, :1].expand(count),
                s2.expand(count, -1),
            )
            learners._random.manual_seed(5)
            learners.learn()
        ends.append([weight[0] for weight in learners.network])
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_exploration_is_annealed_from_one_to_a_tenth() -> None:
    learner = DeepQ(discount=0.0, target_every=1, anneal=100, seed=0)
    assert [learner.exploration(t) for t in (0, 50, 100, 1000)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
