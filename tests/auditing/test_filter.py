"""The filter of those who see some messages is the best linear test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.support.observed import CASES, KM_CASES, ROUNDS, D, N, topology_for, train
from tests.support.refusals import expect_refusal

from gossamer.auditing.attacks import observer_of
from gossamer.auditing.recovery import Filter, LinearSystem, visible_senders
from gossamer.auditing.trainings import StackedExchange
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run


class KnownMechanism:
    """Stands in for an attacker's knowledge: a signal and a spread that change from draw to draw."""

    def __init__(self, runs: int):
        self._runs = runs

    def linear_signal(self, k: int) -> torch.Tensor:
        return torch.full((N * self._runs, 1), 0.5 + 0.1 * k)

    def linear_spread(self, k: int) -> torch.Tensor:
        return (1 + 0.2 * torch.arange(N).repeat_interleave(self._runs)[:, None].float()) * (1 + 0.05 * k)


def brute_force_mu(algorithm: Any, topology: Any, victim: int, members: list[int], final: bool) -> float:
    """μ² = sᵀAᵀ (A Σ Aᵀ)⁺ A s, the whole history at once: A from one training per unit draw."""
    draws = ROUNDS * algorithm.draws
    size = draws * N

    class Note:
        def __init__(self) -> None:
            self.rows: list[torch.Tensor] = []

        def start(self, state: Any) -> None: ...

        def see(self, t: int, sent: Any, received: Any) -> None:
            if not final:
                heard = visible_senders(topology, members, t)
                self.rows += [tensor[heard] for tensor in sent if tensor.shape[1] == size]

        def end(self, state: Any) -> None:
            if final:
                self.rows.append(algorithm.model(state))

    note, k = Note(), 0
    units = torch.eye(size, dtype=torch.float64).reshape(draws, N, size)

    def grad(points: torch.Tensor) -> torch.Tensor:
        nonlocal k
        k += 1
        return units[k - 1]

    exchange = StackedExchange(SimulatedExchange(topology), N, [note])
    state = run(algorithm, algorithm.init(torch.zeros(N, size, dtype=torch.float64)), grad, exchange, rounds=ROUNDS)
    note.end(state)
    A = torch.cat(note.rows).numpy()
    known = KnownMechanism(1)
    spread = np.concatenate([known.linear_spread(j).numpy()[:, 0] for j in range(draws)]).astype(float)
    signal = np.zeros((draws, N))
    signal[:, victim] = [float(known.linear_signal(j)[victim]) for j in range(draws)]
    seen = A @ signal.ravel()
    return float(seen @ np.linalg.pinv(A @ np.diag(spread**2) @ A.T, rcond=1e-11) @ seen)


@pytest.mark.parametrize("name", ["km", *(name for name in CASES if name != "dinno")])
@pytest.mark.parametrize("view", ["neighbour", "coalition:1,3", "final"])
def test_the_filter_is_the_best_linear_test(name: str, view: str) -> None:
    algorithm, kind = {**CASES, "km": (KM_CASES["forward"], "ring")}[name]
    topology = topology_for(algorithm, kind)
    seen = observer_of(view, topology)
    victim, final = seen.target, seen.sees_models
    assert victim is not None
    observer = Filter(LinearSystem(algorithm, topology, D), KnownMechanism(1), seen, runs=1)  # type: ignore[arg-type]
    train(algorithm, topology, [observer])
    expected = brute_force_mu(algorithm, topology, victim, list(seen.members), final)
    assert observer.mu_squared == pytest.approx(expected, rel=1e-3)
    assert np.isfinite(observer.scores).all()


def test_the_filter_refuses_what_is_not_linear() -> None:
    for algorithm in (CASES["dinno"][0], KM_CASES["l1"]):
        with expect_refusal(key="algorithm", names="linear"):
            LinearSystem(algorithm, topology_for(algorithm, "ring"), D)
