"""What is seen of a node: against a simulation of all messages, and where simpler formulas go wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from tests.support.windows import exchanges_of, with_secrets

from gossamer.accounting.network import (
    Exchanges,
    Floats,
    squared_gains,
    squared_outsider,
    squared_view,
    views_of_alike_noise,
    views_of_any_noise,
    views_of_own_noise,
)
from gossamer.accounting.profiles import gdp_delta

SAMPLES = st.tuples(st.integers(2, 8), st.integers(0, 10**6))


def messages(exchanges: Exchanges, mean: int, members: Sequence[int]) -> Floats:
    """All that members hear and what they hold themselves, by playing the exchanges on unit vectors."""
    n, order = exchanges.nodes, exchanges.orders[mean]
    windows = {1: np.eye(n)[order]}
    total, length, heard = windows[1], 1, []

    def move(rows: Floats, offset: int) -> Floats:
        moved = np.roll(rows, offset, axis=0)
        heard.extend(moved[p] for p in range(n) if order[p] in members)
        return moved

    while 2 * length <= n:
        total = total + move(total, length)
        length *= 2
        windows[length] = total
    for bit in range(length.bit_length() - 2, -1, -1):
        if n >> bit & 1:
            total = total + move(windows[1 << bit], length)
            length += 1 << bit
    assert (total == 1).all()
    return np.array([*heard, *np.eye(n)[list(members)]])


def brute_force(
    exchanges: Exchanges, members: Sequence[int], ratio: float = 0.0, deviations: Floats | None = None
) -> Floats:
    """All random variables stacked: own noises and, with `ratio`, a mask for every pair; members know theirs."""
    n = exchanges.nodes
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)] if ratio else []
    noise = np.zeros((n, n + len(pairs)))
    noise[:, :n] = np.diag(np.ones(n) if deviations is None else deviations)
    known = [np.eye(n + len(pairs))[q] for q in members]
    for k, (i, j) in enumerate(pairs):
        noise[i, n + k], noise[j, n + k] = np.sqrt(ratio), -np.sqrt(ratio)
        if i in members or j in members:
            known.append(np.eye(n + len(pairs))[n + k])
    seen = messages(exchanges, 0, members)
    latent = np.array([*(seen @ noise), *known])
    precision = np.linalg.pinv(latent @ latent.T, rcond=1e-12, hermitian=True)
    found = np.full(n, np.nan)
    for u in set(range(n)) - set(members):
        shift = np.concatenate([seen[:, u], np.zeros(len(known))])
        found[u] = shift @ precision @ shift * (1.0 if deviations is None else deviations[u] ** 2)
    return found


def coalition(n: int, seed: int) -> list[int]:
    rng = np.random.default_rng(seed)
    return sorted(rng.choice(n, size=rng.integers(1, n), replace=False).tolist())


@settings(deadline=None, max_examples=80)
@given(sample=SAMPLES, ratio=st.sampled_from([0.0, 0.3, 10.0]))
def test_coalitions_see_what_a_simulation_of_all_messages_shows(sample: tuple[int, int], ratio: float) -> None:
    exchanges, members = exchanges_of(*sample), coalition(*sample)
    covariance = with_secrets(ratio) if ratio else None
    found = squared_view(exchanges, 0, members, covariance)
    np.testing.assert_allclose(found, brute_force(exchanges, members, ratio), rtol=1e-7, atol=1e-9)


@settings(deadline=None, max_examples=40)
@given(sample=SAMPLES)
def test_single_nodes_see_the_same_by_all_ways(sample: tuple[int, int]) -> None:
    exchanges, (n, seed) = exchanges_of(*sample), sample
    deviations = np.random.default_rng(seed).uniform(0.2, 3.0, (1, n))
    whole = np.stack([brute_force(exchanges, [v], deviations=deviations[0]) for v in range(n)])
    np.testing.assert_allclose(views_of_own_noise(exchanges, deviations)(0), whole, rtol=1e-8)
    direct = views_of_any_noise(exchanges, None, deviations)
    np.testing.assert_allclose(direct(0), whole, rtol=1e-8)
    equal = np.stack([brute_force(exchanges, [v]) for v in range(n)])
    np.testing.assert_allclose(views_of_alike_noise(exchanges)(0), equal, rtol=1e-8)
    np.testing.assert_allclose(views_of_own_noise(exchanges, np.ones((1, n)))(0), equal, rtol=1e-8)
    masked = np.stack([brute_force(exchanges, [v], 5.0) for v in range(n)])
    np.testing.assert_allclose(views_of_alike_noise(exchanges, with_secrets(5.0))(0), masked, rtol=1e-7)


@settings(deadline=None, max_examples=40)
@given(sample=SAMPLES)
def test_together_nobody_sees_less_than_alone_and_never_more_than_everyone(sample: tuple[int, int]) -> None:
    exchanges, members = exchanges_of(*sample), coalition(*sample)
    joint = squared_view(exchanges, 0, members)
    honest = ~np.isnan(joint)
    assert (joint[honest] <= 1 + 1e-9).all()
    fewer = members[:-1]
    if fewer:
        assert (squared_view(exchanges, 0, fewer)[honest] <= joint[honest] + 1e-9).all()
    for v in members:
        assert (squared_view(exchanges, 0, [v])[honest] <= joint[honest] + 1e-9).all()
    assert (
        squared_outsider(np.ones((1, exchanges.nodes)))[0, honest]
        <= squared_view(exchanges, 0, [members[0]])[honest] + 1e-9
    ).all()


def test_a_coalition_of_all_others_sees_everything_and_one_node_a_window() -> None:
    exchanges = exchanges_of(8, 0)
    assert squared_view(exchanges, 0, [0, 1, 2, 3, 4, 5, 6])[7] == pytest.approx(1.0)
    order = exchanges.orders[0]
    seen = squared_view(exchanges, 0, [int(order[0])])[order]
    np.testing.assert_allclose(seen[1:], [1 / 4, 1 / 4, 1 / 4, 1 / 4, 1 / 2, 1 / 2, 1])


def test_who_adds_nothing_hides_nobody() -> None:
    """A node out of budget has no noise: the others in its window are seen the better, and of it there is nothing."""
    exchanges = exchanges_of(8, 3, means=2)
    deviations = np.ones((2, 8))
    deviations[1, 5] = 0.0
    view = views_of_own_noise(exchanges, deviations)
    np.testing.assert_allclose(view(0), views_of_alike_noise(exchanges)(0), rtol=1e-12)
    direct = views_of_any_noise(exchanges, None, deviations)
    np.testing.assert_allclose(view(1), direct(1), rtol=1e-12)
    assert np.nanmax(view(1)[:, 5]) == 0.0
    np.testing.assert_allclose(squared_outsider(deviations)[:, [0, 5]], [[1 / 8, 1 / 8], [1 / 7, 0.0]])


def test_outsiders_see_masks_cancel_and_different_lots_weigh() -> None:
    covariance = with_secrets(100.0)
    np.testing.assert_allclose(squared_outsider(np.ones((1, 20)), covariance), np.full((1, 20), 1 / 20))
    deviations = np.array([[1.0, 2.0, 2.0]])
    np.testing.assert_allclose(squared_outsider(deviations), [[1 / 9, 4 / 9, 4 / 9]])


def test_forms_that_depend_on_each_other_count_once() -> None:
    B = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    np.testing.assert_allclose(squared_gains(B, np.eye(3)), [0.5, 0.5, 1.0])
    np.testing.assert_array_equal(squared_gains(np.zeros((0, 2)), np.eye(2)), [0.0, 0.0])


def test_adding_up_single_views_is_no_bound() -> None:
    """Path u–w–v, one release each, then two rounds of gossip with weights ⅓: v hears w's value, then w's mixture.

    The mixture alone shows ⅓ of the squared μ, w's first message nothing; together with v's own value they are u's
    release itself.
    """
    W = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3
    first, second = np.eye(3)[1], W[1]
    single = [form[0] ** 2 / (form @ form) for form in (first, second)]
    assert sum(single) == pytest.approx(0.333, abs=5e-4)
    own = np.eye(3)[2]
    joint = squared_gains(np.array([first, second, own]), np.eye(3))[0]
    assert joint == pytest.approx(1.0)


def test_linear_accounting_is_no_bound_where_a_relay_computes_at_a_point_that_is_not_seen() -> None:
    """Path u–w–v, noise 1, clip 1: w takes its gradient, which is bounded by 1, at u's release y, and sends y/3 + g(y) + z.

    As a linear form of releases v sees s/3 under noise of variance 1/9 + 1. But where g is sign(y − ½), it carries y too.
    """
    spacing = 2e-3
    y, seen = np.arange(-8.0, 9.0, spacing), np.arange(-9.0, 9.0, 2e-2)

    def density(s: float) -> Floats:
        centre = y / 3 + np.sign(y - 0.5)
        weights = np.exp(-((y - s) ** 2) / 2) / np.sqrt(2 * np.pi) * spacing
        return np.exp(-((seen[:, None] - centre) ** 2) / 2) @ weights / np.sqrt(2 * np.pi)

    with_record, without = density(1.0), density(0.0)
    assert without.sum() * 2e-2 == pytest.approx(1.0, abs=1e-6)
    true = float(np.maximum(with_record - np.e * without, 0).sum() * 2e-2)
    linear = gdp_delta((1 / 3) / np.sqrt(1 / 9 + 1), 1.0)
    assert linear == pytest.approx(1.1e-4, rel=0.02)
    assert true == pytest.approx(3.8e-3, rel=0.02)
    assert true <= float(ndtr(-0.5) - np.e * ndtr(-1.5))  # everyone's figure, which holds whatever w does
