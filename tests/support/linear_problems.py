"""Linear problems whose answers are exact: gradients and resolvents of all records, without clip or noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.methods.km.algorithm import KM
from gossamer.methods.km.proximal import L1, Box, ElasticNet, Nothing, SquaredL2
from gossamer.methods.km.resolvent import NodeResolvent, RecordResolvent

ONES = torch.ones_like


@dataclass(frozen=True)
class Problem:
    """min over x of the mean over all nodes and records of loss(⟨a, x⟩, y) + penalty(x)."""

    a: Tensor  # (m, N, p)
    y: Tensor  # (m, N)
    loss: Any
    penalty: Any

    @property
    def mask(self) -> Tensor:
        return torch.ones(self.y.shape, dtype=torch.bool)

    def gradient(self, points: Tensor) -> Tensor:
        outputs = torch.einsum("mbp,mp->mb", self.a, points).detach().requires_grad_()
        with torch.enable_grad():
            (slopes,) = torch.autograd.grad(self.loss.value(outputs, self.y).sum(), outputs)
        return torch.einsum("mb,mbp->mp", slopes, self.a) / self.y.shape[1]

    def answers(self, algorithm: KM) -> Any:
        if algorithm.mapping.asks == "gradient":
            return self.gradient
        kind = NodeResolvent if algorithm.resolvent == "node" else RecordResolvent
        part = kind(self.loss.implicit_slope, algorithm.gamma)
        return lambda v: part(v, self.a, self.y, self.mask, ONES)[0] / self.y.shape[1]

    def objective(self, x: Tensor | np.ndarray) -> float:
        point = torch.as_tensor(x, dtype=torch.float64)
        value = self.loss.value(torch.einsum("mbp,p->mb", self.a, point), self.y).mean()
        return float(value + penalty_value(self.penalty, point))

    @property
    def smoothness(self) -> float:
        """The largest node's L."""
        largest = torch.linalg.matrix_norm(self.a, ord=2).square().max() / self.y.shape[1]
        return float(self.loss.curvature * largest)


def penalty_value(penalty: Any, x: Tensor) -> Tensor:
    """r(x) of every point: (…, p) → (…)."""
    match penalty:
        case L1(weight=weight):
            return weight * x.abs().sum(-1)
        case SquaredL2(weight=weight):
            return weight / 2 * x.square().sum(-1)
        case ElasticNet(weight=weight, l2=l2):
            return weight * x.abs().sum(-1) + l2 / 2 * x.square().sum(-1)
        case Box(low=low, high=high):
            return x.new_zeros(x.shape[:-1]).masked_fill(((x < low) | (x > high)).any(-1), float("inf"))
        case Nothing():
            return x.new_zeros(x.shape[:-1])
    raise TypeError(penalty)


def linear_problem(
    loss: Any,
    penalty: Any,
    *,
    nodes: int = 1,
    records: int = 60,
    features: int = 8,
    seed: int = 0,
    alike: bool = False,
) -> Problem:
    """Half of the true coefficients are 0. Different nodes see different features' scales and different offsets."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=features)
    truth[: features // 2] = 0
    count = 1 if alike else nodes
    a = rng.normal(size=(count, records, features))
    if not alike and nodes > 1:
        a = a * rng.uniform(0.5, 1.5, size=(count, 1, features))
    shift = 0.0 if alike or nodes == 1 else rng.normal(size=(count, 1))
    clean = a @ truth
    y = clean + 0.3 * rng.normal(size=clean.shape) + shift
    if loss.binary:
        y = (rng.logistic(size=clean.shape) < clean + shift).astype(float)
    stacked = [torch.from_numpy(np.repeat(v, nodes // count, axis=0)) for v in (a, y)]
    return Problem(stacked[0], stacked[1], loss, penalty)
