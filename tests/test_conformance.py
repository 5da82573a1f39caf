"""What every algorithm must do. One entry in CASES gives a new algorithm all of these tests.

Gradients here are exact gradients of quadratics f_i(x) = ½ a_i ‖x − b_i‖², so optima and fixed points are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from gossamer.algorithms import registry
from gossamer.algorithms.base import Exponential
from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.km import KM
from gossamer.algorithms.push_sum import PushSum
from gossamer.build import floats_per_message
from gossamer.runtime.loop import run
from gossamer.runtime.simulator import SimulatedExchange
from gossamer.topology.build import build as build_topology

D = 5


def push_sum_by_node(
    P: np.ndarray, a: np.ndarray, b: np.ndarray, x: np.ndarray, lr: float, rounds: int
) -> np.ndarray:
    """Dyn-D2P Algorithm 1, lines 10–14, one node after the other, with messages."""
    n = len(x)
    xs, ws = [row.copy() for row in x], [1.0] * n
    for _ in range(rounds):
        sent = [xs[i] - lr * a[i] * (xs[i] / ws[i] - b[i]) for i in range(n)]
        inbox = {i: [(P[i, j], sent[j], ws[j]) for j in range(n) if P[i, j] > 0] for i in range(n)}
        xs = [sum(p * m for p, m, _ in inbox[i]) for i in range(n)]
        ws = [sum(p * w for p, _, w in inbox[i]) for i in range(n)]
    return np.stack([x / w for x, w in zip(xs, ws, strict=True)])


def push_sum_fixed_point(P: np.ndarray, a: np.ndarray, b: np.ndarray, lr: float) -> np.ndarray:
    """With constant steps and different nodes push-sum stops at x = P(x − η a (x/w − b)), w the Perron vector · n."""
    n = len(a)
    values, vectors = np.linalg.eig(P)
    w = np.real(vectors[:, np.argmax(np.real(values))])
    w = n * w / w.sum()
    system = np.eye(n) - P @ np.diag(1 - lr * a / w)
    # Σ x is not fixed by P alone, but the gradients pin it down: the system is regular for lr > 0.
    return np.linalg.solve(system, lr * P @ (a[:, None] * b)) / w[:, None]


def dsgd_by_node(
    W: np.ndarray, a: np.ndarray, b: np.ndarray, x: np.ndarray, lr: float, rounds: int
) -> np.ndarray:
    """dp-consensus Algorithm 1, lines 5–10."""
    n, x = len(x), x.copy()
    for _ in range(rounds):
        x = np.stack(
            [
                sum(W[i, j] * x[j] for j in range(n) if W[i, j] > 0) - lr * a[i] * (x[i] - b[i])
                for i in range(n)
            ]
        )
    return x


def dsgd_fixed_point(W: np.ndarray, a: np.ndarray, b: np.ndarray, lr: float) -> np.ndarray:
    """θ = Wθ − η a (θ − b): DSGD stops at a distance of order η from the optimum."""
    return np.linalg.solve(np.eye(len(a)) - W + lr * np.diag(a), lr * a[:, None] * b)


def dsgt_by_node(
    W: np.ndarray, a: np.ndarray, b: np.ndarray, x: np.ndarray, lr: float, rounds: int
) -> np.ndarray:
    """dp-consensus Algorithm 2, lines 6–12."""
    n, x = len(x), x.copy()
    y, g = np.zeros_like(x), np.zeros_like(x)
    for _ in range(rounds):
        new_x = np.stack([sum(W[i, j] * (x[j] - lr * y[j]) for j in range(n)) for i in range(n)])
        new_g = np.stack([a[i] * (new_x[i] - b[i]) for i in range(n)])
        y = np.stack([new_g[i] + sum(W[i, j] * y[j] for j in range(n)) - g[i] for i in range(n)])
        x, g = new_x, new_g
    return x


def dinno_by_node(
    A: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    x: np.ndarray,
    lr: float,
    rounds: int,
    *,
    rho: float = 0.3,
    steps: int = 3,
    include_self: bool = False,
    optimiser: str = "plain",
    persistent: bool = False,
) -> np.ndarray:
    """dp-consensus Algorithm 3, lines 6–16, with descent in line 15; torch's own Adam where Adam is asked for."""
    n = len(x)
    thetas = [torch.from_numpy(row.copy()) for row in x]
    duals = [torch.zeros(x.shape[1], dtype=torch.float64) for _ in range(n)]
    points = [torch.nn.Parameter(theta.clone()) for theta in thetas]

    def make(point: torch.nn.Parameter) -> torch.optim.Optimizer:
        return (torch.optim.Adam if optimiser == "adam" else torch.optim.SGD)([point], lr=lr)

    optimisers = [make(point) for point in points]
    for _ in range(rounds):
        new = []
        for i in range(n):
            neighbours = [j for j in range(n) if A[i, j] > 0] + ([i] if include_self else [])
            duals[i] = duals[i] + rho * sum((thetas[i] - thetas[j] for j in neighbours), torch.zeros(()))
            points[i].data.copy_(thetas[i])
            if not persistent:
                optimisers[i] = make(points[i])
            for _ in range(steps):
                optimisers[i].zero_grad()
                psi = points[i]
                pull = sum(
                    ((psi - (thetas[i] + thetas[j]) / 2).square().sum() for j in neighbours), torch.zeros(())
                )
                loss = a[i] / 2 * (psi - torch.from_numpy(b[i])).square().sum() + psi @ duals[i] + rho * pull
                loss.backward()
                optimisers[i].step()
            new.append(points[i].detach().clone())
        thetas = new
    return torch.stack(thetas).numpy()


def optimum(W: np.ndarray, a: np.ndarray, b: np.ndarray, lr: float) -> np.ndarray:
    """Tracking methods have no bias: every node ends at the minimum of the sum."""
    return np.tile((a[:, None] * b).sum(0) / a.sum(), (len(a), 1))


def descent(a: np.ndarray, b: np.ndarray, x: np.ndarray, lr: float, rounds: int) -> np.ndarray:
    for _ in range(rounds):
        x = x - lr * a[:, None] * (x - b)
    return x


@dataclass(frozen=True)
class Case:
    make: Callable[[float], Any]
    by_node: Callable[..., np.ndarray]
    fixed_point: Callable[..., np.ndarray]
    single_node: Callable[..., np.ndarray]  # (a, b, x0, lr, rounds) → the point n = 1 must reach
    golden: tuple[float, ...]  # node 0's first three coordinates after 20 rounds of `_golden_run`


CASES = {
    "push-sum": Case(
        make=lambda lr: PushSum(lr=Exponential(lr)),
        by_node=push_sum_by_node,
        fixed_point=push_sum_fixed_point,
        single_node=descent,
        golden=(-0.038908, -0.026887, -0.031822),
    ),
    "dsgd": Case(
        make=lambda lr: DSGD(lr=Exponential(lr)),
        by_node=dsgd_by_node,
        fixed_point=dsgd_fixed_point,
        single_node=descent,
        golden=(-0.014662, -0.142926, 0.046734),
    ),
    "dsgt": Case(
        make=lambda lr: DSGT(lr=Exponential(lr)),
        by_node=dsgt_by_node,
        fixed_point=optimum,
        # The tracker starts at 0, so the first round does not move.
        single_node=lambda a, b, x, lr, rounds: descent(a, b, x, lr, rounds - 1),
        golden=(-0.058380, 0.018144, -0.074832),
    ),
    "km": Case(  # of the forward operator: gradient descent again, with steps αγ
        make=lambda lr: KM(lr=Exponential(lr), operator="forward", gamma=1.0),
        by_node=dsgd_by_node,
        fixed_point=dsgd_fixed_point,
        single_node=descent,
        golden=(-0.014662, -0.142926, 0.046734),
    ),
    "dinno": Case(
        make=lambda lr: DiNNO(lr=Exponential(lr), rho=0.3, steps=3, optimiser="plain"),
        by_node=dinno_by_node,
        fixed_point=optimum,
        single_node=lambda a, b, x, lr, rounds: descent(a, b, x, lr, 3 * rounds),
        golden=(-0.178047, -0.251183, 0.250891),
    ),
}
every_algorithm = pytest.mark.parametrize("name", CASES)


class Quadratic:
    def __init__(self, a: np.ndarray, b: np.ndarray):
        self.a, self.b = torch.from_numpy(a).float()[:, None], torch.from_numpy(b).float()

    def __call__(self, points: torch.Tensor) -> torch.Tensor:
        return self.a * (points - self.b)


def problem(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(0.5, 2.0, n), rng.normal(size=(n, D)), rng.normal(size=(n, D))


def topology(algorithm: Any, n: int, *, irregular: bool = False) -> Any:
    if n == 1:
        return build_topology("complete", nodes=1, weights=algorithm.weights, seed=0)
    if algorithm.weights != "column":
        kind, options = ("erdos-renyi", {"p": 0.5}) if irregular else ("ring", {})
    else:
        kind, options = ("digraph", {"p": 0.3}) if irregular else ("one-peer-exponential", {})
    return build_topology(kind, nodes=n, weights=algorithm.weights, seed=1, **options)


def train(algorithm: Any, topo: Any, a: np.ndarray, b: np.ndarray, x0: np.ndarray, rounds: int) -> Any:
    start = algorithm.init(torch.from_numpy(x0).float())
    return run(algorithm, start, Quadratic(a, b), SimulatedExchange(topo), rounds=rounds)


def test_every_registered_algorithm_has_a_case() -> None:
    assert set(registry()) == set(CASES)


@every_algorithm
def test_identical_nodes_reach_the_optimum(name: str) -> None:
    algorithm = CASES[name].make(0.3)
    a, b = np.full(8, 1.3), np.tile(np.arange(D, dtype=float), (8, 1))
    x0 = problem(8)[2]
    state = train(algorithm, topology(algorithm, 8), a, b, x0, 200)
    np.testing.assert_allclose(algorithm.model(state).numpy(), b, atol=1e-5)


@every_algorithm
@pytest.mark.parametrize("irregular", [False, True])
def test_different_nodes_reach_the_stated_point(name: str, irregular: bool) -> None:
    """The fixed point on a static graph, solved for independently; it tends to the optimum as the step shrinks."""
    case = CASES[name]
    a, b, x0 = problem(6, seed=3)
    best = optimum(np.eye(6), a, b, 0.0)
    gaps = []
    for lr in (0.04, 0.02):
        algorithm = case.make(lr)
        kind = ("digraph", {"p": 0.3}) if irregular else ("directed-ring", {})
        if algorithm.weights != "column":
            kind = ("ring", {})
        topo = build_topology(kind[0], nodes=6, weights=algorithm.weights, seed=1, **kind[1])
        state = train(algorithm, topo, a, b, x0, int(60 / lr))
        stated = case.fixed_point(topo.weights(0).toarray(), a, b, lr)
        np.testing.assert_allclose(algorithm.model(state).numpy(), stated, atol=2e-4)
        gaps.append(np.abs(stated - best).max())
    assert gaps[1] < 0.65 * gaps[0] or gaps[0] < 1e-9


@every_algorithm
def test_one_node_is_the_single_node_method(name: str) -> None:
    case = CASES[name]
    algorithm = case.make(0.1)
    a, b, x0 = problem(1)
    state = train(algorithm, topology(algorithm, 1), a, b, x0, 10)
    expected = case.single_node(a, b, x0, 0.1, 10)
    np.testing.assert_allclose(algorithm.model(state).numpy(), expected, rtol=1e-5)


@every_algorithm
@pytest.mark.parametrize("irregular", [False, True])
def test_stacked_step_is_the_node_by_node_step(name: str, irregular: bool) -> None:
    case = CASES[name]
    algorithm = case.make(0.1)
    a, b, x0 = problem(7, seed=5)
    kind = ("digraph", {"p": 0.4}) if irregular and algorithm.weights == "column" else ("ring", {})
    topo = build_topology(kind[0], nodes=7, weights=algorithm.weights, seed=2, **kind[1])
    state = train(algorithm, topo, a, b, x0, 15)
    expected = case.by_node(topo.weights(0).toarray(), a, b, x0, 0.1, 15)
    np.testing.assert_allclose(algorithm.model(state).numpy(), expected, rtol=1e-4, atol=1e-5)


@every_algorithm
def test_golden_trajectory(name: str) -> None:
    """A fixed seed gives these numbers, today and after every change."""
    algorithm = CASES[name].make(0.05)
    a, b, x0 = problem(8, seed=11)
    state = train(algorithm, topology(algorithm, 8), a, b, x0, 20)
    np.testing.assert_allclose(algorithm.model(state)[0, :3].numpy(), CASES[name].golden, atol=2e-6)


def test_push_sum_keeps_its_mass_where_weights_differ() -> None:
    algorithm = PushSum(lr=Exponential(0.1))
    a, b, x0 = problem(9, seed=7)
    topo = topology(algorithm, 9, irregular=True)
    start = algorithm.init(torch.from_numpy(x0).float())
    seen = []
    state = run(
        algorithm, start, Quadratic(a, b), SimulatedExchange(topo), rounds=300,
        after_round=lambda t, s: seen.append(float(s.w.double().sum())),
    )  # fmt: skip
    assert state.w.max() - state.w.min() > 0.1  # irregular: the weights do differ
    np.testing.assert_allclose(seen, 9.0, rtol=1e-5)


def test_push_sum_keeps_its_mass_when_links_drop() -> None:
    algorithm = PushSum(lr=Exponential(0.1))
    topo = build_topology("digraph", nodes=9, weights="column", seed=1, p=0.4, dropout=0.5)
    a, b, x0 = problem(9, seed=7)
    state = train(algorithm, topo, a, b, x0, 200)
    assert float(state.w.double().sum()) == pytest.approx(9.0, rel=1e-5)


def test_tracking_reaches_the_optimum_where_plain_descent_stops_short() -> None:
    a, b, x0 = problem(6, seed=3)
    topo = build_topology("ring", nodes=6, weights="doubly", seed=0)
    best = optimum(np.eye(6), a, b, 0.0)
    reached = {
        rule: train(rule(lr=Exponential(0.1)), topo, a, b, x0, 1500).x.numpy() for rule in (DSGD, DSGT)
    }
    assert np.abs(reached[DSGT] - best).max() < 1e-4
    assert np.abs(reached[DSGD] - best).max() > 1e-2


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("steps", [1, 4])
def test_dual_descent_reaches_the_optimum_where_plain_descent_stops_short(
    include_self: bool, steps: int
) -> None:
    a, b, x0 = problem(6, seed=3)
    topo = build_topology("ring", nodes=6, weights="adjacency", seed=0)
    algorithm = DiNNO(lr=Exponential(0.1), rho=0.3, steps=steps, optimiser="plain", include_self=include_self)
    state = train(algorithm, topo, a, b, x0, 1500)
    assert np.abs(state.x.numpy() - optimum(np.eye(6), a, b, 0.0)).max() < 1e-4


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_inner_adam_is_torchs_adam(persistent: bool, include_self: bool, steps: int) -> None:
    a, b, x0 = problem(7, seed=5)
    topo = build_topology("erdos-renyi", nodes=7, weights="adjacency", seed=2, p=0.4)
    fields = {"rho": 0.3, "steps": steps, "persistent": persistent, "include_self": include_self}
    algorithm = DiNNO(lr=Exponential(0.05), optimiser="adam", **fields)
    state = train(algorithm, topo, a, b, x0, 12)
    expected = dinno_by_node(topo.weights(0).toarray(), a, b, x0, 0.05, 12, optimiser="adam", **fields)
    np.testing.assert_allclose(state.x.numpy(), expected, rtol=1e-4, atol=1e-5)
    assert state.first.shape == (7, D if persistent else 0)  # only what has to outlive a round
    assert bool((state.taken == (12 * steps if persistent else 0)).all())


@pytest.mark.parametrize("optimiser", ["plain", "adam"])
def test_duals_sum_to_zero_on_undirected_graphs_also_when_links_drop(optimiser: Any) -> None:
    a, b, x0 = problem(8, seed=4)
    topo = build_topology("erdos-renyi", nodes=8, weights="adjacency", seed=0, p=0.5, dropout=0.3)
    algorithm = DiNNO(lr=Exponential(0.05), rho=0.3, optimiser=optimiser)
    sums, sizes = [], []

    def look(t: int, s: Any) -> None:
        sums.append(float(s.y.double().sum(0).abs().max()))
        sizes.append(float(s.y.abs().max()))

    start = algorithm.init(torch.from_numpy(x0).float())
    run(algorithm, start, Quadratic(a, b), SimulatedExchange(topo), rounds=60, after_round=look)
    assert max(sums) < 1e-4
    assert min(sizes) > 0.1  # not because they are all zero


def test_every_inner_step_is_one_draw() -> None:
    a, b, x0 = problem(4)
    for name, case in CASES.items():
        algorithm = case.make(0.1)
        calls = 0

        def grad(points: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return Quadratic(a, b)(points)

        topo = topology(algorithm, 4)
        run(algorithm, algorithm.init(torch.from_numpy(x0).float()), grad, SimulatedExchange(topo), rounds=5)
        assert calls == 5 * algorithm.draws, name


@every_algorithm
def test_messages_are_as_long_as_planned(name: str) -> None:
    a, b, x0 = problem(8)
    algorithm = CASES[name].make(0.1)
    topo = topology(algorithm, 8)
    exchange = SimulatedExchange(topo)
    run(algorithm, algorithm.init(torch.from_numpy(x0).float()), Quadratic(a, b), exchange, rounds=6)
    links = sum(int(topo.out_degree(t).sum()) for t in range(6))
    assert exchange.bytes_sent == 4 * floats_per_message(algorithm, D) * links


def test_trackers_average_the_gradients_at_every_step() -> None:
    a, b, x0 = problem(6, seed=4)
    topo = build_topology("ring", nodes=6, weights="doubly", seed=0)
    algorithm = DSGT(lr=Exponential(0.05))
    gaps = []
    run(
        algorithm, algorithm.init(torch.from_numpy(x0).float()), Quadratic(a, b), SimulatedExchange(topo), rounds=50,
        after_round=lambda t, s: gaps.append(float((s.y.mean(0) - s.g.mean(0)).abs().max())),
    )  # fmt: skip
    assert max(gaps) < 1e-5
