"""Controllers: who decides, each turn, whether a node writes the shared model.

The simple ones follow a rule; deep-Q learns, one learner per node and class, all of them in the same batched products.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

HIDDEN, MEMORY, BATCH, ADAM = 128, 20, 10, 0.01  # as in the paper
FIRST, LAST = 1.0, 0.1  # exploration, annealed
# A step of Adam moves a value of these networks by about a tenth, and the mean losses after the two actions differ by
# hundredths and less: in units of 1/200 the difference outweighs a step. Chosen on held-out training images.
REWARD = 200.0
_BETA1, _BETA2, _TINY = 0.9, 0.999, 1e-8


class Observation(NamedTuple):
    """The facts that a controller may look at, for every hosted node and class."""

    state: Tensor  # (m, C, k)
    reward: Tensor | None  # (m, C) of the last choice; None before the first
    closing: Tensor  # (m,) the turn ends a pass of the node's records
    hosted: range  # which of all nodes these m are
    of: int  # nodes in all: draws are made for all of them, and are the same wherever a node is hosted


# (observed, turn) → (m, C) bool: True writes the shared model
Controller = Callable[[Observation, int], Tensor]


def always(write: bool) -> Controller:
    """Fully collaborative (`write`), or every node for itself."""
    return lambda observed, t: torch.full(observed.state.shape[:2], write)


def pass_end(observed: Observation, t: int) -> Tensor:
    """Write once a pass, at its last turn: by Lemma 4 with the noise of one step for all lots of the pass."""
    return observed.closing[:, None].expand(observed.state.shape[:2])


def coin(probability: float, seed: int) -> Controller:
    """Write with a fixed probability, all classes of a node together: a public coin, so the choice reveals nothing."""

    def choose(observed: Observation, t: int) -> Tensor:
        heads = np.random.default_rng([seed, 0xC014, t]).random(observed.of) < probability
        own = torch.from_numpy(heads[observed.hosted.start : observed.hosted.stop])
        return own[:, None].expand(observed.state.shape[:2])

    return choose


def above(threshold: float) -> Controller:
    """Write where the last loss observed (minus the reward) is above a threshold; the first turn writes."""

    def choose(observed: Observation, t: int) -> Tensor:
        if observed.reward is None:
            return torch.ones(observed.state.shape[:2], dtype=torch.bool)
        return -observed.reward > threshold

    return choose


class Network(NamedTuple):
    """N networks with linear activations, k → 128 → 2."""

    w1: Tensor  # (N, k, 128)
    b1: Tensor  # (N, 1, 128)
    w2: Tensor  # (N, 128, 2)
    b2: Tensor  # (N, 1, 2)

    def hidden(self, states: Tensor) -> Tensor:
        return torch.baddbmm(self.b1, states, self.w1)

    def values(self, states: Tensor) -> Tensor:
        """(N, B, k) → Q of both actions, (N, B, 2)."""
        return torch.baddbmm(self.b2, self.hidden(states), self.w2)

    def slopes(self, states: Tensor, actions: Tensor, targets: Tensor) -> Network:
        """∇ of the mean of (Q(s, a) − y)² over the batch; two linear layers, so by hand."""
        hidden = self.hidden(states)
        values = torch.baddbmm(self.b2, hidden, self.w2)
        error = (values.gather(2, actions[..., None]) - targets[..., None]) * (2 / targets.shape[1])
        out = torch.zeros_like(values).scatter_(2, actions[..., None], error)
        back = out @ self.w2.mT
        return Network(states.mT @ back, back.sum(1, keepdim=True), hidden.mT @ out, out.sum(1, keepdim=True))

    def copy(self) -> Network:
        return Network(*(weight.clone() for weight in self))


class Learners:
    """N learners: their networks, target networks, Adam moments and the last 20 transitions of each."""

    def __init__(
        self,
        count: int,
        width: int,
        *,
        discount: float,
        target_every: int,
        random: torch.Generator,
        own: slice,
        of: int,
    ):
        """`own`: which of `of` learners, hosted here or elsewhere, these are."""

        def xavier(rows: int, columns: int) -> Tensor:
            uniform = torch.rand(of, rows, columns, generator=random)[own]
            return (2 * uniform - 1) * math.sqrt(6 / (rows + columns))

        self.network = Network(
            xavier(width, HIDDEN), torch.zeros(count, 1, HIDDEN), xavier(HIDDEN, 2), torch.zeros(count, 1, 2)
        )
        self.target = self.network.copy()
        self._discount, self._target_every, self._random = discount, target_every, random
        self._first = [torch.zeros_like(weight) for weight in self.network]
        self._second = [torch.zeros_like(weight) for weight in self.network]
        self._before = torch.zeros(count, MEMORY, width)
        self._after = torch.zeros(count, MEMORY, width)
        self._actions = torch.zeros(count, MEMORY, dtype=torch.long)
        self._rewards = torch.zeros(count, MEMORY)
        self.seen = self.steps = 0

    def best(self, states: Tensor) -> Tensor:
        """(N, k) → the action with the larger value."""
        return self.network.values(states[:, None])[:, 0].argmax(1)

    def remember(self, states: Tensor, actions: Tensor, rewards: Tensor, after: Tensor) -> None:
        place = self.seen % MEMORY
        self._before[:, place], self._after[:, place] = states, after
        self._actions[:, place], self._rewards[:, place] = actions, rewards
        self.seen += 1

    def learn(self) -> None:
        """One step of Adam on a random batch of remembered transitions."""
        picked = torch.randint(min(self.seen, MEMORY), (BATCH,), generator=self._random)
        targets = self._rewards[:, picked]
        if self._discount:
            targets = targets + self._discount * self.target.values(self._after[:, picked]).amax(2)
        slopes = self.network.slopes(self._before[:, picked], self._actions[:, picked], targets)
        self.steps += 1
        first, second = 1 - _BETA1**self.steps, 1 - _BETA2**self.steps
        for weight, slope, m, v in zip(self.network, slopes, self._first, self._second, strict=True):
            m.lerp_(slope, 1 - _BETA1)
            v.mul_(_BETA2).addcmul_(slope, slope, value=1 - _BETA2)
            weight.addcdiv_(m, (v / second).sqrt_().add_(_TINY), value=-ADAM / first)
        if self.steps % self._target_every == 0:
            self.target = self.network.copy()


class DeepQ:
    """Algorithm 2 of the paper: y = r + discount · max_a' Q̂(s', a'), replay, a target network, annealed exploration.

    The paper gives no discount of its own (its symbol is that of the learning rate) and no period of the target
    network. Action 0 stays local, 1 writes.
    """

    def __init__(self, discount: float, target_every: int, *, anneal: int, seed: int):
        self._settings: dict[str, Any] = {"discount": discount, "target_every": target_every}
        self._anneal = max(1, anneal)
        self._random = torch.Generator().manual_seed(seed)
        self.learners: Learners | None = None
        self._taken: tuple[Tensor, Tensor] | None = None  # the last states and actions

    def __call__(self, observed: Observation, t: int) -> Tensor:
        nodes, classes, width = observed.state.shape
        states = observed.state.reshape(-1, width).float()
        hosted, of = observed.hosted, observed.of * classes
        own = slice(hosted.start * classes, hosted.stop * classes)
        if self.learners is None:
            self.learners = Learners(len(states), width, **self._settings, random=self._random, own=own, of=of)
        if self._taken is not None and observed.reward is not None:
            self.learners.remember(*self._taken, REWARD * observed.reward.reshape(-1), states)
            self.learners.learn()
        explore = torch.rand(of, generator=self._random)[own] < self.exploration(t)
        guess = torch.randint(2, (of,), generator=self._random)[own]
        actions = torch.where(explore, guess, self.learners.best(states))
        self._taken = states, actions
        return actions.bool().reshape(nodes, classes)

    def exploration(self, t: int) -> float:
        return max(LAST, FIRST - (FIRST - LAST) * t / self._anneal)
