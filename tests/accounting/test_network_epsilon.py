"""ε by observer: the figures of a network, and that every short cut is an upper bound of the long way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.refusals import expect_refusal
from tests.support.windows import exchanges_of, with_secrets

from gossamer.accounting.network import (
    Exchanges,
    epsilon_by_node,
    epsilon_by_pair,
    epsilon_of_coalition,
    seen_as,
    squared_outsider,
    views_of_alike_noise,
    views_of_own_noise,
)
from gossamer.accounting.profiles import gdp_epsilon, gdp_mu
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Event, Gaussian, Laplace, Release
from gossamer.topology.exact import Windows, orders

DELTA, K, LOCAL = 1e-5, 100, 6.57


def one(sigma: float, **changes: Any) -> Gaussian:
    common = {"sensitivity": 1.0, "sampling": "full", "rate": 1.0, "adjacency": "add-remove"}
    return Gaussian(sigma=sigma, **{**common, **changes})  # type: ignore[arg-type]


def planned(n: int, seed: int = 0) -> tuple[Exchanges, list[list[Release]]]:
    """K rounds of full lots whose ε against everyone is `LOCAL`."""
    history: list[Release] = [one(K**0.5 / gdp_mu(LOCAL, DELTA))] * K
    return Exchanges(n, Windows(n).steps, orders(n, seed, 0, K)), [history] * n


@pytest.mark.parametrize(("n", "pair", "outsider"), [(8, 4.55, 1.99), (20, 3.6, 1.20), (128, 1.95, 0.43)])
def test_the_worst_pair_and_an_outsider(n: int, pair: float, outsider: float) -> None:
    exchanges, histories = planned(n)
    found = epsilon_by_pair(exchanges, views_of_alike_noise(exchanges), histories, DELTA, "add-remove")
    assert np.isnan(np.diag(found)).all()
    assert np.nanmax(found) <= pair
    assert np.nanmean(found) < LOCAL
    outside = epsilon_by_node(squared_outsider(np.ones((K, n))), histories, DELTA, "add-remove")
    assert outside.max() == outside.min() == pytest.approx(outsider, abs=0.01)
    assert np.nanmin(found) > outside.max()


@pytest.mark.slow
def test_the_worst_pair_of_a_thousand_nodes() -> None:
    exchanges, histories = planned(1024)
    found = epsilon_by_pair(exchanges, views_of_alike_noise(exchanges), histories, DELTA, "add-remove")
    assert np.nanmax(found) <= 1.3


def test_without_new_places_the_node_behind_sees_everything() -> None:
    _, histories = planned(8)
    still = Exchanges(8, Windows(8).steps, np.tile(np.arange(8), (K, 1)))
    found = epsilon_by_pair(still, views_of_alike_noise(still), histories, DELTA, "add-remove")
    assert found[1, 0] == pytest.approx(LOCAL, rel=1e-3)


def test_coalitions_cost_more_and_all_but_one_cost_everything() -> None:
    exchanges, histories = planned(8)
    alone = epsilon_by_pair(exchanges, views_of_alike_noise(exchanges), histories, DELTA, "add-remove")
    members: list[int] = []
    before = np.zeros(8)
    for q in range(7):
        members.append(q)
        found = epsilon_of_coalition(exchanges, members, histories, DELTA, "add-remove")
        assert np.isnan(found[members]).all()
        assert (found[q + 1 :] >= before[q + 1 :] - 1e-6).all()
        assert (found[q + 1 :] >= alone[q, q + 1 :] * (1 - 1e-4)).all()
        before = found
    assert before[7] == pytest.approx(LOCAL, rel=1e-4)


def test_masks_of_pairs_leave_an_outsider_the_mean_and_protect_against_a_node() -> None:
    """In units of the noise that stays: what everyone sees with q = 1 is a bound on what one node sees."""
    exchanges, histories = planned(8)
    ratio = 10.0
    view = views_of_alike_noise(exchanges, with_secrets(ratio))
    found = epsilon_by_pair(exchanges, view, histories, DELTA, "add-remove")
    everyone = np.linalg.inv(with_secrets(ratio)(0, np.arange(7)))[0, 0]
    assert np.nanmax(found) <= gdp_epsilon(gdp_mu(LOCAL, DELTA) * np.sqrt(everyone), DELTA) * (1 + 1e-4)
    direct = epsilon_of_coalition(exchanges, [2], histories, DELTA, "add-remove", with_secrets(ratio))
    np.testing.assert_allclose(found[2], direct, rtol=1e-4)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_sampled_lots_of_all_pairs_are_those_of_every_single_node(adjacency: str) -> None:
    means, n = 12, 4
    exchanges = exchanges_of(n, 1, means)
    history = [one(1.0 + 0.5 * (k % 2), sampling="poisson", rate=0.2, adjacency=adjacency) for k in range(means)]
    found = epsilon_by_pair(exchanges, views_of_alike_noise(exchanges), [history] * n, DELTA, adjacency)
    local = proven(history, DELTA, adjacency).epsilon
    for v in range(2):
        exact = epsilon_of_coalition(exchanges, [v], [history] * n, DELTA, adjacency)
        others = [u for u in range(n) if u != v]
        np.testing.assert_allclose(found[v, others], exact[others], rtol=1e-3)
        assert (exact[others] < local).all()


def test_a_node_that_stops_early_costs_less() -> None:
    exchanges, histories = planned(8)
    short = [*histories[:-1], histories[-1][:25]]
    deviations = np.ones((K, 8))
    deviations[25:, 7] = 0.0
    found = epsilon_by_pair(exchanges, views_of_own_noise(exchanges, deviations), short, DELTA, "add-remove")
    assert np.nanmax(found[:, 7]) < np.nanmin(found[:, :7])


def test_events_belong_to_the_mean_of_their_step() -> None:
    """A ledger with a gap: draws that a stop lost, or that others alone took part in."""
    exchanges, _ = planned(8)
    release = one(3.0)
    late = [Event(step, release) for step in (0, 40, 41)]
    found = epsilon_by_pair(exchanges, views_of_alike_noise(exchanges), [late] * 8, DELTA, "add-remove")
    squares = sum(views_of_alike_noise(exchanges)(k) for k in (0, 40, 41)) / 9
    assert found[1, 0] == pytest.approx(gdp_epsilon(float(np.sqrt(squares[1, 0])), DELTA), rel=1e-3)  # type: ignore[index]
    by_node = epsilon_of_coalition(exchanges, [1], [late] * 8, DELTA, "add-remove")
    np.testing.assert_allclose(by_node, found[1], rtol=1e-3)
    outside = epsilon_by_node(squared_outsider(np.ones((K, 8))), [late] * 8, DELTA, "add-remove")
    assert outside[0] == pytest.approx(gdp_epsilon(np.sqrt(3 / 9 / 8), DELTA), rel=1e-3)
    with pytest.raises(ValueError, match=r"in mean 41, .* 100 means"):
        epsilon_by_pair(
            exchanges, views_of_alike_noise(exchanges), [[*late, Event(41, release)]] * 8, DELTA, "add-remove"
        )


def test_what_cannot_be_whitened_or_does_not_fit_is_refused() -> None:
    exchanges, histories = planned(8)
    laplace = Laplace(sensitivity=1.0, sigma=1.0, sampling="full", rate=1.0, adjacency="add-remove")
    with expect_refusal(key="releases", names="laplace"):
        seen_as(laplace, 0.5)
    with expect_refusal(key="network", names="noise"):
        epsilon_by_pair(exchanges, views_of_alike_noise(exchanges), [[one(0.0)]] * 8, DELTA, "add-remove")
    with pytest.raises(ValueError, match=r"101 releases, the last in mean 100, .* 100 means"):
        epsilon_by_pair(
            exchanges, views_of_alike_noise(exchanges), [[*histories[0], one(1.0)]] * 8, DELTA, "add-remove"
        )
    assert seen_as(one(2.0), 0.0) is None
    assert seen_as(one(2.0), 1.0) == one(2.0)
    half = seen_as(one(2.0), 0.5)
    assert half is not None
    assert 4.0 * (1 - 1.1e-5) <= half.sigma <= 4.0
