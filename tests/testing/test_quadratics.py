"""The problems are what they say."""

from __future__ import annotations

import numpy as np
import torch

from gossamer.algorithms.base import Exponential
from gossamer.algorithms.dsgd import DSGD
from gossamer.testing.quadratics import D, Quadratic, minimum, problem, topology, train


def test_gradients_vanish_at_each_nodes_own_minimum_and_add_up_to_none_at_the_common_one() -> None:
    a, b, x0 = problem(6)
    assert x0.shape == (6, D)
    grad = Quadratic(a, b)
    assert float(grad(torch.from_numpy(b).float()).abs().max()) == 0
    best = torch.from_numpy(np.tile(minimum(a, b), (6, 1))).float()
    assert float(grad(best).sum(0).abs().max()) < 1e-5


def test_training_alone_is_descent() -> None:
    a, b, x0 = problem(1)
    algorithm = DSGD(lr=Exponential(0.1))
    state = train(algorithm, topology(algorithm, 1), a, b, x0, 1)
    np.testing.assert_allclose(algorithm.model(state).numpy(), x0 - 0.1 * a[:, None] * (x0 - b), rtol=1e-5)
