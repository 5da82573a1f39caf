"""Rounds of writes to a shared model, in which every value shows the order of the writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from gossamer.methods.without_replacement.token import Token, TokenExchange
from gossamer.runtime.group import Group


def token_rounds(group: Group, rounds: int, wants: torch.Tensor) -> Any:
    """The model, its holder, the number of writes, the losses, the bytes, and what the hosted nodes saw."""
    releases = SimpleNamespace(released_loss=torch.zeros(2))
    exchange = TokenExchange(group, 3, Token(torch.zeros(2, 3)), releases, {rounds})
    hosted, seen = group.nodes, []

    def write(i: int, public: torch.Tensor) -> torch.Tensor:
        node = hosted[i]
        releases.released_loss = releases.released_loss * 0.5 + node
        seen.append((node, float(public.sum())))
        return public * 0.75 + node + torch.arange(6.0).view(2, 3)

    for t in range(rounds):
        exchange(t, wants[t, hosted.start : hosted.stop], write)
        seen.append((-1, float(releases.released_loss.sum())))
    token = exchange.token
    return token.public, token.holder, token.writes, releases.released_loss, exchange.bytes_sent, seen
