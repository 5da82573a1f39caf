"""The token over several processes: the shared model goes from the rank of its last writer to that of the next.

Who wants to write is public and shared first, a bit per node; then everyone knows the chain, and only its two ends take
part in a fetch. What was released beside the model (noised losses) travels with it, and to everyone after the round.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

import torch
from torch import Tensor

from gossamer.methods.without_replacement.token import Token, TokenExchange, Write, order
from gossamer.runtime.group import Group, Ranks
from gossamer.runtime.wire import Label, Layout


class Releases(Protocol):
    """The private part: what it has released beside the model, and everyone may know."""

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
    run: str,
    nodes: int,
    seed: int,
    state: SharedState,
    releases: Releases,
    known_at: Container[int],
) -> TokenExchange | RankTokenExchange:
    """The exchange of the shared model from `state` on, in one process or over the ranks of the group."""
    public = state.public.view(len(releases.released_loss), -1).clone()
    made: TokenExchange | RankTokenExchange = (
        RankTokenExchange(group, run, nodes, seed, public, releases, known_at)
        if isinstance(group, Ranks)
        else TokenExchange(nodes, seed, public)
    )
    made.token.load_state_dict({"public": public, "holder": state.holder, "writes": state.writes})
    return made


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
        releases: Releases,
        known_at: Container[int],
    ):
        self._messenger, self._hosted = ranks.messenger, ranks.nodes
        self._run, self._nodes, self._seed = run, nodes, seed
        self._releases, self._known_at = releases, known_at
        self._owner = {i: rank for rank, block in enumerate(ranks.blocks) for i in block}
        self._layout = Layout.of([public.reshape(1, -1), releases.released_loss.reshape(1, -1)])
        self.token = Token(public)
        self.bytes_sent = self.bytes_on_wire = 0

    def __call__(self, t: int, wants: Tensor, write: Write) -> Token:
        token = self.token
        self._messenger.watch.computing(t)
        each = [len(block) for block in self._messenger.blocks]
        asking = self._messenger.gather(wants.any(dim=1).tolist(), each=each)
        for turn, node in enumerate(order(self._seed, t, self._nodes)):
            if not asking[node]:
                continue
            if token.holder not in (-1, node):
                self._fetch(t, turn, node)
            if node in self._hosted:
                token.public = write(node - self._hosted.start, token.public)
            token.holder, token.writes = node, token.writes + 1
        if token.holder >= 0:
            self._publish(t)
        return token

    def _fetch(self, t: int, turn: int, node: int) -> None:
        """One message from the last writer; none where both are hosted by one rank."""
        if self.token.holder in self._hosted:
            self.bytes_sent += self.token.public.numel() * self.token.public.element_size()
        sender, receiver = self._owner[self.token.holder], self._owner[node]
        if sender != receiver:
            self._carry(t, turn, sender, [receiver])

    def _publish(self, t: int) -> None:
        """After a round: what was released beside the model and, where it is looked at, the model itself."""
        holder = self.token.holder
        sender, losses = self._owner[holder], self._releases.released_loss
        each = [len(losses) if rank == sender else 0 for rank in range(len(self._messenger.blocks))]
        known = self._messenger.gather(losses.tolist() if holder in self._hosted else [], each=each)
        self._releases.released_loss = torch.tensor(known).to(losses)
        if t + 1 in self._known_at:
            others = [rank for rank in range(len(self._messenger.blocks)) if rank != sender]
            self._carry(t, self._nodes, sender, others)  # the place behind all turns

    def _carry(self, t: int, place: int, sender: int, receivers: list[int]) -> None:
        """The model and the losses from one rank to some others, if this one is among them."""
        messenger, layout, rank = self._messenger, self._layout, self._messenger.rank
        if rank != sender and rank not in receivers:
            return
        label = Label(self._run, t, place, sender, seal=messenger.seal)
        tag = t * (self._nodes + 1) + place
        buffer = messenger.empty(layout.size(1))
        model, losses = layout.views(buffer, 1)
        if rank == sender:
            model.copy_(self.token.public.reshape(1, -1))
            losses.copy_(self._releases.released_loss.reshape(1, -1))
            label.write(buffer, layout, 1)
            self.bytes_on_wire += len(buffer) * len(receivers)
            _, leaving = messenger.start({}, dict.fromkeys(receivers, buffer), tag)
            for receiver, pending in leaving.items():
                messenger.wait(pending, receiver, t)
            return
        arriving, _ = messenger.start({sender: buffer}, {}, tag)
        messenger.wait(arriving[sender], sender, t)
        messenger.check(label, buffer, layout, [self.token.holder])
        self.token.public = model.reshape(self.token.public.shape).clone()
        self._releases.released_loss = losses.reshape(self._releases.released_loss.shape).clone()
