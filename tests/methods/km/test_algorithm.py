"""The Krasnosel'skiĭ–Mann framework: operators, their fixed points against scikit-learn and scipy, and what is off."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog, lsq_linear, minimize
from tests.support.linear_problems import Problem, linear_problem
from tests.support.refusals import expect_refusal
from torch import Tensor

from gossamer.algorithms.base import Exponential
from gossamer.mechanism.clipping import Stretches
from gossamer.methods.km.algorithm import KM, check_relaxation
from gossamer.methods.km.operators import OPERATORS
from gossamer.methods.km.proximal import L1, Box, Nothing, SquaredL2
from gossamer.methods.km.proximal import ElasticNet as ElasticNetPenalty
from gossamer.models.losses import Hinge, Huber, LeastSquares, Logistic, Quantile
from gossamer.runtime.group import SimulatedExchange
from gossamer.runtime.loop import run
from gossamer.topology.kinds import build as build_topology

# forward–backward and both ways around the loss' resolvent
BOTH = [("forward-backward", 0.5), ("douglas-rachford", 1.0), ("peaceman-rachford", 1.0)]
ONES = torch.ones_like


def solve(
    problem: Problem,
    *,
    rounds: int,
    lr: float = 0.9,
    decay: float = 1.0,
    graph: str = "complete",
    **fields: Any,
) -> tuple[Tensor, KM]:
    """The nodes' models after so many rounds."""
    algorithm = KM(lr=Exponential(lr, decay, rounds), penalty=problem.penalty, **fields)
    topology = build_topology(graph, nodes=len(problem.y), weights="doubly", seed=0)
    start = algorithm.init(torch.zeros(len(problem.y), problem.a.shape[2], dtype=torch.float64))
    state = run(algorithm, start, problem.answers(algorithm), SimulatedExchange(topology), rounds=rounds)
    return algorithm.model(state), algorithm


def pool(problem: Problem) -> Problem:
    """All records on one node."""
    return replace(problem, a=problem.a.flatten(0, 1)[None], y=problem.y.flatten()[None])


def assert_reaches(
    problem: Problem,
    theirs: np.ndarray,
    operator: str,
    gamma: float,
    *,
    rounds: int = 600,
    exact: float = 1e-4,
) -> None:
    """Every node's objective is theirs, within 1e-4 above and, theirs being a minimum, never much below."""
    models, _ = solve(problem, rounds=rounds, operator=operator, gamma=gamma, resolvent="node")
    best = problem.objective(theirs)
    for model in models:
        assert -1e-5 < problem.objective(model) - best < exact


def linear_program(problem: Problem) -> np.ndarray:
    """min (1/N) Σ u + λ 1ᵀ(p + q) over x = p − q, u ≥ every straight piece of the loss."""
    a, y = problem.a[0].numpy(), problem.y[0].numpy()
    n, p = a.shape
    weight = getattr(problem.penalty, "weight", 0.0)
    if isinstance(problem.loss, Hinge):
        z = (2 * y - 1)[:, None]
        pieces = [(-z * a, -np.ones(n))]  # 1 − z⟨a,x⟩ ≤ u
    else:
        tau = problem.loss.tau
        pieces = [(-tau * a, -tau * y), ((1 - tau) * a, (1 - tau) * y)]
    rows = np.vstack([np.hstack([m, -m, -np.eye(n)]) for m, _ in pieces])
    cost = np.concatenate([np.full(2 * p, weight), np.full(n, 1 / n)])
    found = linprog(cost, A_ub=rows, b_ub=np.concatenate([b for _, b in pieces]), method="highs")
    return np.asarray(found.x[:p] - found.x[p : 2 * p])


class TestSolutions:
    """One node, or all nodes alike: what scikit-learn and scipy find, to 1e-4 in objective."""

    @pytest.mark.parametrize(("operator", "gamma"), BOTH)
    @pytest.mark.parametrize("nodes", [1, 4])
    def test_lasso(self, operator: str, gamma: float, nodes: int) -> None:
        from sklearn.linear_model import Lasso

        problem = linear_problem(LeastSquares(), L1(weight=0.1), nodes=nodes, alike=True)
        theirs = Lasso(alpha=0.1, fit_intercept=False, tol=1e-12).fit(problem.a[0], problem.y[0]).coef_
        assert_reaches(problem, theirs, operator, gamma, exact=1e-9)
        assert (theirs == 0).any()  # there is something to select

    @pytest.mark.parametrize(("operator", "gamma"), BOTH)
    def test_elastic_net(self, operator: str, gamma: float) -> None:
        from sklearn.linear_model import ElasticNet

        problem = linear_problem(LeastSquares(), ElasticNetPenalty(weight=0.06, l2=0.14))
        rival = ElasticNet(alpha=0.2, l1_ratio=0.3, fit_intercept=False, tol=1e-12)
        assert_reaches(problem, rival.fit(problem.a[0], problem.y[0]).coef_, operator, gamma, exact=1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize(("operator", "gamma"), BOTH)
    def test_sparse_logistic_regression(self, operator: str, gamma: float) -> None:
        from sklearn.linear_model import LogisticRegression

        problem = linear_problem(Logistic(), L1(weight=0.03))
        rival = LogisticRegression(
            l1_ratio=1.0,
            solver="liblinear",
            C=1 / (60 * 0.03),
            fit_intercept=False,
            tol=1e-10,
            max_iter=10_000,
        )
        theirs = rival.fit(problem.a[0], problem.y[0]).coef_[0]
        assert_reaches(problem, theirs, operator, 2 * gamma, rounds=60)
        assert (theirs == 0).any()

    @pytest.mark.parametrize(("operator", "gamma"), BOTH)
    def test_huber(self, operator: str, gamma: float) -> None:
        """scikit-learn's HuberRegressor with its scale held at 1 has our objective."""
        from sklearn.linear_model import HuberRegressor

        problem = linear_problem(Huber(1.35), SquaredL2(weight=0.01))
        found = minimize(problem.objective, np.zeros(8), method="BFGS", options={"gtol": 1e-9})
        rival = HuberRegressor(epsilon=1.35, alpha=0.0, fit_intercept=False, tol=1e-10, max_iter=10_000)
        rival.fit(problem.a[0], problem.y[0])
        scaled = linear_problem(
            Huber(1.35 * rival.scale_), SquaredL2(weight=0.0)
        )  # HuberRegressor fits σ: δ in its unit
        assert_reaches(problem, found.x, operator, gamma)
        assert_reaches(scaled, rival.coef_, operator, gamma)

    @pytest.mark.parametrize(
        "operator", ["douglas-rachford", pytest.param("peaceman-rachford", marks=pytest.mark.slow)]
    )
    @pytest.mark.parametrize("loss", [Hinge(), Quantile(0.3)])
    def test_losses_with_kinks(self, operator: str, loss: Any) -> None:
        """Hinge and quantile with an ℓ1 penalty are linear programs; no gradient method applies."""
        problem = linear_problem(loss, L1(weight=0.05), records=25, features=6)
        assert_reaches(problem, linear_program(problem), operator, 1.0, rounds=300)

    @pytest.mark.parametrize("loss", [LeastSquares(), Huber(0.5), Quantile(0.5)])
    def test_backward_minimises_the_loss_alone(self, loss: Any) -> None:
        problem = linear_problem(loss, Nothing(), records=30)
        best = (
            linear_program(problem)
            if isinstance(loss, Quantile)
            else minimize(problem.objective, np.zeros(8), method="BFGS", options={"gtol": 1e-9}).x
        )
        assert_reaches(problem, best, "backward", 4.0, rounds=60)

    @pytest.mark.parametrize(("operator", "gamma"), BOTH)
    def test_box(self, operator: str, gamma: float) -> None:
        problem = linear_problem(LeastSquares(), Box(low=-0.2, high=0.3))
        found = lsq_linear(problem.a[0], problem.y[0], (-0.2, 0.3), tol=1e-12)
        assert_reaches(problem, np.clip(found.x, -0.2, 0.3), operator, gamma, exact=1e-9)


class TestDifferentNodes:
    @pytest.mark.parametrize(
        "graph", ["ring", *(pytest.param(name, marks=pytest.mark.slow) for name in ("star", "complete"))]
    )
    @pytest.mark.parametrize(("loss", "weight"), [(LeastSquares(), 0.2), (Logistic(), 0.02)])
    def test_prox_after_mixing_with_falling_steps_reaches_the_optimum(
        self, graph: str, loss: Any, weight: float
    ) -> None:
        problem = linear_problem(loss, L1(weight=weight), nodes=5, seed=2)
        pooled = pool(problem)
        best = pooled.objective(solve(pooled, rounds=3000, gamma=1 / pooled.smoothness)[0][0])
        models, _ = solve(problem, rounds=4000, lr=1.0, decay=1e-4, graph=graph, gamma=0.5 / problem.smoothness)
        gaps = [problem.objective(model) - best for model in models]
        assert min(gaps) > -1e-9
        assert max(gaps) < 1e-4

    def test_the_papers_iteration_keeps_a_bias_of_order_gamma(self) -> None:
        """However far α falls, the paper's fixed point is off: by half at half the γ."""
        problem = linear_problem(LeastSquares(), L1(weight=0.2), nodes=5, seed=7)
        pooled, top = pool(problem), 1 / problem.smoothness
        best = solve(pooled, rounds=2000, gamma=1 / pooled.smoothness)[0][0]
        distances, gaps = [], []
        for gamma, rounds in ((top, 1500), (top / 2, 3000)):
            models, _ = solve(problem, rounds=rounds, lr=1.0, decay=1e-4, graph="ring", gamma=gamma, prox_first=True)
            distances.append(float((models - best).norm(dim=1).max()))
            gaps.append(problem.objective(models[0]) - problem.objective(best))
        assert gaps[0] > 4e-3
        assert distances[0] / distances[1] == pytest.approx(2, rel=0.1)
        assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.1)

    def test_a_mean_of_records_resolvents_is_off_by_an_order_of_gamma(self) -> None:
        """What sound mode protects are single records' resolvents; their mean's zero is not the loss' minimum."""
        problem = linear_problem(LeastSquares(), SquaredL2(weight=0.1))
        best = solve(problem, rounds=2000, operator="douglas-rachford", gamma=1.0, resolvent="node")[0][0]
        distances = []
        for gamma in (0.04, 0.02):
            models, _ = solve(problem, rounds=int(40 / gamma), operator="douglas-rachford", gamma=gamma)
            distances.append(float((models[0] - best).norm()))
        for larger, smaller in itertools.pairwise(distances):
            assert 1.6 < larger / smaller < 2.4


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"lr": Exponential(1.5)}, "algorithm.lr relaxation"),
        ({"operator": "forward", "gamma": 2.1, "smoothness": 1.0}, "algorithm.gamma 2.1 2"),
        (
            {"operator": "forward-backward", "gamma": 0.1, "smoothness": float("inf")},
            "algorithm.operator forward-backward douglas-rachford",
        ),
    ],
)
def test_mistakes(fields: dict[str, Any], says: str) -> None:
    with expect_refusal(names=says):
        KM(**{"lr": Exponential(1.0), **fields})


def test_an_operator_that_asks_twice_is_paid_twice() -> None:
    class Twice:
        asks = "gradient"

        def __init__(self, step: float, penalty: Any):
            self.inner = OPERATORS["forward"](step)

        def __call__(self, x: Tensor, grad: Any) -> Tensor:
            return self.inner(self.inner(x, grad), grad)

    OPERATORS["twice"] = Twice
    try:
        assert KM(lr=Exponential(1.0), operator="twice").draws == 2
        assert KM(lr=Exponential(1.0), operator="douglas-rachford", penalty=Box(low=0, high=1)).draws == 1
    finally:
        del OPERATORS["twice"]


def test_the_relaxation_is_bounded_in_every_round() -> None:
    for values, says in (
        ((0.5, 3.0, 0.5), "3"),
        ((0.5, 0.0, 0.5), "0"),
        ((2.0, 0.5, 0.5), "2"),
    ):
        with expect_refusal(key="algorithm.lr", names=says):
            check_relaxation(Stretches(values, 3), 3)
    check_relaxation(Stretches((0.5, 1.0, 0.5), 3), 3)
