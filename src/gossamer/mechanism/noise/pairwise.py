"""Noise of which most cancels between nodes: the mean of all sums has little of it, each sum alone has much.

Node i adds its own z_i and, for every node j it shares a secret with, √r e_ij, which j subtracts; all e and z are
standard normals times the same scale. Over nodes that is a covariance of I + r L in units of that scale, L the
Laplacian of the graph of secrets; what of it hides a record, and from whom, is in `accounting.secrets`. Masks cancel in
the mean of what the nodes divide their sums by, so the scale of each node must go with its divisor: the plan sees to
that, and the proof does not need it.

A sum and its own noise are rounded to whole steps, and so is every mask; then they are added as integers, so masks
cancel to the last bit. The integers' joint law is that of the continuous sums and masks, rounded at random, up to
exp(−π² 64²) (docs/privacy.md): post-processing, which costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from gossamer.accounting import releases
from gossamer.accounting.observers import Observer, colluders
from gossamer.accounting.releases import Release
from gossamer.accounting.secrets import MOST_EXPONENTIAL, MOST_LISTED, MOST_RATIO, Edge, Secrets, remember
from gossamer.errors import UserError
from gossamer.kernels.noise import Indices, Stream
from gossamer.mechanism.noise.base import (
    MASK,
    NOISE,
    Floats,
    Levels,
    Mechanism,
    NoiseKind,
    Participation,
    Place,
    families,
)

# One public key of each hosted node, in hexadecimal → those of all nodes.
Join = Callable[[list[str]], list[str]]


def pair_streams(nodes: Sequence[int], secrets: Secrets, join: Join, context: str) -> dict[Edge, Stream]:
    """The streams of all pairs of which a hosted node is one; `context` says of which run and which start of it."""
    own = {node: X25519PrivateKey.generate() for node in nodes}
    public = join([key.public_key().public_bytes_raw().hex() for key in own.values()])
    if len(public) != secrets.nodes or len(set(public)) != len(public):
        raise UserError("two nodes state the same public key, or one states none: no secret can be agreed upon.")
    here = ((i, j) for i, j in secrets.pairs() if i in own or j in own)
    return {(i, j): _stream(own, public, i, j, context) for i, j in here}


def _stream(own: dict[int, X25519PrivateKey], public: Sequence[str], i: int, j: int, context: str) -> Stream:
    mine, other = (i, j) if i in own else (j, i)
    try:
        shared = own[mine].exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public[other])))
    except ValueError:
        raise UserError(f"node {other} states a public key that is none: no secret can be agreed upon.") from None
    # Both public keys go in: what is derived belongs to this pair of keys, in this order, and to nothing else.
    info = f"gossamer masks, version 1: {context} {i} {j} {public[i]} {public[j]}".encode()
    key = HKDF(algorithm=hashes.SHA256(), length=16, salt=None, info=info).derive(shared)
    return Stream(key, is_seeded=False)


BATCH = 16  # masks that are drawn at a time
RATIO = 64.0  # own noise over a step: coarser than without masks, which are larger
KEY = "privacy.noise.family"


class _Pairwise(NoiseKind):
    """The kind before and after the number of nodes is known."""

    kind: ClassVar[str]
    released_as: ClassVar[type[Release]] = releases.Pairwise
    gaussian: ClassVar[bool] = True
    cancels: ClassVar[bool] = True


@families.register("pairwise")
class Pairwise(_Pairwise):
    """Own noise, and masks that cancel between nodes which share a secret: see docs/pairwise.md."""

    colluders: Annotated[
        int, Field(ge=0, lt=1_000_000), "nodes that may pool all they know: ε holds against any such"
    ] = 1
    ratio: Annotated[
        float,
        Field(gt=0, le=MOST_RATIO),
        "variance of a mask over that of a node's own noise; 10 with one mix",
    ] = 100.0
    secrets: Annotated[
        Literal["complete", "exponential"]
        | Annotated[list[Annotated[list[int], Field(min_length=2, max_length=2)]], Field(min_length=1)],
        "which nodes share a secret: all, those 1, 2, 4, … apart, or a list of pairs",
    ] = "complete"

    def for_node_count(self, nodes: int) -> NoiseKind:
        if self.colluders >= nodes:
            raise UserError(
                f"{KEY}.colluders = {self.colluders} must be fewer than nodes = {nodes}: if all nodes pool what they "
                "know, nothing is hidden; use a smaller one."
            )
        secrets = self._graph(nodes)
        if not secrets.stays_connected(self.colluders):
            raise UserError(
                f"{KEY}.secrets falls apart if {self.colluders} of its nodes collude, and masks cancel within each "
                "part; add pairs, or use 'complete'."
            )
        remember(secrets)
        return PairwiseAmong(secrets=secrets, colluders=self.colluders, ratio=self.ratio)

    def _graph(self, nodes: int) -> Secrets:
        if self.secrets == "complete":
            return Secrets.complete(nodes)
        if self.secrets == "exponential":
            if nodes > MOST_EXPONENTIAL:
                raise UserError(
                    f"{KEY}.secrets = 'exponential' goes up to {MOST_EXPONENTIAL} nodes, not nodes = {nodes}; use "
                    "'complete'."
                )
            return Secrets.exponential(nodes)
        if nodes > MOST_LISTED:
            raise UserError(
                f"{KEY}.secrets lists pairs, which goes up to {MOST_LISTED} nodes, not nodes = {nodes}; use 'complete' "
                "or 'exponential'."
            )
        for i, j in self.secrets:
            if not (0 <= i < nodes and 0 <= j < nodes and i != j):
                raise UserError(f"{KEY}.secrets has the pair [{i}, {j}]; give two of the nodes 0 … {nodes - 1}.")
        return Secrets.of(nodes, self.secrets)

    def make(self, levels: Levels, ends: Floats) -> Mechanism:
        raise ValueError("what pairwise noise hides depends on the number of nodes: see `for_node_count`")


@dataclass(frozen=True, kw_only=True)
class PairwiseAmong(_Pairwise):
    """Pairwise noise among so many nodes."""

    kind: ClassVar[str] = "pairwise"
    secrets: Secrets
    colluders: int
    ratio: float

    @property
    def observer(self) -> Observer:  # type: ignore[override]
        return colluders(self.colluders)

    def covariance(self, honest: NDArray[np.int64]) -> Floats | None:
        return self.secrets.covariance_among(honest, self.ratio)

    @property
    def header(self) -> dict[str, Any]:  # type: ignore[override]
        """The step, and a graph that does not follow from the number of nodes, edge by edge."""
        listed = self.secrets.listed
        graph = {"secrets": [list(edge) for edge in listed]} if listed else {}
        return {"steps_per_sigma": RATIO, **graph}

    @property
    def all_alike(self) -> bool:  # type: ignore[override]
        return self.secrets.edges is None

    @property
    def kept(self) -> float:  # type: ignore[override]
        return self.secrets.effective_noise(self.colluders, self.ratio)

    def figures(self, sigma: float, dimension: int, end: float) -> dict[str, Any]:
        secrets = self.secrets
        graph = {"nodes": secrets.nodes, "colluders": self.colluders, "secrets": secrets.digest}
        return {"sigma": sigma, "ratio": self.ratio, **graph}

    def make(self, levels: Levels, ends: Floats) -> Mechanism:
        return PairwiseNoise(levels, self)


@dataclass(frozen=True)
class PairwiseNoise(Mechanism):
    """Noise of all nodes, drawn at once where all are hosted; else pair by pair, from the secrets of each pair."""

    of: PairwiseAmong
    copies: int = 1  # of every node, side by side, as an audit's many runs have them
    pairs: Mapping[Edge, Stream] = field(default_factory=dict, repr=False)  # those that a hosted node shares
    by_pairs: bool = False  # even where all nodes are here: so that an audit can state what some of them know
    rests: ClassVar[bool] = False  # left out, a node's masks would stay in the mean

    def released(self, i: int, sigma: float, limit: float, dimension: int, part: Participation) -> Release:
        return self.of.release(sigma, limit, dimension, part, math.inf)

    def agree(self, nodes: Sequence[int], join: Join, context: str, *, seeded: bool) -> Self:
        # Where all nodes are here, or everyone can draw the noise anyhow, there is no secret to agree on.
        if seeded or len(nodes) == self.of.secrets.nodes:
            return self
        return replace(self, pairs=pair_streams(nodes, self.of.secrets, join, context))

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor:
        """Return the masks (m, d) in steps."""
        listed = self.pairs or stream.is_seeded or self.of.secrets.edges is not None
        if not self.by_pairs and not listed:
            return self._together(stream, nodes, k, dimension)
        return self._masks(stream, nodes, k, dimension)

    def known_to(self, members: Collection[int], stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor:
        """Return what of the noise drawn `by_pairs` these nodes know, in units of a node's own noise.

        All of their own, and of others' the masks they share.
        """
        known = self._masks(stream, nodes, k, dimension, members).div_(RATIO).float()
        rows = np.flatnonzero(np.isin(np.atleast_1d(nodes) // self.copies, list(members)))
        own = known[rows]
        stream.normal_rows(NOISE, np.atleast_1d(nodes)[rows], k, own, 1.0)
        known[rows] = own
        return known

    def draw(self, at: Place, sums: Tensor, scale: Tensor, ready: Tensor | None) -> None:
        """A node without budget sends noise and masks without a sum."""
        masks = self.ahead(*at, sums.shape[1]) if ready is None else ready
        units = scale.double() / RATIO
        whole = sums.double().cpu()
        at.stream.whole_rows(NOISE, at.nodes, at.draw, whole, units, RATIO, count=True)
        # Only the sum of both integers may be seen: a float of either by itself would tell them apart.
        sums.copy_(whole.add_(masks).mul_(units[:, None]))

    def repeated(self, times: int) -> Self:
        return replace(self, levels=self.levels.repeated(times), copies=self.copies * times)

    def _together(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor:
        """Masks of all nodes at once where every pair has a secret: M − mean(M), M independent, of variance r n.

        The remainder of the mean is taken off the first nodes, so that the masks add up to 0.
        """
        n = self.of.secrets.nodes
        if np.size(nodes) != n * self.copies:
            raise ValueError(f"{np.size(nodes)} of {n} nodes are here, and no secrets were agreed on with the others")
        masks = torch.zeros(n * self.copies, dimension, dtype=torch.float64)
        stream.whole_rows(MASK, nodes, k, masks, 1.0, RATIO * math.sqrt(self.of.ratio * n))
        rows = masks.view(n, self.copies, -1)
        total = rows.sum(0)
        share = torch.floor(total / n)
        rest = total - n * share
        rows.sub_(share)
        for i in range(n):
            rows[i].sub_((rest > i).double())
        return masks

    def _hosted(self, nodes: Indices) -> list[int]:
        """The nodes that these rows are of: `copies` rows each, side by side."""
        hosted: list[int] = (np.atleast_1d(nodes)[:: self.copies] // self.copies).tolist()
        return hosted

    def _masks(
        self, stream: Stream, nodes: Indices, k: int, dimension: int, of: Collection[int] | None = None
    ) -> Tensor:
        """Pair by pair, in steps; of all pairs, or of those that one `of` these nodes shares."""
        hosted = self._hosted(nodes)
        place = {node: row for row, node in enumerate(hosted)}
        here = [
            (p, i, j)
            for p, (i, j) in enumerate(self.of.secrets.pairs())
            if (i in place or j in place) and (of is None or i in of or j in of)
        ]
        total = torch.zeros(len(hosted) * self.copies, dimension, dtype=torch.float64)
        rows = total.view(len(hosted), self.copies, -1)
        for first in range(0, len(here), BATCH):
            batch = here[first : first + BATCH]
            for mask, (_, i, j) in zip(self._draw(stream, batch, k, dimension), batch, strict=True):
                for node, sign in ((i, 1), (j, -1)):
                    if node in place:
                        rows[place[node]].add_(mask, alpha=sign)
        return total

    def _draw(self, stream: Stream, batch: list[tuple[int, int, int]], k: int, dimension: int) -> Tensor:
        """(pairs, copies, d)."""
        masks = torch.zeros(len(batch), self.copies, dimension, dtype=torch.float64)
        ratio = RATIO * math.sqrt(self.of.ratio)
        if not self.pairs:
            numbers = [p * self.copies + copy for p, _, _ in batch for copy in range(self.copies)]
            stream.whole_rows(MASK, numbers, k, masks.view(len(numbers), -1), 1.0, ratio)
            return masks
        for mask, (_, i, j) in zip(masks, batch, strict=True):
            self.pairs[i, j].whole_rows(MASK, [0], k, mask, 1.0, ratio)
        return masks
