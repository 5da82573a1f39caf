"""ε of one node against another, of a coalition and of an outsider, from the releases and what is seen of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gossamer.accounting.gaussian import gdp_epsilon
from gossamer.accounting.network import Covariance, Exchanges, Floats, Views, squared_view
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Event, Gaussian, Release, collate
from gossamer.errors import UserError

# Of one node: an event's step is the number of the mean that it went into; of releases alone, their places are.
History = Sequence[Event | Release]
DIGITS = 1e-5  # shares of μ are rounded up by at most this, so that equal ones are seen to be equal
AT_ONCE = 1 << 24  # numbers of all rounds held at a time
BUCKETS = 24  # of sampled lots, so many different histories are composed; others by one that dominates them


def epsilon_by_pair(views: Views, histories: Sequence[History], delta: float, adjacency: str) -> Floats:
    """(nodes, nodes): [v, u] is the ε of u's records against what node v sees; NaN where v is u.

    Full lots in closed form. Sampled lots by composition: pairs that see about as much share the figure of a history
    that is no better protected than any of theirs, in every round.
    """
    n = views.exchanges.nodes
    # Nodes that did the same mostly share one list: it is looked at once.
    read = {id(history): _placed(history, views.exchanges.means) for history in histories}
    releases = {one: _gaussian(one) for own in read.values() for one in own.values()}
    plain = all(one.amplifying_rate == 1 and not one.in_passes for one in releases)
    weights = np.zeros((views.exchanges.means, n))
    squares = {one: _squared_mu(gaussian, adjacency) for one, gaussian in releases.items()}
    for u, history in enumerate(histories):
        for k, one in read[id(history)].items():
            weights[k, u] = squares[one]
    total = np.zeros((n, n))
    everyone = np.arange(n)
    for k in range(views.exchanges.means):
        total += views.squared(k, everyone) * weights[k][None, :]
    if plain:
        return _closed_form(total, delta)
    return _by_buckets(views, total, weights, list(releases.values()), delta, adjacency)


def epsilon_of_coalition(
    exchanges: Exchanges,
    members: Sequence[int],
    histories: Sequence[History],
    delta: float,
    adjacency: str,
    covariance: Covariance | None = None,
    units: Floats | None = None,
) -> Floats:
    """(nodes,): ε of every node's records against all that the members see together; NaN of the members."""
    seen = np.stack([squared_view(exchanges, k, members, covariance, units) for k in range(exchanges.means)])
    return _by_node(seen, histories, delta, adjacency)


def epsilon_of_outsider(
    squared: Floats, histories: Sequence[History], delta: float, adjacency: str
) -> Floats:
    """(nodes,): ε of every node's records against who sees the means, and with them all models.

    `squared`: (1, nodes) or (means, nodes), the share of the stated squared μ that a mean shows: `squared_outsider`.
    """
    last = max(max(_placed(history), default=0) for history in histories)
    rows = np.broadcast_to(squared, (last + 1, len(histories))) if len(squared) == 1 else squared
    return _by_node(rows, histories, delta, adjacency)


def seen_as(release: Release, share: float) -> Gaussian | None:
    """What a release is to who sees only this share of its μ; None if nothing."""
    # By its kind: a class that builds on this one may state another noise than each node's own.
    if not isinstance(release, Gaussian) or release.kind != "gaussian":
        raise UserError(
            f"releases of kind {release.kind!r} have no network view, which whitens Gaussian noise; use "
            "privacy.noise.family.kind = 'gaussian'."
        )
    if share == 1:
        return release
    return replace(release, sigma=release.sigma / float(_up(np.array(share)))) if share > 0 else None


def _by_node(squared: Floats, histories: Sequence[History], delta: float, adjacency: str) -> Floats:
    priced: dict[tuple[tuple[Release, int], ...], float] = {}
    same: dict[tuple[int, bytes], float] = {}
    found = np.full(len(histories), np.nan)
    for u, history in enumerate(histories):
        alike = id(history), squared[:, u].tobytes()
        if alike in same:
            found[u] = same[alike]
        if alike in same or np.isnan(squared[:, u]).any():
            continue
        shares = np.sqrt(squared[:, u]).tolist()
        placed = _placed(history, len(squared))
        shown = [part for k, one in placed.items() if (part := seen_as(one, shares[k])) is not None]
        # In any order: rounds add up, and nodes with the same shares in other rounds cost the same.
        key = tuple(sorted(collate(shown), key=repr))
        if key not in priced:
            priced[key] = proven(key, delta, adjacency).epsilon
        found[u] = same[alike] = priced[key]
    return found


def _placed(history: History, means: int | None = None) -> dict[int, Release]:
    """The releases by the mean that each went into."""
    placed = {
        (one.draw if isinstance(one, Event) else k): (one.release if isinstance(one, Event) else one)
        for k, one in enumerate(history)
    }
    if len(placed) < len(history) or (means is not None and max(placed, default=0) >= max(means, 1)):
        raise ValueError(
            f"{len(history)} releases, the last in mean {max(placed)}, do not go into {means} means"
        )
    return placed


def _gaussian(release: Release) -> Gaussian:
    found = seen_as(release, 1.0)
    assert found is not None
    return found


def _squared_mu(release: Gaussian, adjacency: str) -> float:
    """Of everyone, before any sampling."""
    if reason := release.unpriceable(adjacency):
        raise UserError(f"the network view has no figure: {reason}.")
    return (release.shift(adjacency) / release.sigma) ** 2


def _closed_form(total: Floats, delta: float) -> Floats:
    mus = _up(np.sqrt(total[~np.isnan(total)]))
    different, which = np.unique(mus, return_inverse=True)
    found = np.full(total.shape, np.nan)
    found[~np.isnan(total)] = np.array([gdp_epsilon(float(mu), delta) for mu in different])[which]
    return found


def _by_buckets(
    views: Views,
    total: Floats,
    weights: Floats,
    releases: Sequence[Gaussian],
    delta: float,
    adjacency: str,
) -> Floats:
    """Of each bucket of pairs that see about as much, one history that dominates: the largest μ of all, and so on.

    Rounds that differ in nothing but their noise may be put in order by it, and more of it in one place is never worse.
    """
    n, means = views.exchanges.nodes, views.exchanges.means
    like = releases[0]
    for one in releases:
        if replace(one, sigma=like.sigma, sensitivity=like.sensitivity) != like or one.in_passes:
            raise UserError(
                "the network view of all pairs needs lots that are drawn alike on all nodes and in all rounds; ask for "
                "one observer."
            )
    pairs = ~np.isnan(total)
    edges = np.unique(np.quantile(total[pairs], np.linspace(0, 1, BUCKETS + 1)[1:]))
    bucket = np.searchsorted(edges, np.where(pairs, total, 0.0) * (1 - 1e-12))
    worst = np.zeros((len(edges), means))
    block = max(1, AT_ONCE // (n * means))
    for start in range(0, n, block):
        observers = np.arange(start, min(start + block, n))
        squared = np.stack([views.squared(k, observers) * weights[k][None, :] for k in range(means)], axis=2)
        squared = -np.sort(-np.where(np.isnan(squared), 0.0, squared), axis=2)
        for b in np.unique(bucket[observers]):
            chosen = (bucket[observers] == b) & pairs[observers]
            if chosen.any():
                worst[b] = np.maximum(worst[b], squared[chosen].max(axis=0))
    moved = like.shift(adjacency)
    figures = []
    for squares in worst:
        mus = _up(np.sqrt(squares[squares > 0]))
        figures.append(
            proven(
                [replace(like, sigma=moved / mu, sensitivity=like.sensitivity) for mu in mus.tolist()],
                delta,
                adjacency,
            ).epsilon
        )
    return np.where(pairs, np.array(figures)[bucket], np.nan)


def _up(values: Floats) -> Floats:
    """Rounded up by a hundred-thousandth at most, so that rounding errors do not tell apart what is equal."""
    step = math.log1p(DIGITS)
    with np.errstate(divide="ignore"):
        rounded: Floats = np.exp(np.ceil(np.log(values) / step - 1e-6) * step) * (1 + 1e-10)
    return rounded
