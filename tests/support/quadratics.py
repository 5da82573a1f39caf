"""Every algorithm with references written node by node, on quadratics whose optima and fixed points are known.

Gradients are exact gradients of f_i(x) = ½ a_i ‖x − b_i‖².
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gossamer.algorithms.base import Exponential
from gossamer.algorithms.dinno import DiNNO
from gossamer.algorithms.dsgd import DSGD
from gossamer.algorithms.dsgt import DSGT
from gossamer.algorithms.push_sum import PushSum
from gossamer.methods.km.algorithm import KM


def push_sum_by_node(P: np.ndarray, a: np.ndarray, b: np.ndarray, x: np.ndarray, lr: float, rounds: int) -> np.ndarray:
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


def dsgd_by_node(W: np.ndarray, a: np.ndarray, b: np.ndarray, x: np.ndarray, lr: float, rounds: int) -> np.ndarray:
    """dp-consensus Algorithm 1, lines 5–10."""
    n, x = len(x), x.copy()
    for _ in range(rounds):
        x = np.stack(
            [sum(W[i, j] * x[j] for j in range(n) if W[i, j] > 0) - lr * a[i] * (x[i] - b[i]) for i in range(n)]
        )
    return x


def dsgd_fixed_point(W: np.ndarray, a: np.ndarray, b: np.ndarray, lr: float) -> np.ndarray:
    """θ = Wθ − η a (θ − b): DSGD stops at a distance of order η from the optimum."""
    return np.linalg.solve(np.eye(len(a)) - W + lr * np.diag(a), lr * a[:, None] * b)


def dsgt_by_node(W: np.ndarray, a: np.ndarray, b: np.ndarray, x: np.ndarray, lr: float, rounds: int) -> np.ndarray:
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
                pull = sum(((psi - (thetas[i] + thetas[j]) / 2).square().sum() for j in neighbours), torch.zeros(()))
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
    rule: type[Any]
    by_node: Callable[..., np.ndarray]
    fixed_point: Callable[..., np.ndarray]
    single_node: Callable[..., np.ndarray]  # (a, b, x0, lr, rounds) → the point n = 1 must reach
    golden: tuple[float, ...]  # node 0's first three coordinates after 20 rounds of `test_golden_trajectory`
    options: dict[str, Any] = field(default_factory=dict)

    def make(self, lr: float) -> Any:
        return self.rule(lr=Exponential(lr), **self.options)


CASES = {
    "push-sum": Case(
        rule=PushSum,
        by_node=push_sum_by_node,
        fixed_point=push_sum_fixed_point,
        single_node=descent,
        golden=(-0.038908, -0.026887, -0.031822),
    ),
    "dsgd": Case(
        rule=DSGD,
        by_node=dsgd_by_node,
        fixed_point=dsgd_fixed_point,
        single_node=descent,
        golden=(-0.014662, -0.142926, 0.046734),
    ),
    "dsgt": Case(
        rule=DSGT,
        by_node=dsgt_by_node,
        fixed_point=optimum,
        # The tracker starts at 0, so the first round does not move.
        single_node=lambda a, b, x, lr, rounds: descent(a, b, x, lr, rounds - 1),
        golden=(-0.058380, 0.018144, -0.074832),
    ),
    "km": Case(  # of the forward operator: gradient descent again, with steps αγ
        rule=KM,
        options={"operator": "forward", "gamma": 1.0},
        by_node=dsgd_by_node,
        fixed_point=dsgd_fixed_point,
        single_node=descent,
        golden=(-0.014662, -0.142926, 0.046734),
    ),
    "dinno": Case(
        rule=DiNNO,
        options={"rho": 0.3, "steps": 3, "optimiser": "plain"},
        by_node=dinno_by_node,
        fixed_point=optimum,
        single_node=lambda a, b, x, lr, rounds: descent(a, b, x, lr, 3 * rounds),
        golden=(-0.178047, -0.251183, 0.250891),
    ),
}
