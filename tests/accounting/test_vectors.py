"""Vectors of noised numbers: what is priced for all of them together is no less than the exact profile."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gossamer.accounting import releases
from gossamer.accounting.gaussian import gdp_epsilon
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Gaussian, Release
from gossamer.accounting.vectors import concentrated_epsilon


def release(kind: str, sigma: float, dimensions: int, **constants: float) -> Release:
    return releases.release(
        kind, sigma=sigma, sensitivity=1.0, sampling="full", rate=1.0, adjacency="add-remove",
        pass_number=None, dimensions=dimensions, **constants,
    )  # fmt: skip


def test_a_truncated_gaussian_vector_costs_the_gaussian_and_what_was_cut() -> None:
    """Never below the Gaussian it comes from, close to it where little is cut, and ∞ where too much is."""
    plain = gdp_epsilon(math.sqrt(50) / 30, 1e-3)
    figures = [
        proven([(release("truncated-gaussian", 30.0, 20, bound=30.0 * far), 50)], 1e-3, "add-remove").epsilon
        for far in (4.2, 4.6, 5.2, 8.0)
    ]
    assert plain <= figures[3] < figures[2] < figures[1] < figures[0] < 1.6 * plain
    assert figures[3] == pytest.approx(plain, rel=1e-6)
    narrow = proven([(release("truncated-gaussian", 30.0, 20, bound=60.0), 50)], 1e-3, "add-remove")
    assert math.isinf(narrow.epsilon)


def test_sampled_truncated_vectors_are_priced_by_the_mass_that_was_cut() -> None:
    sampled = replace(release("truncated-gaussian", 4.0, 5, bound=24.0), sampling="poisson", rate=0.1)
    plain = Gaussian(sigma=4.0, sensitivity=1.0, sampling="poisson", rate=0.1, adjacency="add-remove")
    upper, gaussian = (proven([(kind, 50)], 1e-3, "add-remove").epsilon for kind in (sampled, plain))
    assert gaussian * 0.99 < upper < 1.02 * gaussian


def test_the_bound_for_truncated_vectors_holds_against_the_exact_profile() -> None:
    """Two numbers of 30 releases, moved together or one of them alone: what is so must cost no more than proven."""
    from gossamer.accounting.profiles import composed_delta, gaussian, laplace

    cases = [
        ("truncated-gaussian", gaussian(9.0, 36.0), {"bound": 36.0}), ("laplace", laplace(9.0), {}),
        ("truncated-gaussian", gaussian(9.0, 48.0), {"bound": 48.0}),
        ("truncated-laplace", laplace(9.0, 110.0), {"bound": 110.0}),
    ]  # fmt: skip
    for mechanism, noise, parts in cases:
        upper = proven([(release(mechanism, 9.0, 2, **parts), 30)], 1e-3, "add-remove").epsilon
        assert math.isfinite(upper)
        for moves in ([math.sqrt(0.5)] * 60, [1.0] * 30):
            assert composed_delta(noise, moves, upper) <= 1e-3 * (1 + 1e-6)


def test_concentrated_epsilon_is_above_the_exact_gaussian_and_not_by_much() -> None:
    for mu in (0.05, 0.3, 1.0, 3.0):
        exact, found = gdp_epsilon(mu, 1e-4), concentrated_epsilon(mu**2 / 2, 1e-4)
        assert exact <= found < 1.2 * exact + 1e-3
