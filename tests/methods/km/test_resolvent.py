"""Resolvents of linear losses: the scalar proximal steps, per record and per node, and what can be clipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from gossamer.methods.km.resolvent import NodeResolvent, RecordResolvent
from gossamer.models.losses import Hinge, Huber, LeastSquares, Logistic, Quantile

LOSSES = [LeastSquares(), Logistic(), Huber(0.7), Hinge(), Quantile(0.2)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


def draw(nodes: int, records: int, p: int, loss: Any, seed: int = 0) -> tuple[torch.Tensor, ...]:
    rng = torch.Generator().manual_seed(seed)
    a, v = (torch.randn(*shape, dtype=torch.float64, generator=rng) for shape in ((nodes, records, p), (nodes, p)))
    y = torch.randn(nodes, records, dtype=torch.float64, generator=rng)
    return a, (y > 0).double() if loss.binary else y, v, torch.ones(nodes, records, dtype=torch.bool)


@every_loss
def test_a_record_moves_as_its_own_proximal_step_does(loss: Any) -> None:
    gamma = 0.4
    a, y, v, mask = draw(2, 3, 4, loss)
    sums, norms = RecordResolvent(loss.implicit_slope, gamma)(v, a, y, mask, torch.ones_like)
    expected = torch.zeros_like(v)
    for i in range(2):
        for b in range(3):
            moved = v[i] - gamma * _proximal_move(loss, a[i, b : b + 1], y[i, b : b + 1], v[i], gamma)
            expected[i] += (v[i] - moved) / gamma
            assert float(norms[i, b]) == pytest.approx(float((v[i] - moved).norm() / gamma), abs=1e-4)
    torch.testing.assert_close(sums, expected, atol=1e-3, rtol=1e-3)


@every_loss
def test_what_a_record_moves_by_does_not_depend_on_the_others(loss: Any) -> None:
    """To the last bit: alone, among others, among records of 10⁸ and such that are not numbers, on one node and two."""
    vector, clip = RecordResolvent(loss.implicit_slope, 0.4), lambda norms: (1 / norms).clamp_max(1)
    a, y, v, mask = draw(2, 37, 33, loss)
    alone, norm = vector(v[:1], a[:1, :1], y[:1, :1], mask[:1, :1], clip)
    others = a.clone()
    others[:, 5:9] *= 1e8
    others[:, 9] = torch.nan
    for x, at in ((a, 0), (a.roll(20, 1), 20), (others, 0), (others.roll(36, 1), 36)):
        labels = y.roll(at, 1)
        only = torch.zeros_like(mask)
        only[0, at] = True
        for nodes in (1, 2):
            given = v[:nodes], x[:nodes], labels[:nodes]
            assert vector(*given, mask[:nodes], clip)[1][0, at] == norm[0, 0]
            assert torch.equal(vector(*given, only[:nodes], clip)[0][0], alone[0])
    lots = vector(v, a, y, mask, clip)[0]
    longer = [torch.cat([part, part], 1) for part in (a, y, mask)]
    longer[2][0, 37:] = False
    assert torch.equal(vector(v, *longer, clip)[0][0], lots[0])


def _proximal_move(loss: Any, a: torch.Tensor, y: torch.Tensor, v: torch.Tensor, gamma: float) -> torch.Tensor:
    """(v − prox)/γ of one record's loss, by minimising over the line of a, where the move lies."""
    found = minimize_scalar(lambda s: _cost(loss, a, y, v, gamma, s * a[0]), bounds=(-20, 20), options={"xatol": 1e-10})
    return torch.tensor(found.x) * a[0]


def _cost(loss: Any, a: torch.Tensor, y: torch.Tensor, v: torch.Tensor, gamma: float, move: torch.Tensor) -> float:
    """What a proximal step of the mean loss minimises, at v − γ·move."""
    point = v - gamma * move
    return float(loss.value(a @ point, y).mean() + (point - v).square().sum() / (2 * gamma))


@every_loss
def test_a_node_takes_the_proximal_step_of_its_mean_loss(loss: Any) -> None:
    """No point that a general minimiser finds, or that lies a little aside, costs less."""
    gamma = 0.8
    a, y, v, mask = draw(2, 6, 4, loss, seed=4)
    part = NodeResolvent(loss.implicit_slope, gamma)
    rng = torch.Generator().manual_seed(1)
    for point in (v, v + 0.1):  # the second search begins where the first ended
        sums, _ = part(point, a, y, mask, torch.ones_like)
        for i in range(2):
            problem = (loss, a[i], y[i], point[i], gamma)
            ours = _cost(*problem, sums[i] / 6)
            found = minimize(lambda m, p=problem: _cost(*p, torch.from_numpy(m)), np.zeros(4), method="Powell")
            assert ours <= found.fun + 1e-9
            for size in (1e-1, 1e-2, 1e-3):
                aside = sums[i] / 6 + size * torch.randn(4, dtype=torch.float64, generator=rng)
                assert ours <= _cost(*problem, aside) + 1e-9


@every_loss
def test_of_a_single_record_both_are_the_same(loss: Any) -> None:
    a, y, v, mask = draw(3, 1, 4, loss)
    (one, _), (other, _) = (
        kind(loss.implicit_slope, 0.6)(v, a, y, mask, torch.ones_like) for kind in (RecordResolvent, NodeResolvent)
    )
    torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)


@settings(max_examples=40, deadline=None)
@given(
    loss=st.sampled_from(LOSSES),
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    bound=st.sampled_from([0.01, 1.0]),
)
def test_one_record_moves_the_sum_by_at_most_the_clip(loss: Any, seed: int, scale: float, bound: float) -> None:
    a, y, v, mask = draw(1, 5, 4, loss, seed)
    part = RecordResolvent(loss.implicit_slope, 0.5)

    def weigh(norms: torch.Tensor) -> torch.Tensor:
        return (bound / norms.clamp_min(1e-30)).clamp_max(1.0)

    a[:, 0] *= scale
    with_it, _ = part(v, a, y, mask, weigh)
    without = mask.clone()
    without[0, 0] = False
    assert float((with_it - part(v, a, y, without, weigh)[0]).norm()) <= bound * (1 + 1e-9)


def test_records_that_are_not_finite_or_masked_count_for_nothing() -> None:
    a, y, v, mask = draw(2, 4, 3, LeastSquares())
    part = RecordResolvent(LeastSquares().implicit_slope, 0.5)
    mask[0, 1] = False
    expected, _ = part(v, a, y, mask, torch.ones_like)
    a[0, 1], y[0, 1] = float("nan"), float("inf")
    torch.testing.assert_close(part(v, a, y, mask, torch.ones_like)[0], expected)
    mask[0, 1] = True
    torch.testing.assert_close(part(v, a, y, mask, torch.ones_like)[0], expected)


@pytest.mark.parametrize(
    ("a", "y", "at"), [(1e-25, 1e30, 0.0), (1e-23, 3e38, 0.0), (1.0, 1.0, 1e21), (3e20, 1.0, 1e21)]
)
def test_no_record_passes_the_clip_by_underflow_or_overflow(a: float, y: float, at: float) -> None:
    """In single precision the square of a tiny record is 0, and its norm would look like 0 whatever its target is."""
    part = RecordResolvent(LeastSquares().implicit_slope, 0.3)
    sums, _ = part(
        torch.full((1, 3), at),
        torch.full((1, 1, 3), a),
        torch.full((1, 1), y),
        torch.ones(1, 1, dtype=torch.bool),
        lambda norms: (1 / norms.clamp_min(1e-300)).clamp_max(1.0),
    )
    assert bool(sums.isfinite().all())
    assert float(sums.double().norm()) <= 1 + 1e-6
