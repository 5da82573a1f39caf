"""The shared model on its way from writer to writer, in one process or over the ranks of a run.

A round gives every node one turn, in an order that everyone knows. Those who want to write fetch the model from the
last writer, write, and hold it from then on. All between the writes happens on all hosted nodes at once; the chain of
writes alone is sequential. Over several ranks, the nodes that want to write are public and shared first; then every
rank knows the chain of writers, and only the two ranks of a handover take part in it. What was released next to the
model (noised losses) travels with it, and to every rank after the round.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.runtime.cluster import Ranks
from gossamer.runtime.group import Group

Write = Callable[[int, Tensor], Tensor]  # (hosted node, public model) → the model it leaves behind


@dataclass
class Token:
    public: Tensor  # (C, d) the shared model
    holder: int = -1  # the node that wrote last; −1: nobody yet, everyone has the model from zero
    writes: int = 0


def order(seed: int, t: int, nodes: int) -> list[int]:
    """The turns of round t: a fresh public permutation, so that nobody always comes first."""
    turns: list[int] = np.random.default_rng([seed, 0x70CE, t]).permutation(nodes).tolist()
    return turns


class TokenExchange:
    """exchange(t, wants, write): round t of the token through the hosted nodes that want it; returns the token.

    A fetch is one message, from the last holder; a node that holds the model already fetches nothing. Every rank has
    the model after rounds in `known_at`; after the others only the rank of the holder has the newest.
    """

    def __init__(self, group: Group, seed: int, token: Token, releases: Any = None, known_at: Container[int] = ()):
        """`releases`: the private part, whose `released_loss` (C,) was released next to the model."""
        self._ranks = group if isinstance(group, Ranks) else None
        self._hosted, self._nodes, self._seed = group.nodes, group.blocks[-1].stop, seed
        self._releases, self._known_at = releases, known_at
        self._owner = {i: rank for rank, block in enumerate(group.blocks) for i in block}
        self.token = token
        self.bytes_sent = 0

    def __call__(self, t: int, wants: Tensor, write: Write) -> Token:
        token, ranks = self.token, self._ranks
        asking = torch.zeros(self._nodes, dtype=torch.uint8)
        asking[self._hosted.start : self._hosted.stop] = wants.any(dim=1)
        writers = (asking if ranks is None else ranks.sum(asking)).tolist()
        for node in order(self._seed, t, self._nodes):
            if not writers[node]:
                continue
            if token.holder not in (-1, node):
                self._fetch(node)
            if node in self._hosted:
                token.public = write(node - self._hosted.start, token.public)
            token.holder, token.writes = node, token.writes + 1
        if ranks is not None and token.holder >= 0:
            # What was released next to the model and, where it is evaluated or kept, the model itself.
            sender = self._owner[token.holder]
            self._releases.released_loss = ranks.broadcast(self._releases.released_loss, sender)
            if t + 1 in self._known_at:
                token.public = ranks.broadcast(token.public, sender)
        return token

    def _fetch(self, node: int) -> None:
        """One message from the last writer; none where one rank hosts both."""
        token, ranks = self.token, self._ranks
        if token.holder in self._hosted:
            self.bytes_sent += token.public.numel() * token.public.element_size()
        sender, receiver = self._owner[token.holder], self._owner[node]
        if ranks is None or sender == receiver:
            return
        if ranks.rank == sender:
            values = token.public.contiguous(), self._releases.released_loss.contiguous()
            ranks.transfer([(receiver, value) for value in values], [])
        elif ranks.rank == receiver:
            token.public = torch.empty_like(token.public)
            self._releases.released_loss = torch.empty_like(self._releases.released_loss)
            ranks.transfer([], [(sender, token.public), (sender, self._releases.released_loss)])
