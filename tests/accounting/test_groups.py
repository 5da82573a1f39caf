from __future__ import annotations

import math

import pytest

from gossamer.accounting.profiles import gdp_epsilon
from gossamer.accounting.proven import proven
from gossamer.accounting.recompute import group_epsilons
from gossamer.accounting.releases import Gaussian, Release, Unnoised


def gaussian(sigma: float, rate: float = 1.0, adjacency: str = "add-remove") -> Release:
    sampling = "full" if rate == 1 else "poisson"
    return Gaussian(sigma=sigma, sensitivity=1.0, sampling=sampling, rate=rate, adjacency=adjacency)


@pytest.mark.parametrize("k", [2, 5, 20])
def test_full_gaussians_move_k_times_as_far(k: int) -> None:
    releases = [gaussian(8.0)] * 3 + [gaussian(16.0)]
    mu = math.sqrt(3 / 64 + 1 / 256)
    assert group_epsilons([releases], 1e-5, "add-remove")[k] == pytest.approx(gdp_epsilon(k * mu, 1e-5))


def test_the_worst_node_counts() -> None:
    quiet, loud = [gaussian(20.0)], [gaussian(5.0)]
    assert group_epsilons([quiet, loud], 1e-5, "add-remove") == group_epsilons([loud], 1e-5, "add-remove")


def test_sampled_releases_by_the_chain_of_single_moves() -> None:
    """ε_k / k is some ε₁ of the curve, at a δ₁ of which the k moves need no more than δ; and it is not below one move."""
    releases, delta = [gaussian(3.0, rate=0.1)] * 30, 1e-5
    found = group_epsilons([releases], delta, "add-remove", sizes=(1, 2, 5))
    assert found[1] == pytest.approx(proven(releases, delta, "add-remove").epsilon, rel=0.02)
    for k in (2, 5):
        one = found[k] / k
        needed = delta * math.expm1(one) / math.expm1(k * one)
        assert proven(releases, needed, "add-remove").epsilon <= one * (1 + 1e-3)
        assert found[k] > k * found[1]


def test_k_records_that_are_always_sampled_together_cost_no_less_than_full_lots_say() -> None:
    """At a rate near 1 the chain's bound cannot be below the closed form, which is exact."""
    delta = 1e-5
    chain = group_epsilons([[gaussian(6.0, rate=0.999)] * 4], delta, "add-remove", sizes=(2,))[2]
    assert chain >= gdp_epsilon(2 * math.sqrt(4) / 6, delta) * 0.98


def test_nothing_is_said_of_what_has_no_price() -> None:
    bare = Unnoised(sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove")
    assert set(group_epsilons([[bare]], 1e-5, "add-remove").values()) == {math.inf}
    assert set(group_epsilons([[]], 1e-5, "add-remove").values()) == {0.0}
    assert group_epsilons([[gaussian(0.2, rate=0.5)] * 50], 1e-5, "add-remove")[20] == math.inf
