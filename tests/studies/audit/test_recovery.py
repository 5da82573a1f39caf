"""What an observer reads off the messages is what was drawn; what it cannot read it filters as well as can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gossamer.algorithms.base import Exponential
from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.push_sum import PushSum
from gossamer.errors import UserError
from gossamer.methods import rules
from gossamer.methods.km.algorithm import KM
from gossamer.methods.km.messages import NoisyMessages, Unreleased
from gossamer.methods.km.operators import Forward
from gossamer.methods.km.proximal import L1, Box, ElasticNet, SquaredL2
from gossamer.runtime.loop import run
from gossamer.runtime.simulator import SimulatedExchange
from gossamer.studies.audit.filter import Filter, LinearSystem
from gossamer.studies.audit.recovery import RECOVERIES, Draw, Sign, Step, km, undo
from gossamer.studies.audit.scores import MessageReader, observer_of, visible_senders
from gossamer.studies.audit.stacked import StackedExchange
from gossamer.topology.kinds import build as build_topology

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


KM_CASES: dict[str, KM] = {
    "forward": KM(lr=LR, operator="forward"),
    "l2": KM(lr=LR, penalty=SquaredL2(weight=2.0)),
    "l1": KM(lr=LR, penalty=L1(weight=3.0)),
    "l1 inside": KM(lr=LR, penalty=L1(weight=0.3), prox_first=True),
    "box": KM(lr=LR, penalty=Box(low=-0.5, high=0.5)),
    "backward": KM(lr=LR, operator="backward"),
    "douglas-rachford": KM(lr=LR, operator="douglas-rachford", penalty=L1(weight=0.3)),
    "peaceman-rachford": KM(
        lr=LR, operator="peaceman-rachford", penalty=ElasticNet(weight=0.2, l2=1.0), gamma=0.2
    ),
}


def train(
    algorithm: Any,
    topology: Any,
    observers: list[Any],
    *,
    runs: int = 1,
    scale: float = 1.0,
    noised: Callable[[Any], Any] = lambda exchange: exchange,
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
    exchange = noised(StackedExchange(SimulatedExchange(topology), N, observers))
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
    drawn = train(algorithm, topology_for(algorithm, kind), [MessageReader(algorithm, found.append)])
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


@pytest.mark.parametrize("name", KM_CASES)
def test_everyone_recovers_the_answers_inside_an_operator(name: str) -> None:
    """Wherever the penalty's map lets them through: not where it is flat."""
    algorithm = KM_CASES[name]
    found: list[Any] = []
    drawn = train(algorithm, topology_for(algorithm, "ring"), [MessageReader(algorithm, found.append)])
    # The solution that Douglas and Rachford give out is the penalty's map of the last iterate, not the iterate.
    assert len(found) == ROUNDS - (algorithm.mapping.asks == "envelope" and name != "backward")
    for k, one in enumerate(found):
        assert one.draws == (k,)
        known = torch.ones_like(drawn[k], dtype=torch.bool) if one.known is None else one.known
        assert known.any()
        torch.testing.assert_close(one.value[known], drawn[k][known], rtol=1e-7, atol=1e-9)
    some = [one.known for one in found if one.known is not None]
    assert bool(some) == (name in ("l1", "l1 inside", "box"))
    assert all(not mask.all() for mask in some[-1:])


@pytest.mark.parametrize("sees_models", [True, False])
def test_noise_on_the_messages_is_what_is_left_on_the_answers(sees_models: bool) -> None:
    """x̃⁺ − Wx̃ = −αγ g + n⁺ (DP-dKM, Algorithm 1); the last iterate has no noise."""
    algorithm, added = KM(lr=LR, operator="forward", gamma=0.2), []

    class Noisy:
        """Remembers what `NoisyMessages` adds."""

        def add(self, stream: Any, nodes: Any, k: int, sums: torch.Tensor, **how: Any) -> None:
            noise = torch.randn(sums.shape, generator=torch.Generator().manual_seed(k)).to(sums)
            added.append(noise)
            sums += noise

        def release(self, *what: Any, **how: Any) -> Any:
            return None

    def noised(plain: Any) -> NoisyMessages:
        return NoisyMessages(
            plain, noise=Noisy(), scale=torch.ones(N), stream=None, book=Unreleased(),
            nodes=range(N), adjacency="replace-one",
        )  # type: ignore[arg-type]  # fmt: skip

    found: list[Any] = []
    everyone = MessageReader(algorithm, found.append, sees_models=sees_models)
    drawn = train(algorithm, topology_for(algorithm, "ring"), [everyone], noised=noised)
    assert len(found) == ROUNDS - (not sees_models)
    for k, one in enumerate(found):
        last = k == ROUNDS - 1
        assert one.message_gain == (0.0 if last else pytest.approx(1 / (0.2 * LR(k))))
        noise = torch.zeros_like(drawn[k]) if last else one.message_gain * added[k + 1]
        torch.testing.assert_close(one.value, drawn[k] - noise, rtol=1e-7, atol=1e-7)


def test_operators_and_penalties_that_cannot_be_read_backwards_are_refused() -> None:
    class Twice(Forward):
        def __call__(self, x: torch.Tensor, grad: Any) -> torch.Tensor:
            return x - self.step * grad(x) - self.step * grad(x)

    class Squares(Forward):
        def __call__(self, x: torch.Tensor, grad: Any) -> torch.Tensor:
            return x - grad(x) ** 2

    class Own:
        def value(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum(-1)

        def __call__(self, x: torch.Tensor, step: float) -> torch.Tensor:
            return x

    for reads in (Twice, Squares):
        algorithm = KM(lr=LR, operator="forward")
        vars(algorithm)["mapping"] = reads(0.1)
        with pytest.raises(UserError, match="one answer"):
            next(km(algorithm, None))
    with pytest.raises(UserError, match="Own has no inverse"):
        undo(Own(), torch.zeros(1), 0.1)


def test_every_algorithm_has_a_recovery() -> None:
    assert set(rules().values()) - {rules()["without-replacement"]} <= set(RECOVERIES)


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


@pytest.mark.parametrize("name", ["km", *(name for name in CASES if name != "dinno")])
@pytest.mark.parametrize("view", ["neighbour", "coalition:1,3", "final"])
def test_the_filter_is_the_best_linear_test(name: str, view: str) -> None:
    algorithm, kind = {**CASES, "km": (KM_CASES["forward"], "ring")}[name]
    topology = topology_for(algorithm, kind)
    seen = observer_of(view, topology)
    victim, final = seen.target, seen.sees_models
    assert victim is not None
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
    for algorithm in (CASES["dinno"][0], KM_CASES["l1"]):
        with pytest.raises(UserError, match="not linear"):
            LinearSystem(algorithm, topology_for(algorithm, "ring"), D)


@pytest.mark.parametrize(
    "text", ["everyone", "coalition", "coalition:", "coalition:9", "coalition:a", "coalition:0,1,2,3,4", ""]
)
def test_unknown_observers_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--observer"):
        observer_of(text, build_topology("ring", nodes=N, weights="doubly", seed=0))
