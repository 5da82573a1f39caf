"""Noise of which most cancels between nodes: the mean of all sums has little of it, each sum alone has much.

Node i adds its own z_i and, for every node j it shares a secret with, √r e_ij, which j subtracts; all e and z are
standard normals times the same scale. Over nodes that is a covariance of I + r L in units of that scale, L the
Laplacian of the graph of secrets; what of it hides a record, and from whom, is in `accounting.secrets`. Masks cancel in
the mean of what the nodes divide their sums by, so the scale of each node must go with its divisor: the plan sees to
that, and the proof does not need it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
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
    ROUND_UP,
    Floats,
    KindDefaults,
    Levels,
    Mechanism,
    NoiseKind,
    Participation,
    families,
)
from gossamer.mechanism.noise.gaussian import normals

Join = Callable[
    [list[str]], list[str]
]  # one public key of each hosted node, in hexadecimal → those of all nodes


def pair_streams(nodes: Sequence[int], secrets: Secrets, join: Join, context: str) -> dict[Edge, Stream]:
    """The streams of all pairs of which a hosted node is one; `context` says of which run and which start of it."""
    own = {node: X25519PrivateKey.generate() for node in nodes}
    public = join([key.public_key().public_bytes_raw().hex() for key in own.values()])
    if len(public) != secrets.nodes or len(set(public)) != len(public):
        raise UserError(
            "two nodes state the same public key, or one states none: no secret can be agreed upon."
        )
    here = ((i, j) for i, j in secrets.pairs() if i in own or j in own)
    return {(i, j): _stream(own, public, i, j, context) for i, j in here}


def _stream(own: dict[int, X25519PrivateKey], public: Sequence[str], i: int, j: int, context: str) -> Stream:
    mine, other = (i, j) if i in own else (j, i)
    try:
        shared = own[mine].exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public[other])))
    except ValueError:
        raise UserError(
            f"node {other} states a public key that is none: no secret can be agreed upon."
        ) from None
    # Both public keys go in: what is derived belongs to this pair of keys, in this order, and to nothing else.
    info = f"gossamer masks, version 1: {context} {i} {j} {public[i]} {public[j]}".encode()
    key = HKDF(algorithm=hashes.SHA256(), length=16, salt=None, info=info).derive(shared)
    return Stream(key, is_seeded=False)


BATCH = 16  # masks that are drawn at a time
KEY = "privacy.noise.family"


class _Pairwise(KindDefaults):
    """What the kind is before and after the number of nodes is known."""

    kind: ClassVar[str]
    release_kind: ClassVar[str] = "pairwise"
    gaussian: ClassVar[bool] = True
    cancels: ClassVar[bool] = True
    bound: ClassVar[float | None] = None


@families.register("pairwise")
@dataclass(frozen=True, kw_only=True)
class Pairwise(_Pairwise):
    """Own noise, and masks that cancel between nodes which share a secret: see docs/pairwise.md."""

    colluders: Annotated[
        int,
        Field(ge=0, lt=1_000_000, description="nodes that may pool all they know: ε holds against any such"),
    ] = 1
    ratio: Annotated[
        float,
        Field(
            gt=0,
            le=MOST_RATIO,
            description="variance of a mask over that of a node's own noise; 10 with one mix",
        ),
    ] = 100.0
    secrets: Annotated[
        Literal["complete", "exponential"]
        | Annotated[list[Annotated[list[int], Field(min_length=2, max_length=2)]], Field(min_length=1)],
        Field(description="which nodes share a secret: all, those 1, 2, 4, … apart, or a list of pairs"),
    ] = "complete"

    def among(self, nodes: int) -> NoiseKind:
        if self.colluders >= nodes:
            raise UserError(
                f"{KEY}.colluders = {self.colluders} must be fewer than nodes = {nodes}: if all nodes pool what they "
                "know, nothing is hidden; use a smaller one."
            )
        secrets = self._graph(nodes)
        if not secrets.stays_connected(self.colluders):
            raise UserError(
                f"{KEY}.secrets falls apart if {self.colluders} of its nodes collude, and masks cancel within each "
                "part: add pairs, or use 'complete'."
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
                raise UserError(
                    f"{KEY}.secrets has the pair [{i}, {j}], which are no two of the nodes 0 … {nodes - 1}."
                )
        return Secrets.of(nodes, self.secrets)

    def release(
        self, sigma: float, sensitivity: float, dimension: int, part: Participation, end: float
    ) -> Release:
        raise ValueError("what pairwise noise hides depends on the number of nodes: see `among`")

    def make(self, levels: Levels, ends: Floats, arithmetic: str) -> Mechanism:
        raise ValueError("what pairwise noise hides depends on the number of nodes: see `among`")


@dataclass(frozen=True, kw_only=True)
class PairwiseAmong(_Pairwise):
    """Pairwise noise among so many nodes."""

    kind: ClassVar[str] = "pairwise"
    secrets: Secrets
    colluders: int
    ratio: float

    def among(self, nodes: int) -> NoiseKind:
        return self

    @property
    def observer(self) -> Observer:
        return colluders(self.colluders)

    def covariance(self, honest: NDArray[np.int64]) -> Floats | None:
        return self.secrets.covariance_among(honest, self.ratio)

    @property
    def header(self) -> dict[str, Any]:
        """A graph that does not follow from the number of nodes, edge by edge."""
        listed = self.secrets.listed
        return {"secrets": [list(edge) for edge in listed]} if listed else {}

    @property
    def all_alike(self) -> bool:
        return self.secrets.edges is None

    @property
    def kept(self) -> float:
        return self.secrets.effective_noise(self.colluders, self.ratio)

    def release(
        self, sigma: float, sensitivity: float, dimension: int, part: Participation, end: float
    ) -> Release:
        return releases.Pairwise(
            sigma=sigma,
            sensitivity=sensitivity,
            nodes=self.secrets.nodes,
            colluders=self.colluders,
            ratio=self.ratio,
            secrets=self.secrets.digest,
            **part.common,
        )

    def make(self, levels: Levels, ends: Floats, arithmetic: str) -> Mechanism:
        return PairwiseNoise(levels, self)


@dataclass(frozen=True)
class PairwiseNoise:
    """Where all nodes are hosted, their noise is drawn at once; else pair by pair, from the secrets of each pair."""

    levels: Levels
    of: PairwiseAmong
    copies: int = 1  # of every node, side by side, as an audit's many runs have them
    pairs: Mapping[Edge, Stream] = field(default_factory=dict, repr=False)  # those that a hosted node shares
    by_pairs: bool = False  # even where all nodes are here: so that it can be said what some of them know
    adds: ClassVar[bool] = True
    scale_is_public: ClassVar[bool] = True

    def sensitivity(self, bound: Tensor, dimension: int) -> Tensor:
        return bound

    def release(
        self,
        i: int,
        multiplier: float,
        sensitivity: float,
        dimension: int,
        part: Participation,
        *,
        enforced: bool,
    ) -> Release:
        limit = sensitivity if enforced else math.inf
        return self.of.release(multiplier * sensitivity, limit, dimension, part, math.inf)

    def apart(self, i: int) -> float | None:
        return None

    def agree(self, nodes: Sequence[int], join: Join, context: str, *, seeded: bool) -> Self:
        # Where all nodes are here, or everyone can draw the noise anyhow, nobody has a secret to agree on.
        if seeded or len(nodes) == self.of.secrets.nodes:
            return self
        return replace(self, pairs=pair_streams(nodes, self.of.secrets, join, context))

    def ahead(self, stream: Stream, nodes: Indices, k: int, dimension: int) -> Tensor | None:
        drawn = normals(stream, nodes, k, dimension)
        listed = self.pairs or stream.is_seeded or self.of.secrets.edges is not None
        if not self.by_pairs and (self.copies > 1 or not listed):
            return self._together(drawn)
        self._add_masks(stream, self._hosted(nodes), k, drawn)
        return drawn

    def known_to(
        self, members: Collection[int], stream: Stream, nodes: Indices, k: int, dimension: int
    ) -> Tensor:
        """What of the noise drawn `by_pairs` these nodes know: all of their own, and of others the masks they share."""
        known = torch.zeros(len(np.atleast_1d(nodes)), dimension)
        rows = np.flatnonzero(np.isin(np.atleast_1d(nodes) // self.copies, list(members)))
        known[rows] = normals(stream, np.atleast_1d(nodes)[rows], k, dimension)
        self._add_masks(stream, self._hosted(nodes), k, known, members)
        return known

    def add(
        self,
        stream: Stream,
        nodes: Indices,
        k: int,
        sums: Tensor,
        *,
        multiplier: Tensor,
        bound: Tensor,
        active: Tensor,
        ready: Tensor | None = None,
    ) -> None:
        """A node without budget sends noise and masks without a sum: left out, its masks would stay in the mean."""
        noise = ready if ready is not None else self.ahead(stream, nodes, k, sums.shape[1])
        assert noise is not None
        scale = ROUND_UP * multiplier * bound.cpu()
        sums += noise.mul_(scale.to(noise)[:, None]).to(sums)

    def repeated(self, times: int) -> Self:
        return replace(self, levels=self.levels.repeated(times), copies=self.copies * times)

    def _together(self, drawn: Tensor) -> Tensor:
        """Independent normals of all nodes → normals of covariance I + r L. In place where every pair has a secret.

        There I + r L = (1 + r n)(I − J) + J, J the mean over nodes, and its root is √(1 + r n) (I − J) + J.
        """
        n, secrets = self.of.secrets.nodes, self.of.secrets
        if len(drawn) != n * self.copies:
            raise ValueError(
                f"{len(drawn)} of {n} nodes are here, and no secrets were agreed on with the others"
            )
        if secrets.edges is not None:
            return (self._root.to(drawn) @ drawn.view(n, -1)).view_as(drawn)
        stretch = math.sqrt(1 + self.of.ratio * n)
        rows = drawn.view(n, self.copies, -1)
        mean = rows.mean(0)
        rows.mul_(stretch).add_(mean.mul_(1 - stretch))
        return drawn

    @cached_property
    def _root(self) -> Tensor:
        values, vectors = np.linalg.eigh(self.of.secrets.covariance(self.of.ratio))
        return torch.from_numpy((vectors * np.sqrt(values)) @ vectors.T)

    def _hosted(self, nodes: Indices) -> list[int]:
        """The nodes that these rows are of: `copies` rows each, side by side."""
        hosted: list[int] = (np.atleast_1d(nodes)[:: self.copies] // self.copies).tolist()
        return hosted

    def _add_masks(
        self, stream: Stream, nodes: list[int], k: int, noise: Tensor, of: Collection[int] | None = None
    ) -> None:
        """Pair after pair in one order, so that a node's sum is the same to the last bit wherever it is hosted.

        All pairs, or those that one `of` these nodes shares.
        """
        place, size = {node: row for row, node in enumerate(nodes)}, math.sqrt(self.of.ratio)
        here = [
            (p, i, j)
            for p, (i, j) in enumerate(self.of.secrets.pairs())
            if (i in place or j in place) and (of is None or i in of or j in of)
        ]
        rows = noise.view(len(nodes), self.copies, -1)
        masks = torch.empty(min(BATCH, len(here)), *rows.shape[1:])
        for first in range(0, len(here), BATCH):
            batch = here[first : first + BATCH]
            self._draw_masks(stream, batch, k, masks[: len(batch)])
            for mask, (_, i, j) in zip(masks, batch, strict=False):
                for node, sign in ((i, size), (j, -size)):
                    if node in place:
                        rows[place[node]].add_(mask, alpha=sign)

    def _draw_masks(self, stream: Stream, batch: list[tuple[int, int, int]], k: int, masks: Tensor) -> None:
        """(pairs, copies, d)."""
        if not self.pairs:
            numbers = [p * self.copies + copy for p, _, _ in batch for copy in range(self.copies)]
            stream.normal_rows(MASK, numbers, k, masks.view(len(numbers), -1), 1.0)
            return
        for mask, (_, i, j) in zip(masks, batch, strict=True):
            self.pairs[i, j].normal(MASK, 0, k, mask[0], 1.0)
