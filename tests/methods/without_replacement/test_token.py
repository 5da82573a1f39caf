"""The token: who holds the shared model, and what a fetch costs."""

from __future__ import annotations

import torch

from gossamer.methods.without_replacement.token import Token, TokenExchange, order
from gossamer.runtime.group import Alone


def test_the_token_goes_round_and_knows_its_way() -> None:
    exchange, visited = TokenExchange(Alone(5), 3, Token(torch.zeros(2, 3))), []
    wants = torch.tensor([[True, False], [False, False], [True, True], [False, True], [False, False]])

    def write(node: int, public: torch.Tensor) -> torch.Tensor:
        visited.append(node)
        return public + 10**node

    token = exchange(0, wants, write)
    assert visited == [node for node in order(3, 0, 5) if node in (0, 2, 3)]
    assert token.holder == visited[-1]
    assert float(token.public[0, 0]) == 1 + 100 + 1000
    assert exchange.bytes_sent == 2 * 6 * 4  # the first writer starts from the model everyone has
    exchange(1, torch.tensor([[node == token.holder] for node in range(5)]), write)
    assert exchange.bytes_sent == 2 * 6 * 4  # a holder fetches nothing
    assert token.writes == 4
    assert sorted(order(3, 7, 9)) == list(range(9))
    assert len({tuple(order(3, t, 9)) for t in range(20)}) > 15
