"""DP-dKM's bounds, held against what they bound; where the paper prints something else, that it fails."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.support.refusals import expect_refusal

from gossamer.methods.claims import km_sensitivity
from gossamer.topology.kinds import build
from reproductions.bounds.km import composition, finite_sample, generalisation, mixed_noise


def test_generalisation_as_printed_is_beaten_by_a_mechanism_that_publishes_with_probability_delta() -> None:
    """With probability δ a (0, δ)-private learner publishes its records; then losses of size R tell them from others."""
    delta, R, nodes = 0.01, 50.0, 5
    overfit = delta * R  # a hypothesis with loss 0 on the published records and R elsewhere
    budget = {"epsilon": 0.0, "delta": delta, "nodes": nodes, "largest_loss": R}
    assert generalisation(**budget, printed=True) < overfit <= generalisation(**budget)
    for loss in (1.0, 7.0):  # in another unit both sides change alike
        scaled = generalisation(epsilon=0.3, delta=0.01, nodes=3, largest_loss=loss)
        assert scaled == pytest.approx(loss * generalisation(epsilon=0.3, delta=0.01, nodes=3, largest_loss=1.0))


def test_finite_sample_is_markovs_inequality_and_idle_with_one_symbol_for_two_things() -> None:
    found = finite_sample(deviation=2.0, epsilon=0.1, delta=1e-5, nodes=5, largest_loss=1.0)
    gap = generalisation(epsilon=0.1, delta=1e-5, nodes=5, largest_loss=1.0)
    assert found == pytest.approx((2 - gap) / 3)
    for epsilon in (0.1, 0.5, 1.0):
        same = finite_sample(deviation=epsilon, epsilon=epsilon, delta=1e-3, nodes=5, largest_loss=1.0, printed=True)
        assert same < epsilon**2 / 2 / (epsilon + 1)
    assert finite_sample(deviation=0.5, epsilon=0.5, delta=1e-3, nodes=5, largest_loss=10.0) == 0


@pytest.mark.parametrize("graph", ["ring", "star", "complete"])
def test_mixed_noise_bounds_what_mixing_leaves_and_as_printed_not_the_mean(graph: str) -> None:
    topology = build(graph, nodes=8, weights="doubly", seed=0)
    W = topology.weights(0).toarray()
    mixing = float(np.sort(np.abs(np.linalg.eigvalsh(W)))[-2])
    rng = np.random.default_rng(0)
    for mean in (0.0, 0.7):
        noise = rng.normal(mean, 1.3, size=(4000, 8, 6))
        seen = np.square(W @ noise).sum((1, 2)).mean()
        bound = {"dim": 6, "sigma": 1.3, "nodes": 8, "mixing": mixing, "mean": mean}
        assert seen < 1.03 * mixed_noise(**bound)
        assert (seen > 1.05 * mixed_noise(**bound, printed=True)) == (mean > 0 and graph == "complete")


def test_sensitivity_is_an_expectation_and_the_worst_case_is_larger() -> None:
    """One step on a complete graph: the record that differs is drawn or not; if it is, the mean moves by 2αB/M."""
    B, alpha, N, M = 1.0, 0.5, 100, 5
    bound = km_sensitivity(B, [alpha], N, M, 0.0)
    worst = 2 * alpha * B / M
    assert bound == pytest.approx(worst / N)  # its mean over the draw, a hundredth of what may happen
    # over a run the second term takes over, larger than all a bounded residual can move a node in that time
    long = km_sensitivity(B, [alpha] * 200, N, M, 0.5)
    assert long > 4 * (200 * alpha * B)


def test_composition_asks_more_than_a_record_on_one_node_costs() -> None:
    """Theorem 4 adds up the nodes, though a record sits on one of them: all together cost what that one costs."""
    epsilon, delta = composition([0.5] * 5, [1e-3] * 5, slack=1e-3)
    assert epsilon == pytest.approx(2.5)  # the plain sum
    part = 1e-3 / (1 + math.exp(0.5))
    assert delta == pytest.approx(2 - (1 - math.exp(-0.5) * part) ** 5 - (1 - part) ** 5)
    many, none = composition([0.01] * 10000, [0.0] * 10000, 1e-5)
    assert many < 100 * 0.1
    assert none == 0


def test_mistakes() -> None:
    with expect_refusal(key="deviation", value="0.0"):
        finite_sample(deviation=0.0, epsilon=1.0, delta=1e-3, nodes=5, largest_loss=1.0)
    with expect_refusal(key="epsilon", value="1.0", remedy=True):
        generalisation(epsilon=1.0, delta=2.0, nodes=5, largest_loss=1.0)
    with expect_refusal(key="mixing", value="1.5"):
        mixed_noise(dim=2, sigma=1.0, nodes=3, mixing=1.5)
