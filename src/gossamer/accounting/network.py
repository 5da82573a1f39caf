"""What one node, a coalition or an outsider learns of another node in a run with exact means.

All gradients of such a run are taken at points that everyone knows: they follow from the means. So a round shows an
observer linear forms of what the nodes released in it, B (G + Z), and nothing else that depends on records. A record of
node u moves row u of G by at most C; with noise of covariance K the round is μ-GDP with

    μ² = C² b_uᵀ (B K Bᵀ)⁺ b_u,    b_u the column of B that belongs to u,

rounds add up, also adaptively, and what a coalition sees is one B, never a sum of its members' views. With lots drawn
by Poisson sampling whitening leaves the usual mixture of two Gaussians, a smaller distance apart. Where gradients are
taken at points that the observer does not know, nothing of this holds: docs/network.md has counterexamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# (mean, the honest nodes) → the covariance of their noises in what they add up, in that order
Covariance = Callable[[int, Ints], Floats]


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
        found = np.zeros(self.nodes, dtype=np.int64)
        for s, (offset, length) in enumerate(self.steps):
            found[(offset + np.arange(length)) % self.nodes] = s
        return found

    def heard(self, mean: int, members: Sequence[int]) -> Floats:
        """B: a row for every sum that a member hears, over all nodes, less what the members know already."""
        order, places = self.orders[mean], self.places[mean]
        rows = np.zeros((len(members) * len(self.steps), self.nodes))
        for i, member in enumerate(members):
            for s, (offset, length) in enumerate(self.steps):
                window = (places[member] - offset - np.arange(length)) % self.nodes
                rows[i * len(self.steps) + s, order[window]] = 1.0
        rows[:, list(members)] = 0.0
        kept: Floats = np.unique(rows[rows.any(axis=1)], axis=0)
        return kept


def independent(deviations: Floats | None = None) -> Covariance:
    """Each node's own noise: of deviation 1, or as given, (nodes,) or (means, nodes)."""

    def among(mean: int, honest: Ints) -> Floats:
        return np.diag(np.ones(len(honest)) if deviations is None else of_mean(deviations, mean)[honest] ** 2)

    return among


def of_mean(values: Floats, mean: int) -> Floats:
    """(nodes,) of what is the same in all means, or not."""
    return values if values.ndim == 1 else values[mean]


def squared_view(
    exchanges: Exchanges,
    mean: int,
    members: Sequence[int],
    covariance: Covariance | None = None,
    units: Floats | None = None,
) -> Floats:
    """(nodes,): units_u² · b_uᵀ (B K Bᵀ)⁺ b_u for every node u outside of the coalition; NaN for its members.

    `units`: what the deviation that a node's release states is in what it adds up, (nodes,) or (means, nodes); or 1.
    So it is the share of the stated squared μ that is seen: with independent noise in [0, 1], where 1 is what an
    observer of all messages sees. A node without noise in this mean released nothing, and has 0.
    """
    inside = np.zeros(exchanges.nodes, dtype=bool)
    inside[list(members)] = True
    honest = np.flatnonzero(~inside)
    K = (covariance or independent())(mean, honest)
    speaking = np.diag(K) > 0
    B = exchanges.heard(mean, members)[:, honest[speaking]]
    found = np.full(exchanges.nodes, np.nan)
    found[honest] = 0.0
    found[honest[speaking]] = squared_gains(B, K[np.ix_(speaking, speaking)])
    return found if units is None else found * of_mean(units, mean) ** 2


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


class Views(Protocol):
    """What every single node sees of every other."""

    @property
    def exchanges(self) -> Exchanges: ...

    def squared(self, mean: int, observers: Ints) -> Floats:
        """(observers, nodes): the share of the squared local μ that each sees in a mean; NaN of itself."""
        ...


@dataclass(frozen=True, eq=False)
class OwnNoise:
    """Every node's noise is its own: the windows that a node hears share no node, so each window counts by itself.

    `deviations`: (nodes,) or (means, nodes) of the noise in what the nodes add up, which is after their division by
    their own lots; 0 where a node adds nothing. All alike, if None.
    """

    exchanges: Exchanges
    deviations: Floats | None = None

    def squared(self, mean: int, observers: Ints) -> Floats:
        places = self.exchanges.places[mean]
        apart = (
            places[observers][:, None] - places[None, :]
        )  # between −n and n: negative ones count from the end
        if self.deviations is None:
            found: Floats = self._lengths[apart]
        else:
            variances = of_mean(self.deviations, mean) ** 2
            sums = self._sums(variances[self.exchanges.orders[mean]])[places[observers]]
            whole = np.take_along_axis(sums, self.exchanges.step_of[apart], axis=1)
            speaks = (variances[None, :] > 0) & (whole > 0)
            found = np.divide(variances[None, :], whole, out=np.zeros_like(whole), where=speaks)
        found[np.arange(len(observers)), observers] = np.nan
        return found

    @cached_property
    def _lengths(self) -> Floats:
        lengths = np.array([length for _, length in self.exchanges.steps])
        return np.asarray(1.0 / lengths[self.exchanges.step_of])

    def _sums(self, variances: Floats) -> Floats:
        """(places, steps): the variance of what each place hears."""
        columns = [np.roll(_window(variances, length), offset) for offset, length in self.exchanges.steps]
        return np.stack(columns, axis=1)


def _window(values: Floats, length: int) -> Floats:
    """Sums over so many places up to each: by additions alone, so that small ones are not lost beside large ones."""
    if length == 1:
        return values
    if length % 2:
        return values + np.roll(_window(values, length - 1), 1)
    half = _window(values, length // 2)
    return half + np.roll(half, length // 2)


@dataclass(frozen=True, eq=False)
class AlikeNoise:
    """Noise whose covariance is the same in all means, whoever is whose neighbour: a table by how far apart two are.

    So of complete secrets, I + r L: its covariance knows how many nodes are honest, and nothing else of them.
    """

    exchanges: Exchanges
    covariance: Covariance
    _table: dict[str, Floats] = field(default_factory=dict, repr=False)

    def squared(self, mean: int, observers: Ints) -> Floats:
        places = self.exchanges.places[mean]
        found: Floats = self.table[places[observers][:, None] - places[None, :]]
        return found

    @property
    def table(self) -> Floats:
        """(nodes,): what place 0 sees of the place so many before it; NaN of itself."""
        if "by offset" not in self._table:
            n = self.exchanges.nodes
            still = Exchanges(n, self.exchanges.steps, np.arange(n, dtype=np.int64)[None, :])
            seen = squared_view(still, 0, [0], self.covariance)
            self._table["by offset"] = seen[-np.arange(n) % n]
        return self._table["by offset"]


@dataclass(frozen=True, eq=False)
class AnyNoise:
    """Any covariance over nodes, by the formula itself: one small system for every observer and mean."""

    exchanges: Exchanges
    covariance: Covariance
    units: Floats | None = None

    def squared(self, mean: int, observers: Ints) -> Floats:
        seen = [squared_view(self.exchanges, mean, [int(v)], self.covariance, self.units) for v in observers]
        return np.stack(seen)


def squared_outsider(
    nodes: int, means: int = 1, covariance: Covariance | None = None, units: Floats | None = None
) -> Floats:
    """(means, nodes): units_u² / (1ᵀ K 1), what the mean alone tells of each node."""
    found = np.zeros((means, nodes))
    for k in range(means):
        K = (covariance or independent())(k, np.arange(nodes))
        own = np.ones(nodes) if units is None else of_mean(units, k) ** 2
        found[k] = np.divide(own, K.sum(), out=np.zeros(nodes), where=np.diag(K) > 0)
    return found
