"""Messages of dp-dkm read backwards, for audits: what the operator learned about records."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from gossamer.errors import UserError
from gossamer.methods.km.algorithm import KM
from gossamer.methods.km.operators import Operator
from gossamer.methods.km.proximal import NOTHING, Penalty


class AnswerReader:
    """Inverts x⁺ = prox(Wx + α (T(x) − x)): undo the map, take off the mixture, and T gives its answer about records.

    If the messages are noised, x̃ = x + n, the same arithmetic leaves the answer with the next message's noise on it.
    T is then undone at x̃, not at the x it was taken at: with a penalty that is a guess.
    """

    def __init__(self, a: KM):
        apart: Any = getattr(a.mapping, "apart", None)
        # What meets the records, and the penalty's map around it if that stands apart.
        reads, outer = (a.mapping, NOTHING) if apart is None else apart()
        self._a = a
        self._reads: Operator = reads
        self._before: Penalty = outer if a.prox_first else NOTHING
        self._after: Penalty = NOTHING if a.prox_first else outer
        self.gain = self._gain()
        if not hasattr(outer, "undo"):
            raise UserError(f"the penalty {type(outer).__name__} has no `undo` to read messages; use --canary release.")

    def _gain(self) -> float:
        """Return how often an answer about records is in T(x), by the operator's code; it must be a fixed number."""
        point = torch.zeros(1, 2, dtype=torch.float64)
        none, one, two = (self._reads(point, partial(torch.full_like, fill_value=k)) for k in (0.0, 1.0, 2.0))
        gain = float((one - none)[0, 0])
        fixed = torch.allclose(two - none, torch.full_like(point, 2 * gain))
        if self._a.draws != 1 or gain == 0 or not fixed:
            raise UserError(
                f"algorithm.operator = {self._a.operator!r} does not let one answer about records through as it is, so "
                "its messages cannot be read backwards; use --canary release."
            )
        return gain

    def at_last_iterate(self, x: Tensor) -> bool:
        """Is the model that is left the last iterate itself?"""
        return torch.equal(self._a.mapping.solution(x), x)

    def __call__(self, x: Tensor, mixed: Tensor, after: Tensor, alpha: float) -> tuple[Tensor, Tensor | None]:
        """The answer at x, and where it is certain (None: everywhere); `mixed` is Wx, `after` the next message."""
        gamma = self._a.gamma
        moved, seen = self._after.undo(after, alpha * gamma)
        size = x.abs() + (moved.abs() + mixed.abs()) / alpha
        rounding = 8 * torch.finfo(x.dtype).eps * size
        inside, also = self._before.undo(x + (moved - mixed) / alpha, gamma, rounding)
        answer = (inside - self._reads(x, torch.zeros_like)) / self.gain
        return answer, seen if also is None else also
