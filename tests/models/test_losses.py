"""Losses of linear models: slopes, proximal points and curvatures."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.support.refusals import expect_refusal

from gossamer.models.losses import (
    Hinge,
    Huber,
    LeastSquares,
    LinearLoss,
    Logistic,
    Poisson,
    Quantile,
    Squared,
    losses,
)

LOSSES = [LeastSquares(), Logistic(), Huber(0.7), Hinge(), Quantile(0.2)]


every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)


@every_loss
@pytest.mark.parametrize("c", [0.01, 1.0, 50.0])
def test_the_implicit_slope_is_that_of_the_proximal_point(loss: Any, c: float) -> None:
    """Against the minimum of c l(u) + ½ (u − t)² on a fine grid."""
    grid = torch.linspace(-60, 60, 600_001, dtype=torch.float64)
    for t in (-3.0, -0.4, 0.0, 0.9, 5.0):
        for y in (0.0, 1.0):
            label = torch.tensor(y, dtype=torch.float64)
            best = grid[(c * loss.value(grid, label) + 0.5 * (grid - t).square()).argmin()]
            slope = loss.implicit_slope(
                torch.tensor(t, dtype=torch.float64), label, torch.tensor(c, dtype=torch.float64)
            )
            assert t - c * float(slope) == pytest.approx(float(best), abs=2e-4)


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("hing", {}, "loss.kind hing hinge"),
        ("huber", {"delta": -1.0}, "loss.delta -1.0"),
        ("quantile", {"tau": 1.0}, "loss.tau"),
        ("hinge", {"tau": 1}, "loss.tau"),
    ],
)
def test_mistakes(kind: str, options: dict[str, Any], says: str) -> None:
    with expect_refusal(names=says):
        losses.parse({"kind": kind, **options})


@every_loss
def test_the_curvature_is_the_steepest_slope_of_the_slope(loss: Any) -> None:
    t, step = torch.linspace(-6, 6, 24_001, dtype=torch.float64, requires_grad=True), 12 / 24_000
    for label in (0.0, 1.0):
        (slopes,) = torch.autograd.grad(loss.value(t, torch.full_like(t, label)).sum(), t)
        steepest = float(slopes.diff().div(step).max())
        if math.isinf(loss.curvature):
            assert steepest > 1000  # a kink between two points of the grid
        else:
            assert steepest == pytest.approx(loss.curvature, rel=1e-3)
        assert bool((slopes.diff() >= -1e-12).all())  # convex


def test_every_registered_loss_of_linear_models_keeps_the_protocol() -> None:
    linear = {name for name, kind in losses.kinds.items() if isinstance(kind(), LinearLoss)}
    assert linear == {"least-squares", "logistic", "huber", "hinge", "quantile"}
    assert set(losses.kinds) - linear == {"cross-entropy", "squared", "poisson"}


def test_losses_of_networks_are_torchs_own() -> None:
    t, y = torch.linspace(-3, 3, 12), torch.arange(12.0) % 4
    torch.testing.assert_close(
        Poisson().value(t, y), torch.nn.functional.poisson_nll_loss(t, y, log_input=True, reduction="none")
    )
    outputs, wanted = t.view(4, 3), (y.view(4, 3) > 1).float()
    bce = torch.nn.functional.binary_cross_entropy(outputs.sigmoid(), wanted, reduction="none").sum(1)
    torch.testing.assert_close(Logistic().of_each(outputs, wanted), bce)
    torch.testing.assert_close(Squared().of_each(outputs, wanted), 0.5 * (outputs - wanted).square().sum(1))


def test_the_logistic_root_is_found_far_out() -> None:
    """s = σ(t − c s) − y also where Newton's method alone would leave its bracket."""
    t = torch.tensor([-800.0, -30.0, 0.0, 30.0, 800.0], dtype=torch.float64)
    for c in (1e-8, 1.0, 1e6):
        for label in (0.0, 1.0):
            y = torch.full_like(t, label)
            s = Logistic().implicit_slope(t, y, torch.full_like(t, c))
            torch.testing.assert_close(s, torch.sigmoid(t - c * s) - y, atol=1e-9 * max(1.0, c), rtol=0)
