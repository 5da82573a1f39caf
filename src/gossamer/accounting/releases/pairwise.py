"""Gaussian noise of a node's own, and masks that cancel between nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from gossamer.accounting.observers import EVERYONE, Observer, colluders
from gossamer.accounting.pairs import Pair
from gossamer.accounting.profiles import Noise
from gossamer.accounting.releases.base import Noised, Release, not_one_of, registered
from gossamer.accounting.releases.kinds import Gaussian
from gossamer.accounting.secrets import MOST_RATIO, Edge, Secrets, checked_edges, known, remember
from gossamer.errors import UserError

UNKNOWN = "the graph of secrets behind its noise is not at hand"


@registered
@dataclass(frozen=True, slots=True, kw_only=True)
class Pairwise(Noised):
    """`sigma` is the node's own noise; masks of `ratio` times its variance go with each of its secrets.

    What hides a record is more than σ, and depends on who looks: see `accounting.secrets`. An observer who does not
    say whose secrets it holds is taken for one with `colluders` nodes, as planned. After whitening, a sum that one
    record moves is a Gaussian of σ_eff in one direction, whatever lots it is drawn from: the pairs are a Gaussian's.
    """

    kind: ClassVar[str] = "pairwise"

    nodes: int
    colluders: int
    ratio: float
    secrets: str  # the digest of the graph

    def __post_init__(self) -> None:
        Noised.__post_init__(self)
        if not 1 <= self.nodes <= 1_000_000:
            raise UserError(f"event nodes = {self.nodes!r} must be a number of nodes, at least 1")
        if not 0 <= self.colluders < self.nodes:
            raise UserError(f"event colluders = {self.colluders!r} must be at least 0 and below nodes")
        if not 0.0 <= self.ratio <= MOST_RATIO:
            raise UserError(f"event ratio = {self.ratio!r} must be a number between 0 and {MOST_RATIO:g}")
        if not isinstance(self.secrets, str) or len(self.secrets) != 32:
            raise UserError(not_one_of("secrets", self.secrets, ["a digest of 32 characters"]))

    @property
    def planned_for(self) -> Observer:
        return colluders(self.colluders)

    @property
    def most_colluders(self) -> int | None:
        return self.nodes - 1

    @property
    def listed_secrets(self) -> tuple[Edge, ...] | None:
        return None if self._graph is None else self._graph.listed

    def seen_by(self, observer: Observer = EVERYONE) -> Release:
        """The Gaussian that this release is to an observer."""
        graph = self._graph
        if graph is None:
            return self
        if observer.members:
            kept = graph.kept_against(observer.members, self.ratio)
        else:
            count = self.colluders if observer.colluders is None else observer.colluders
            kept = graph.kept(min(count, self.nodes - 1), self.ratio)
        return self.alone.scaled(kept)

    @property
    def alone(self) -> Gaussian:
        return Gaussian(**{field.name: getattr(self, field.name) for field in fields(Gaussian)})

    def unpriceable(self, adjacency: str) -> str | None:
        return UNKNOWN if self._graph is None else Noised.unpriceable(self, adjacency)

    def pair(self, adjacency: str) -> float | Pair:
        return Noised.pair(self, adjacency) if self._graph is None else self.seen_by().pair(adjacency)

    @property
    def noise_multiplier(self) -> float:
        return 0.0 if self._graph is None else self.seen_by().noise_multiplier

    @property
    def family(self) -> object:
        return self.kind, self.nodes, self.colluders, self.ratio, self.secrets

    @property
    def density(self) -> Noise | None:
        return None if self._graph is None else self.seen_by().density

    @property
    def _graph(self) -> Secrets | None:
        return known(self.secrets, self.nodes)


def remember_listed(listed: Any, releases: Sequence[Release]) -> None:
    """The pairs that a file lists for these releases; ValueError says what is wrong with them."""
    nodes = next((one.nodes for one in releases if isinstance(one, Pairwise)), None)
    if listed is not None and nodes is not None:
        remember(Secrets.of(nodes, checked_edges(listed, nodes)))
