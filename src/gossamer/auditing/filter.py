"""A matched filter for observers of only some of the messages.

Every coordinate of a linear algorithm is the same small linear system over the nodes: its state, the draws of a round
and the messages are related by matrices. These are read off the algorithm's own code, by one step on unit vectors. The
noise of other nodes then has a known size and place, a Kalman filter whitens the observations, and the score is the
projection on the whitened signal: the best linear test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import block_diag
from torch import Tensor

from gossamer.accounting.observers import Observer
from gossamer.algorithms.wrappers import ExactMean
from gossamer.auditing.recovery import Attacker
from gossamer.errors import UserError
from gossamer.topology.schedule import Topology

Matrix = NDArray[np.float64]
_ROUNDING = 3e-7  # of the messages' size: float32 carries them


def visible_senders(topology: Topology, members: Sequence[int], t: int) -> list[int]:
    """The nodes whose messages of round t a coalition holds: its in-neighbours' and its own."""
    heard = {int(sender) for sender, receiver in topology.edges(t) if int(receiver) in members}
    return sorted(heard | set(members))


class LinearSystem:
    """One coordinate of an algorithm: z⁺ = A (z, g), messages = B (z, g), model = C z, all nodes stacked."""

    def __init__(self, algorithm: Any, topology: Topology, dimension: int):
        if isinstance(algorithm, ExactMean):
            raise UserError(
                "algorithm.mixes = 'exact' has several exchanges a mean, in numbers of its own, which only "
                "--observer all can read."
            )
        self._algorithm, self.topology, self._n = algorithm, topology, topology.nodes
        start = algorithm.init(torch.zeros(self._n, dimension, dtype=torch.float64))
        self._leaves = [name for name, v in start._asdict().items() if v.shape[1:] == (dimension,)]
        self._public = {name: v for name, v in start._asdict().items() if name not in self._leaves}
        self.states, self.draws = len(self._leaves) * self._n, algorithm.draws * self._n
        self._refuse_nonlinear()

    def initial(self, state: Any) -> Matrix:
        """(states, columns) from the stacked state at the start."""
        parts = [getattr(state, name).reshape(self._n, -1) for name in self._leaves]
        return torch.cat(parts).double().numpy()

    def step(self, t: int) -> tuple[Matrix, list[Matrix]]:
        """(A, [B of every tensor that is sent]); also moves the public part of the state on."""
        columns = torch.eye(self.states + self.draws, dtype=torch.float64)
        after, sent = self._apply(columns, t)
        self._public = {name: getattr(after, name) for name in self._public}
        return self._stack(after), [message.numpy() for message in sent]

    def model(self) -> Matrix:
        """C at the public state as it stands."""
        columns = torch.eye(self.states, dtype=torch.float64)
        return np.asarray(self._algorithm.model(self._state(columns)).numpy())

    def _apply(self, columns: Tensor, t: int) -> tuple[Any, list[Tensor]]:
        n = self._n
        sent: list[Tensor] = []
        mixing = torch.from_numpy(self.topology.weights(t).toarray())
        draws = iter(columns[self.states :].reshape(-1, n, columns.shape[1]))

        def mix(*tensors: Tensor) -> Any:
            sent.extend(tensor for tensor in tensors if tensor.shape[1] == columns.shape[1])
            mixed = tuple(mixing @ tensor for tensor in tensors)
            return mixed[0] if len(mixed) == 1 else mixed

        return self._algorithm.step(self._state(columns), lambda _: next(draws), mix, t), sent

    def _state(self, columns: Tensor) -> Any:
        n, kind = self._n, type(self._algorithm.init(columns.new_zeros(self._n, 2)))
        leaves = {name: columns[i * n : (i + 1) * n].clone() for i, name in enumerate(self._leaves)}
        return kind(**leaves, **self._public)

    def _stack(self, state: Any) -> Matrix:
        return np.asarray(torch.cat([getattr(state, name) for name in self._leaves]).numpy())

    def _refuse_nonlinear(self) -> None:
        """Superposition on a random vector: Adam, for one, does not have it."""
        size = self.states + self.draws
        columns = torch.eye(size, dtype=torch.float64)
        one = torch.randn(size, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        matrix, direct = self._stack(self._apply(columns, 0)[0]), self._stack(self._apply(one, 0)[0])
        if not np.allclose(matrix @ one.numpy(), direct, rtol=1e-6, atol=1e-9):
            raise UserError(
                "this algorithm's messages are not linear in its gradients, so only --observer all can read them; "
                "with DiNNO, algorithm.optimiser = 'plain' is, with dp-dkm algorithm.penalty.kind = 'none'."
            )


class Filter:
    """An observer of some of the messages, or of the final models; one score per column.

    Where nodes share noise, `correlation` is the covariance of the noise of a draw that the observer does not know, in
    units of each node's own, and `known` the noise that it knows.
    """

    def __init__(
        self,
        system: LinearSystem,
        attacker: Attacker,
        view: Observer,
        *,
        runs: int,
        correlation: Matrix | None = None,
        known: Callable[[int], Tensor] | None = None,
    ):
        self._system, self._attacker, self._view, self._runs = system, attacker, view, runs
        self._correlation, self._known = correlation, known
        self.scores: Matrix = np.zeros(0)
        self.mu_squared = 0.0  # what the scores' separation should be

    def start(self, state: Any) -> None:
        states = self._system.states
        self._estimate = self._system.initial(state)
        self._covariance: Matrix = np.zeros((states, states))
        # The canary's effect on the state, and the share of it that was seen.
        self._shift: Matrix = np.zeros(states)
        self._expected: Matrix = np.zeros(states)
        self.scores = np.zeros(self._estimate.shape[1])

    def see(self, t: int, sent: tuple[Tensor, ...], received: tuple[Tensor, ...]) -> None:
        forward, messages = self._system.step(t)
        n, columns = len(messages[0]), self._estimate.shape[1]
        per_round = self._system.draws // n
        draws = range(t * per_round, (t + 1) * per_round)

        def by_node(value: Tensor) -> Matrix:
            return np.asarray(value.double().numpy().reshape(n, -1))

        spreads = [by_node(self._attacker.linear_spread(k))[:, 0] for k in draws]
        victim = np.arange(n) == self._view.target
        signals = [np.where(victim, by_node(self._attacker.linear_signal(k))[:, 0], 0.0) for k in draws]
        noise = [np.zeros((len(draws) * n, columns))]
        if self._known is not None:
            noise = [by_node(self._known(k) / self._attacker.divisors) for k in draws]
        correlation = np.eye(n) if self._correlation is None else self._correlation
        mean = np.concatenate([self._estimate, *noise])
        spread = block_diag(self._covariance, *(correlation * np.outer(own, own) for own in spreads))
        truth = np.concatenate([self._shift, *signals])
        believed = np.concatenate([self._expected, np.zeros(len(draws) * n)])
        if not self._view.sees_models:
            rows = visible_senders(self._system.topology, self._view.members, t)
            look = np.concatenate([message[rows] for message in messages])
            seen = [by_node(value)[rows] for value in sent if value[0].numel() * self._runs == columns]
            mean, spread, believed = self._update(look, np.concatenate(seen), mean, spread, truth, believed)
        self._estimate, self._covariance = forward @ mean, forward @ spread @ forward.T
        self._shift, self._expected = forward @ truth, forward @ believed

    def end(self, state: Any) -> None:
        if self._view.sees_models:
            look = self._system.model()
            seen = look @ self._system.initial(state)  # the models, by the public part of the state
            self._update(look, seen, self._estimate, self._covariance, self._shift, self._expected)

    def _update(
        self, look: Matrix, seen: Matrix, mean: Matrix, spread: Matrix, truth: Matrix, believed: Matrix
    ) -> tuple[Matrix, Matrix, Matrix]:
        """Condition on what is seen; add the whitened signal's projection to the scores."""
        rounding = (_ROUNDING * (np.abs(seen).max(initial=0.0) + 1e-30)) ** 2
        cross = spread @ look.T
        inner = look @ cross + rounding * np.eye(len(look))
        surprise, effect = seen - look @ mean, look @ (truth - believed)
        weights = np.linalg.solve(inner, np.concatenate([cross.T, effect[:, None]], axis=1))
        gain, direction = weights[:, :-1].T, weights[:, -1]
        self.scores += direction @ surprise
        self.mu_squared += float(direction @ effect)
        spread = spread - gain @ cross.T
        return mean + gain @ surprise, (spread + spread.T) / 2, believed + gain @ effect
