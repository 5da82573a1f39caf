"""What an observer reads off the messages is what was drawn; what it cannot read it filters as well as can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gossamer.algorithms import registry
from gossamer.algorithms.base import Exponential
from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.push_sum import PushSum
from gossamer.audit.filter import Filter, LinearSystem
from gossamer.audit.observers import Everyone, parse_view, visible_senders
from gossamer.audit.recovery import RECOVERIES, Draw, Sign, Step
from gossamer.audit.stacked import StackedExchange
from gossamer.errors import UserError
from gossamer.runtime.loop import run
from gossamer.runtime.simulator import SimulatedExchange
from gossamer.topology.build import build as build_topology

N, D, ROUNDS = 5, 3, 9
LR = Exponential(0.3, 0.5, ROUNDS)
CASES: dict[str, tuple[Any, str]] = {
    "push-sum": (PushSum(lr=LR), "digraph"),
    "dsgd": (DSGD(lr=LR), "ring"),
    "dsgt": (DSGT(lr=LR), "ring"),
    "dinno plain": (DiNNO(lr=LR, rho=0.2, optimiser="plain"), "ring"),
    "dinno plain, itself a neighbour": (DiNNO(lr=LR, rho=0.2, optimiser="plain", include_self=True), "star"),
    "dinno plain, 3 steps": (DiNNO(lr=LR, rho=0.2, optimiser="plain", steps=3), "star"),
    "dinno": (DiNNO(lr=LR, rho=0.2), "ring"),
}


def train(
    algorithm: Any, topology: Any, observers: list[Any], *, runs: int = 1, scale: float = 1.0
) -> list[torch.Tensor]:
    """Run the algorithm on made-up gradients of every row; they are returned."""
    generator, drawn = torch.Generator().manual_seed(0), []

    def grad(points: torch.Tensor) -> torch.Tensor:
        g = scale * torch.randn(points.shape, generator=generator, dtype=torch.float64)
        drawn.append(g)
        return g

    x0 = torch.randn(N, D, dtype=torch.float64, generator=generator).repeat_interleave(runs, 0)
    state = algorithm.init(x0)
    for observer in observers:
        observer.start(state)
    exchange = StackedExchange(SimulatedExchange(topology), N, observers)
    state = run(algorithm, state, grad, exchange, rounds=ROUNDS)
    for observer in observers:
        observer.end(state)
    return drawn


def topology_for(algorithm: Any, kind: str) -> Any:
    return build_topology(kind, nodes=N, weights=algorithm.weights, seed=1)


@pytest.mark.parametrize("name", CASES)
def test_everyone_recovers_the_noised_gradients(name: str) -> None:
    algorithm, kind = CASES[name]
    found: list[Draw | Sign | Step] = []
    drawn = train(algorithm, topology_for(algorithm, kind), [Everyone(algorithm, found.append)])
    # DSGT's last gradient enters a tracker that is never sent.
    assert len(found) == ROUNDS - (name == "dsgt")
    for k, one in enumerate(found):
        if isinstance(one, Sign):
            assert torch.equal(one.positive, drawn[one.draw] + one.offset > 0)
            continue
        assert isinstance(one, Draw)
        assert one.draws == tuple(k * algorithm.draws + j for j in range(algorithm.draws))
        expected = sum(gain * drawn[i] for i, gain in zip(one.draws, one.gains, strict=True))
        torch.testing.assert_close(one.value, expected, rtol=1e-7, atol=1e-9)


def test_every_algorithm_has_a_recovery() -> None:
    without = {"km", "collaborative"} & set(registry())  # attacked by their releases
    assert {registry()[name] for name in set(registry()) - without} <= set(RECOVERIES)


def test_runs_stand_apart_on_the_leading_axis() -> None:
    """Node-major rows: mixing four runs at once is mixing each alone."""
    algorithm, kind = CASES["push-sum"]
    topology = topology_for(algorithm, kind)
    together = StackedExchange(SimulatedExchange(topology), N, [])
    values = torch.randn(N, 4, D, dtype=torch.float64)
    mixed = together(2, values.reshape(-1, D)).reshape(N, 4, D)
    for r in range(4):
        torch.testing.assert_close(mixed[:, r], torch.from_numpy(topology.weights(2) @ values[:, r].numpy()))


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
    state = run(
        algorithm, algorithm.init(torch.zeros(N, size, dtype=torch.float64)), grad, exchange, rounds=ROUNDS
    )
    note.end(state)
    A = torch.cat(note.rows).numpy()
    known = KnownMechanism(1)
    spread = np.concatenate([known.linear_spread(j).numpy()[:, 0] for j in range(draws)]).astype(float)
    signal = np.zeros((draws, N))
    signal[:, victim] = [float(known.linear_signal(j)[victim]) for j in range(draws)]
    seen = A @ signal.ravel()
    return float(seen @ np.linalg.pinv(A @ np.diag(spread**2) @ A.T, rcond=1e-11) @ seen)


@pytest.mark.parametrize("name", [name for name in CASES if name != "dinno"])
@pytest.mark.parametrize("view", ["neighbour", "coalition:1,3", "final"])
def test_the_filter_is_the_best_linear_test(name: str, view: str) -> None:
    algorithm, kind = CASES[name]
    topology = topology_for(algorithm, kind)
    seen, victim = parse_view(view, topology)
    assert victim is not None
    final = view == "final"
    observer = Filter(
        LinearSystem(algorithm, topology, D),
        KnownMechanism(1),  # type: ignore[arg-type]
        runs=1,
        victim=victim,
        senders=lambda t: [] if final else visible_senders(topology, seen.members, t),
        sees_models=final,
    )
    train(algorithm, topology, [observer])
    expected = brute_force_mu(algorithm, topology, victim, list(seen.members), final)
    assert observer.mu_squared == pytest.approx(expected, rel=1e-3)
    assert np.isfinite(observer.scores).all()


def test_the_filter_refuses_what_is_not_linear() -> None:
    algorithm, kind = CASES["dinno"]
    with pytest.raises(UserError, match="not linear"):
        LinearSystem(algorithm, topology_for(algorithm, kind), D)


@pytest.mark.parametrize(
    "text", ["everyone", "coalition", "coalition:", "coalition:9", "coalition:a", "coalition:0,1,2,3,4", ""]
)
def test_unknown_observers_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--observer"):
        parse_view(text, build_topology("ring", nodes=N, weights="doubly", seed=0))
