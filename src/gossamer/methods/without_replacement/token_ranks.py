"""The token over several processes: the shared model goes from the rank of its last writer to that of the next.

Who wants to write is public and shared first, a bit per node; then everyone knows the chain, and only its two ends take
part in a fetch. What was released beside the model (noised losses) travels with it and is told to all after the round.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from gossamer.methods.without_replacement.token import Token, Write, order
from gossamer.runtime.transport.torch import Ranks
from gossamer.runtime.wire import Label, Layout


class Told(Protocol):
    """The private part: what it has released beside the model, and everyone may know."""

    released_loss: Tensor


class RankTokenExchange:
    """As `TokenExchange`, with the hosted nodes' wants and writes; the model is everyone's after rounds in `known_at`.

    In the other rounds only the rank of the holder has the newest model; nobody else needs it.
    """

    def __init__(
        self,
        ranks: Ranks,
        run: str,
        nodes: int,
        seed: int,
        public: Tensor,
        told: Told,
        known_at: Container[int],
    ):
        self._ranks, self._run, self._nodes, self._seed = ranks, run, nodes, seed
        self._told, self._known_at = told, known_at
        self._owner = {i: rank for rank, block in enumerate(ranks.blocks) for i in block}
        self._layout = Layout.of(self._rows(public, told.released_loss))
        self.token = Token(public)
        self.bytes_sent = self.bytes_on_wire = 0

    def __call__(self, t: int, wants: Tensor, write: Write) -> Token:
        token, own = self.token, self._ranks.nodes
        self._ranks.watch.computing(t)
        asking = self._ranks.join(wants.any(dim=1).tolist())
        for call, node in enumerate(order(self._seed, t, self._nodes)):
            if not asking[node]:
                continue
            if token.holder not in (-1, node):
                self._fetch(Label(self._run, t, call, self._owner[token.holder]), node)
            if node in own:
                token.public = write(node - own.start, token.public)
            token.holder, token.writes = node, token.writes + 1
        if token.holder >= 0:
            self._tell(t)
        return token

    def _fetch(self, label: Label, node: int) -> None:
        """One message from the last writer; none where both are hosted by one rank."""
        ranks, to = self._ranks, self._owner[node]
        if label.sender == ranks.rank:
            self.bytes_sent += self.token.public.numel() * self.token.public.element_size()
        if to == label.sender or ranks.rank not in (to, label.sender):
            return
        buffer = torch.zeros(self._layout.size(1), dtype=torch.uint8)
        views = self._layout.views(buffer, 1)
        tag = (label.round * self._nodes + label.call) % (1 << 30)
        if ranks.rank == label.sender:
            for view, rows in zip(
                views, self._rows(self.token.public, self._told.released_loss), strict=True
            ):
                view.copy_(rows)
            label.write(buffer, self._layout, 1)
            self.bytes_on_wire += len(buffer)
            ranks.wait(dist.isend(buffer, to, tag=tag), to, label.round)
            return
        ranks.wait(dist.irecv(buffer, label.sender, tag=tag), label.sender, label.round)
        ranks.check(label, buffer, self._layout, [self.token.holder])
        self.token.public = views[0].reshape(self.token.public.shape).clone()
        self._told.released_loss = views[1].reshape(self._told.released_loss.shape).clone()

    def _tell(self, t: int) -> None:
        """After a round: what was released beside the model and, where it is looked at, the model itself."""
        holds = self.token.holder in self._ranks.nodes
        losses = self._ranks.join(self._told.released_loss.tolist() if holds else [])
        self._told.released_loss = torch.tensor(losses).to(self._told.released_loss)
        if t + 1 in self._known_at:
            self.token.public = self._ranks.broadcast(self.token.public, self._owner[self.token.holder])

    @staticmethod
    def _rows(*tensors: Any) -> list[Tensor]:
        return [tensor.reshape(1, -1) for tensor in tensors]
