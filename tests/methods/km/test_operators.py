"""Operators: nonexpansive up to the step that they name, and the helpers that combine them."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.linear_problems import linear_problem
from tests.support.refusals import expect_refusal

from gossamer.algorithms.base import Exponential
from gossamer.methods.km.algorithm import KM
from gossamer.methods.km.operators import OPERATORS, check_step, reflect
from gossamer.methods.km.proximal import L1, Box, Nothing, SquaredL2
from gossamer.methods.km.proximal import ElasticNet as ElasticNetPenalty
from gossamer.models.losses import Hinge, Huber, LeastSquares, Logistic, Quantile


class TestNonexpansive:
    @settings(max_examples=50, deadline=None)
    @given(
        operator=st.sampled_from(list(OPERATORS)),
        loss=st.sampled_from([LeastSquares(), Logistic(), Huber(0.7), Hinge(), Quantile(0.2)]),
        penalty=st.sampled_from(
            [
                Nothing(),
                L1(weight=0.3),
                SquaredL2(weight=0.5),
                ElasticNetPenalty(weight=0.2, l2=0.4),
                Box(low=-1, high=2),
            ]
        ),
        share=st.floats(0.05, 1.0),
        spread=st.sampled_from([1e-3, 1.0, 100.0]),
        seed=st.integers(0, 10**6),
    )
    def test_every_operator_up_to_its_largest_step(
        self, operator: str, loss: Any, penalty: Any, share: float, spread: float, seed: int
    ) -> None:
        problem = linear_problem(loss, penalty, nodes=3, records=12, features=4, seed=seed)
        unbounded = OPERATORS[operator](step=1.0, penalty=penalty).largest_step(problem.smoothness)
        if unbounded == 0:  # a kinked loss has no gradient steps
            return
        gamma = share * min(unbounded, 5.0)
        algorithm = KM(lr=Exponential(1.0), operator=operator, gamma=gamma, penalty=penalty, resolvent="node")
        rng = torch.Generator().manual_seed(seed)
        x, z = (spread * torch.randn(3, 4, dtype=torch.float64, generator=rng) for _ in range(2))
        Tx, Tz = (algorithm.mapping(point, problem.answers(algorithm)) for point in (x, z))
        before, after = (x - z).norm(dim=1), (Tx - Tz).norm(dim=1)
        assert bool((after <= before * (1 + 1e-6) + 1e-6).all())

    def test_a_larger_step_expands(self) -> None:
        """The condition is sharp: a little beyond 2/L the forward operator drives points apart."""
        problem = linear_problem(LeastSquares(), Nothing(), records=12, features=4)
        operator = OPERATORS["forward"](step=2.1 / problem.smoothness)
        top = torch.linalg.svd(problem.a[0]).Vh[0]
        apart = operator(top[None], problem.gradient) - operator(0 * top[None], problem.gradient)
        assert float(apart.norm()) > 1.05

    def test_douglas_rachford_is_half_of_peaceman_rachford(self) -> None:
        problem = linear_problem(LeastSquares(), L1(weight=0.1), records=12, features=4)
        algorithm = KM(lr=Exponential(1.0), operator="peaceman-rachford", gamma=0.7, penalty=problem.penalty)
        grad, x = problem.answers(algorithm), torch.ones(1, 4, dtype=torch.float64)
        half = 0.5 * (x + algorithm.mapping(x, grad))
        assert torch.allclose(half, OPERATORS["douglas-rachford"](0.7, problem.penalty)(x, grad))


def test_a_step_is_refused_where_it_need_not_be_nonexpansive() -> None:
    for name in ("forward", "forward-backward"):
        operator = OPERATORS[name](step=0.51)
        with expect_refusal(key="algorithm.gamma", value="0.51", names=[name]):
            check_step(operator, 0.51, 4.0)
        check_step(operator, 0.5, 4.0)
        with expect_refusal(key="algorithm.operator", names="Lipschitz"):
            check_step(operator, 1e-6, float("inf"))
    for name in ("backward", "douglas-rachford", "peaceman-rachford"):
        check_step(OPERATORS[name](step=1e6), 1e6, float("inf"))


def test_a_reflection_is_its_own_inverse_where_the_map_projects_on_a_line() -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    box = Box(low=0, high=0)  # the projection on 0
    torch.testing.assert_close(reflect(box, x, 1.0), -x)
    torch.testing.assert_close(reflect(Nothing(), x, 1.0), x)
