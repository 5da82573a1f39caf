"""Private gradients that survive a crash: on disk before they are used, and never drawn again."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from gossamer.consortium.journal import Journal, Released


class Private(Protocol):
    """What answers about records: `PrivateGradient`, or anything else that pays for every answer."""

    draws: int

    def __call__(self, points: Tensor) -> Tensor: ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


class Replayed:
    """grad(points): the journal's answer where there is one, and a new one, written first, where there is none.

    After a crash a round is repeated, perhaps at another point since other parcels have come; what was released stays
    what was released. `paid` is the number of draws the ledger has: one that was paid for and did not reach the journal
    is lost, never drawn again.
    """

    def __init__(self, private: Private, journal: Journal, *, uses: int = 0, paid: int = 0):
        self._private, self._journal, self.uses = private, journal, uses
        self._known = dict(journal.contents.released)
        if self._known:
            private.restore(self._known[max(self._known)].after)
        private.draws = max(private.draws, paid)

    @property
    def draws(self) -> int:
        return self._private.draws

    def __call__(self, points: Tensor) -> Tensor:
        use, self.uses = self.uses, self.uses + 1
        known = self._known.pop(use, None)
        if known is not None:
            return known.value.to(points)
        value = self._private(points)
        after = {key: torch.as_tensor(item) for key, item in self._private.state().items()}
        self._journal.release(Released(use, value, after))
        return value
