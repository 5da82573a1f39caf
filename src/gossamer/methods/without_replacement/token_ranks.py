"""The token over several processes: the shared model goes from the rank of its last writer to that of the next.

The nodes that want to write are public and shared first; then every rank knows the chain of writers, and only the two
ranks of a handover take part in it. What was released next to the model (noised losses) travels with it, and to every
rank after the round.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

import torch
from torch import Tensor

from gossamer.methods.without_replacement.token import Token, TokenExchange, Write, order
from gossamer.runtime.cluster import Ranks
from gossamer.runtime.group import Group


class Releases(Protocol):
    """The private part: what it has released next to the model."""

    released_loss: Tensor  # (C,)


class SharedState(Protocol):
    """The state of an algorithm with a shared model."""

    @property
    def public(self) -> Tensor: ...  # (1, C·d)
    @property
    def holder(self) -> Tensor: ...
    @property
    def writes(self) -> Tensor: ...


def token_exchange(
    group: Group,
    nodes: int,
    seed: int,
    state: SharedState,
    releases: Releases,
    known_at: Container[int],
) -> TokenExchange | RankTokenExchange:
    """The exchange of the shared model from `state` on, in one process or over the ranks of the group."""
    public = state.public.view(len(releases.released_loss), -1).clone()
    exchange: TokenExchange | RankTokenExchange = (
        RankTokenExchange(group, nodes, seed, public, releases, known_at)
        if isinstance(group, Ranks)
        else TokenExchange(nodes, seed, public)
    )
    exchange.token.load_state_dict({"public": public, "holder": state.holder, "writes": state.writes})
    return exchange


class RankTokenExchange:
    """As `TokenExchange`, with the hosted nodes' wants and writes; every rank has the model after rounds in `known_at`.

    In the other rounds only the rank of the holder has the newest model.
    """

    def __init__(
        self,
        ranks: Ranks,
        nodes: int,
        seed: int,
        public: Tensor,
        releases: Releases,
        known_at: Container[int],
    ):
        self._ranks, self._hosted, self._nodes, self._seed = ranks, ranks.nodes, nodes, seed
        self._releases, self._known_at = releases, known_at
        self._owner = {i: rank for rank, block in enumerate(ranks.blocks) for i in block}
        self.token = Token(public)
        self.bytes_sent = 0

    def __call__(self, t: int, wants: Tensor, write: Write) -> Token:
        token = self.token
        asking = torch.zeros(self._nodes, dtype=torch.uint8)
        asking[self._hosted.start : self._hosted.stop] = wants.any(dim=1)
        asking = self._ranks.sum(asking)
        for node in order(self._seed, t, self._nodes):
            if not asking[node]:
                continue
            if token.holder not in (-1, node):
                self._fetch(node)
            if node in self._hosted:
                token.public = write(node - self._hosted.start, token.public)
            token.holder, token.writes = node, token.writes + 1
        if token.holder >= 0:
            self._publish(t)
        return token

    def _fetch(self, node: int) -> None:
        """One message from the last writer; none where one rank hosts both."""
        token, ranks = self.token, self._ranks
        if token.holder in self._hosted:
            self.bytes_sent += token.public.numel() * token.public.element_size()
        sender, receiver = self._owner[token.holder], self._owner[node]
        if sender == receiver:
            return
        if ranks.rank == sender:
            values = [token.public.contiguous(), self._releases.released_loss.contiguous()]
            ranks.transfer([(receiver, value) for value in values], [])
        elif ranks.rank == receiver:
            token.public = torch.empty_like(token.public)
            self._releases.released_loss = torch.empty_like(self._releases.released_loss)
            ranks.transfer([], [(sender, token.public), (sender, self._releases.released_loss)])

    def _publish(self, t: int) -> None:
        """After a round: what was released next to the model and, where it is evaluated or kept, the model itself."""
        sender = self._owner[self.token.holder]
        self._releases.released_loss = self._ranks.broadcast(self._releases.released_loss, sender)
        if t + 1 in self._known_at:
            self.token.public = self._ranks.broadcast(self.token.public, sender)
