"""Privacy of a node against one other node, a coalition or an outsider, in a run with exact means.

All gradients of such a run are taken at points that everyone knows: they follow from the means. So a round shows an
observer linear forms of what the nodes released in it, B (G + Z), and nothing else that depends on records. A record of
node u moves row u of G by at most C; with noise of covariance K the round is μ-GDP with

    μ² = C² b_uᵀ (B K Bᵀ)⁺ b_u,    b_u the column of B that belongs to u,

rounds add up, also adaptively, and what a coalition sees is one B, never a sum of its members' views. With lots drawn
by Poisson sampling whitening leaves the usual mixture of two Gaussians, a smaller distance apart. Where gradients are
taken at points that the observer does not know, nothing of this holds: docs/network.md has counterexamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gossamer.accounting.profiles import gdp_epsilon
from gossamer.accounting.proven import proven
from gossamer.accounting.releases import Counted, Event, Gaussian, Release, collate
from gossamer.errors import UserError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# (mean, the honest nodes) → the covariance of their noises in units of each one's own, in that order
Covariance = Callable[[int, Ints], Floats]
# mean → (nodes, nodes): [v, u] is the share of node u's squared local μ that node v sees in it; NaN of itself
View = Callable[[int], Floats]


@dataclass(frozen=True, eq=False)
class Exchanges:
    """The public schedule: in exchange s of a mean, place i hears the sum over `length` places up to i − offset.

    steps   (offset, length) of each exchange; with its own value a place has every value of the circle once
    orders  (means, nodes): which node stands at place 0, 1, … in each mean
    """

    nodes: int
    steps: tuple[tuple[int, int], ...]
    orders: Ints

    @property
    def means(self) -> int:
        return len(self.orders)

    @cached_property
    def places(self) -> Ints:
        """(means, nodes): where each node stands."""
        return np.argsort(self.orders, axis=1, kind="stable")

    @cached_property
    def step_of(self) -> Ints:
        """(nodes,): in which exchange a place hears of the one so many places before it; 0 for itself."""
        steps = np.zeros(self.nodes, dtype=np.int64)
        for s, (offset, length) in enumerate(self.steps):
            steps[(offset + np.arange(length)) % self.nodes] = s
        return steps

    def heard(self, mean: int, members: Sequence[int]) -> Floats:
        """B: a row for every sum that a member hears, over all nodes, less what the members know already."""
        order, places = self.orders[mean], self.places[mean]
        rows = np.zeros((len(members) * len(self.steps), self.nodes))
        for i, member in enumerate(members):
            for s, (offset, length) in enumerate(self.steps):
                window = (places[member] - offset - np.arange(length)) % self.nodes
                rows[i * len(self.steps) + s, order[window]] = 1.0
        rows[:, list(members)] = 0.0
        different: Floats = np.unique(rows[rows.any(axis=1)], axis=0)
        return different


def in_sums(own: Floats, covariance: Covariance | None, mean: int, nodes: Ints) -> Floats:
    """K over these nodes: of noises of these deviations, independent where there is no covariance."""
    if covariance is None:
        return np.diag(own**2)
    return np.asarray(own[:, None] * covariance(mean, nodes) * own[None, :])


def squared_view(
    exchanges: Exchanges,
    mean: int,
    members: Sequence[int],
    covariance: Covariance | None = None,
    deviations: Floats | None = None,
) -> Floats:
    """(nodes,): σ_u² · b_uᵀ (B K Bᵀ)⁺ b_u for every node u outside of the coalition; NaN for its members.

    `deviations` (means, nodes) are the σ that releases state, in what nodes add up; 1 where none are given. So it is
    the share of the stated squared μ that is seen: with independent noise in [0, 1], where 1 is what an observer of all
    messages sees. A node without noise in this mean released nothing, and has 0.
    """
    inside = np.zeros(exchanges.nodes, dtype=bool)
    inside[list(members)] = True
    honest = np.flatnonzero(~inside)
    own = np.ones(exchanges.nodes) if deviations is None else deviations[mean]
    K = in_sums(own[honest], covariance, mean, honest)
    speaking = np.diag(K) > 0
    B = exchanges.heard(mean, members)[:, honest[speaking]]
    shares = np.full(exchanges.nodes, np.nan)
    shares[honest] = 0.0
    shares[honest[speaking]] = squared_gains(B, K[np.ix_(speaking, speaking)])
    return np.asarray(shares * own**2)


def squared_gains(B: Floats, K: Floats) -> Floats:
    """(columns,): the diagonal of Bᵀ (B K Bᵀ)⁺ B, by an orthonormal basis of what the rows span.

    Rows that depend on each other count once; K must leave no form of them without noise.
    """
    if not B.size:
        return np.zeros(B.shape[1])
    _, sizes, basis = np.linalg.svd(B, full_matrices=False)
    V = basis[sizes > 1e-10 * sizes[0]]
    half = np.linalg.solve(np.linalg.cholesky(V @ K @ V.T), V)
    gains: Floats = np.sum(half**2, axis=0)
    return gains


def views_of_own_noise(exchanges: Exchanges, deviations: Floats) -> View:
    """Every node's noise is its own: the windows that a node hears share no node, so each window counts by itself.

    `deviations`: (means, nodes) of the noise in what the nodes add up, which is after their division by their own lots;
    0 where a node adds nothing.
    """

    def squared(mean: int) -> Floats:
        places = exchanges.places[mean]
        variances = deviations[mean] ** 2
        in_order = variances[exchanges.orders[mean]]
        heard = [np.roll(_window(in_order, length), offset) for offset, length in exchanges.steps]
        # Between −n and n: negative differences count from the end.
        step = exchanges.step_of[places[:, None] - places[None, :]]
        whole = np.take_along_axis(np.stack(heard, axis=1)[places], step, axis=1)
        adds = (variances[None, :] > 0) & (whole > 0)
        shares: Floats = np.divide(variances[None, :], whole, out=np.zeros_like(whole), where=adds)
        np.fill_diagonal(shares, np.nan)
        return shares

    return squared


def _window(values: Floats, length: int) -> Floats:
    """Sums over so many places up to each: by additions alone, so that small ones are not lost next to large ones."""
    if length == 1:
        return values
    if length % 2:
        return values + np.roll(_window(values, length - 1), 1)
    half = _window(values, length // 2)
    return half + np.roll(half, length // 2)


def views_of_alike_noise(exchanges: Exchanges, covariance: Covariance | None = None) -> View:
    """Noise whose covariance is the same in all means, whoever is whose neighbour: a table by how far apart two are.

    So of complete secrets, I + r L: its covariance knows how many nodes are honest, and nothing else of them. And of
    equal noise of every node's own.
    """
    n = exchanges.nodes
    still = Exchanges(n, exchanges.steps, np.arange(n, dtype=np.int64)[None, :])
    by_offset = squared_view(still, 0, [0], covariance)[-np.arange(n) % n]

    def squared(mean: int) -> Floats:
        places = exchanges.places[mean]
        shares: Floats = by_offset[places[:, None] - places[None, :]]
        return shares

    return squared


def views_of_any_noise(exchanges: Exchanges, covariance: Covariance | None, deviations: Floats) -> View:
    """Any covariance over nodes, by the formula itself: one small system for every observer and mean."""
    nodes = range(exchanges.nodes)
    return lambda mean: np.stack([squared_view(exchanges, mean, [v], covariance, deviations) for v in nodes])


def squared_outsider(deviations: Floats, covariance: Covariance | None = None) -> Floats:
    """(means, nodes): σ_u² / (1ᵀ K 1), what the mean alone tells of each node."""
    shares = np.zeros_like(deviations)
    for k, own in enumerate(deviations):
        K = in_sums(own, covariance, k, np.arange(len(own)))
        np.divide(own**2, K.sum(), out=shares[k], where=np.diag(K) > 0)
    return shares


# Of one node: an event's draw is the number of the mean that it went into; of releases alone, their places are.
History = Sequence[Event | Release]
DIGITS = 1e-5  # shares of μ are rounded up by at most this, so that equal ones are seen to be equal


def epsilon_by_pair(
    exchanges: Exchanges, view: View, histories: Sequence[History], delta: float, adjacency: str
) -> Floats:
    """(nodes, nodes): [v, u] is the ε of u's records against what node v sees; NaN where v is u.

    Full lots in closed form; sampled lots by a composition for every pair that sees another share of another history.
    """
    n, means = exchanges.nodes, exchanges.means
    # Nodes that did the same mostly share one list: it is looked at once.
    placed = {id(history): _placed(history, means) for history in histories}
    squares = {one: _squared_mu(one, adjacency) for own in placed.values() for one in own.values()}
    if any(one.amplifying_rate < 1 or one.in_passes for one in squares):
        seen = np.stack([view(k) for k in range(means)])
        return np.stack([epsilon_by_node(seen[:, v], histories, delta, adjacency) for v in range(n)])
    weights = np.zeros((means, n))
    for u, history in enumerate(histories):
        for k, one in placed[id(history)].items():
            weights[k, u] = squares[one]
    total = np.zeros((n, n))
    for k in range(means):
        total += view(k) * weights[k][None, :]
    different, which = np.unique(_up(np.sqrt(total)), return_inverse=True)
    epsilons = [math.nan if math.isnan(mu) else gdp_epsilon(mu, delta) for mu in different.tolist()]
    return np.array(epsilons)[which].reshape(total.shape)


def epsilon_of_coalition(
    exchanges: Exchanges,
    members: Sequence[int],
    histories: Sequence[History],
    delta: float,
    adjacency: str,
    covariance: Covariance | None = None,
    deviations: Floats | None = None,
) -> Floats:
    """(nodes,): ε of every node's records against all that the members see together; NaN of the members."""
    each = (squared_view(exchanges, k, members, covariance, deviations) for k in range(exchanges.means))
    return epsilon_by_node(np.stack(list(each)), histories, delta, adjacency)


def seen_as(release: Release, share: float) -> Gaussian | None:
    """Return the release as an observer of this share of its μ sees it; None if it sees nothing."""
    # By its kind: a class that builds on this one may state another noise than each node's own.
    if not isinstance(release, Gaussian) or release.kind != "gaussian":
        raise UserError(
            f"releases of kind {release.kind!r} have no network view, which whitens Gaussian noise; use "
            "privacy.noise.family.kind = 'gaussian'."
        )
    if share == 1:
        return release
    return replace(release, sigma=release.sigma / float(_up(np.array(share)))) if share > 0 else None


def epsilon_by_node(squared: Floats, histories: Sequence[History], delta: float, adjacency: str) -> Floats:
    """(nodes,): ε of every node's records against an observer of these shares; NaN where a share is.

    `squared`: (means, nodes), the share of the stated squared μ that is seen of each mean; of an outsider, who sees the
    means and with them all models, `squared_outsider`.
    """
    priced: dict[tuple[Counted, ...], float] = {}
    same: dict[tuple[int, bytes], float] = {}
    epsilons = np.full(len(histories), np.nan)
    for u, history in enumerate(histories):
        if np.isnan(squared[:, u]).any():
            continue
        alike = id(history), squared[:, u].tobytes()
        if alike not in same:
            shares = np.sqrt(squared[:, u]).tolist()
            placed = _placed(history, len(squared))
            shown = [part for k, one in placed.items() if (part := seen_as(one, shares[k])) is not None]
            # In any order: rounds add up, and nodes with the same shares in other rounds cost the same.
            key = tuple(sorted(collate(shown), key=repr))
            if key not in priced:
                priced[key] = proven(key, delta, adjacency).epsilon
            same[alike] = priced[key]
        epsilons[u] = same[alike]
    return epsilons


def _placed(history: History, means: int | None = None) -> dict[int, Release]:
    """The releases by the mean that each went into."""
    placed = {
        (one.draw if isinstance(one, Event) else k): (one.release if isinstance(one, Event) else one)
        for k, one in enumerate(history)
    }
    if len(placed) < len(history) or (means is not None and max(placed, default=0) >= max(means, 1)):
        raise ValueError(f"{len(history)} releases, the last in mean {max(placed)}, are not of {means} means")
    return placed


def _squared_mu(release: Release, adjacency: str) -> float:
    """Of everyone, before any sampling."""
    gaussian = seen_as(release, 1.0)
    assert gaussian is not None
    if reason := gaussian.unpriceable(adjacency):
        raise UserError(f"the network view has no figure: {reason}.")
    return (gaussian.shift(adjacency) / gaussian.sigma) ** 2


def _up(values: Floats) -> Floats:
    """Rounded up by a hundred-thousandth at most, so that rounding errors do not tell apart what is equal."""
    step = math.log1p(DIGITS)
    with np.errstate(divide="ignore"):
        rounded: Floats = np.exp(np.ceil(np.log(values) / step - 1e-6) * step) * (1 + 1e-10)
    return rounded
