"""Who holds the public model: the seam of methods in which nodes write one shared model, one after the other.

A round gives every node one turn, in an order that everyone knows. Those who want to write fetch the model from the
last writer, write, and hold it from then on. All between the writes happens on all hosted nodes at once; the chain of
writes alone is sequential. Another carrier (several processes) needs only `Token`: small, and all of it public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Write = Callable[[int, Tensor], Tensor]  # (hosted node, public model) → the model it leaves behind


@dataclass
class Token:
    public: Tensor  # (C, d) the shared model
    holder: int = -1  # the node that wrote last; −1: nobody yet, everyone has the model from zero
    writes: int = 0

    def state_dict(self) -> dict[str, Tensor]:
        return {
            "public": self.public.clone(),
            "holder": torch.tensor(self.holder),
            "writes": torch.tensor(self.writes),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.public = state["public"].clone()
        self.holder, self.writes = int(state["holder"]), int(state["writes"])


def order(seed: int, t: int, nodes: int) -> list[int]:
    """The turns of round t: a fresh public permutation, so that nobody always comes first."""
    turns: list[int] = np.random.default_rng([seed, 0x70CE, t]).permutation(nodes).tolist()
    return turns


class TokenExchange:
    """exchange(t, wants, write): round t of the token through the nodes that want it; returns the token.

    A fetch is one message, from the last holder; whoever holds the model already sends nothing.
    """

    def __init__(self, nodes: int, seed: int, public: Tensor):
        self._nodes, self._seed = nodes, seed
        self.token = Token(public)
        self.bytes_sent = 0

    def __call__(self, t: int, wants: Tensor, write: Write) -> Token:
        token, asking = self.token, wants.any(dim=1).tolist()
        for node in order(self._seed, t, self._nodes):
            if not asking[node]:
                continue
            if token.holder not in (-1, node):
                self.bytes_sent += token.public.numel() * token.public.element_size()
            token.public = write(node, token.public)
            token.holder, token.writes = node, token.writes + 1
        return token
