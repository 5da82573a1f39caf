"""Deep-Q learning of two actions, one learner per node and class, all of them in the same batched products."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

HIDDEN, MEMORY, BATCH, ADAM = 128, 20, 10, 0.01  # as in the paper
FIRST, LAST = 1.0, 0.1  # exploration, annealed
_BETA1, _BETA2, _TINY = 0.9, 0.999, 1e-8


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


class DeepQ:
    """Algorithm 2 of the paper: replay of the last 20 transitions, batches of 10, Adam, a target network.

    y = r + discount · max_a' Q̂(s', a'). The paper gives no discount of its own (its symbol is that of the learning
    rate) and no period of the target network. 0 is the local action, 1 the global one.
    """

    def __init__(self, *, discount: float, target_every: int, anneal: int, seed: int):
        self.discount, self.target_every, self.anneal = discount, target_every, max(1, anneal)
        self._random = torch.Generator().manual_seed(seed)
        self.network: Network | None = None
        self._taken: tuple[Tensor, Tensor] | None = None  # the last states and actions
        self._seen = self._steps = 0

    def choose(self, seen: Any, t: int) -> Tensor:
        shape = seen.state.shape[:2]
        states = seen.state.reshape(-1, 1, seen.state.shape[2]).float()
        if self.network is None:
            self._begin(*states.shape[::2])
        if self._taken is not None and seen.reward is not None:
            self._remember(*self._taken, seen.reward.reshape(-1), states[:, 0])
            self.learn()
        actions = torch.where(self._coins(len(states)) < self.exploration(t), self._guess(states), self.best(states))
        self._taken = states[:, 0], actions
        return actions.bool().reshape(shape)

    def exploration(self, t: int) -> float:
        return max(LAST, FIRST - (FIRST - LAST) * t / self.anneal)

    def best(self, states: Tensor) -> Tensor:
        assert self.network is not None
        return self.network.values(states)[:, 0].argmax(1)

    def learn(self) -> None:
        """One step of Adam on a random batch of remembered transitions."""
        assert self.network is not None
        picked = torch.randint(min(self._seen, MEMORY), (BATCH,), generator=self._random)
        before, after = self._before[:, picked], self._after[:, picked]
        targets = self._rewards[:, picked]
        if self.discount:
            targets = targets + self.discount * self.target.values(after).amax(2)
        slopes = self.network.slopes(before, self._actions[:, picked], targets)
        self._steps += 1
        first, second = 1 - _BETA1**self._steps, 1 - _BETA2**self._steps
        for weight, slope, m, v in zip(self.network, slopes, self._m, self._v, strict=True):
            m.lerp_(slope, 1 - _BETA1)
            v.mul_(_BETA2).addcmul_(slope, slope, value=1 - _BETA2)
            weight.addcdiv_(m, (v / second).sqrt_().add_(_TINY), value=-ADAM / first)
        if self._steps % self.target_every == 0:
            self.target = Network(*(weight.clone() for weight in self.network))

    def state_dict(self) -> dict[str, Tensor]:
        """The networks; what they learned from may be private, so they belong to their node."""
        nets = {"network": self.network, "target": self.target} if self.network else {}
        return {f"{name}.{key}": value for name, net in nets.items() for key, value in net._asdict().items()}

    def _begin(self, learners: int, width: int) -> None:
        def xavier(rows: int, columns: int) -> Tensor:
            uniform = torch.rand(learners, rows, columns, generator=self._random)
            return (2 * uniform - 1) * math.sqrt(6 / (rows + columns))

        weights = Network(
            xavier(width, HIDDEN), torch.zeros(learners, 1, HIDDEN),
            xavier(HIDDEN, 2), torch.zeros(learners, 1, 2),
        )  # fmt: skip
        self.network, self.target = weights, Network(*(w.clone() for w in weights))
        self._m, self._v = [[torch.zeros_like(w) for w in weights] for _ in range(2)]
        self._before = torch.zeros(learners, MEMORY, width)
        self._after = torch.zeros(learners, MEMORY, width)
        self._actions = torch.zeros(learners, MEMORY, dtype=torch.long)
        self._rewards = torch.zeros(learners, MEMORY)

    def _remember(self, states: Tensor, actions: Tensor, rewards: Tensor, after: Tensor) -> None:
        place = self._seen % MEMORY
        self._before[:, place], self._after[:, place] = states, after
        self._actions[:, place], self._rewards[:, place] = actions, rewards
        self._seen += 1

    def _coins(self, count: int) -> Tensor:
        return torch.rand(count, generator=self._random)

    def _guess(self, states: Tensor) -> Tensor:
        return torch.randint(2, (len(states),), generator=self._random)
