"""A record whose gradient has no finite norm cannot be clipped, so it is left out of the sum.

Inputs of 1e20 overflow float32's squares, and one NaN would make the whole sum NaN: no noise hides that. Leaving the
record out bounds what it does to the sum, by 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gossamer.errors import UserError


class NotFiniteError(Exception):
    """Some records have no finite gradient norm; `records` (m, B) says which. Nothing was written yet."""

    def __init__(self, records: Tensor) -> None:
        self.records = records


def refuse_infinite(norms: Tensor) -> None:
    if norms.device.type == "meta":  # shapes only, nothing to look at
        return
    finite = torch.isfinite(norms)
    if not bool(finite.all()):
        raise NotFiniteError(~finite)


def outputs_or_nan(
    compute: Callable[[Tensor], Tensor], x: Tensor, shape: Sequence[int] | None = None
) -> Tensor:
    """compute(x (B, …)), and not a number for records on which it fails.

    `shape` is that of one record's outputs; without it, a module that fails on every record is refused.
    """
    try:
        return compute(x)
    except Exception as reason:
        rows: list[Tensor | None] = []
        for b in range(len(x)):
            try:
                rows.append(compute(x[b : b + 1]))
            except Exception:
                rows.append(None)
        like = next((row for row in rows if row is not None), None)
        if like is None and shape is None:
            raise UserError(f"model: it fails on every record of the hold-out ({reason}).") from None
        like = torch.empty(1, *(shape or ())) if like is None else like
        return torch.cat([torch.full_like(like, torch.nan) if row is None else row for row in rows])


def all_finite(values: Tensor) -> bool:
    if values.device.type == "meta":  # shapes only, nothing to look at
        return True
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())  # a finite sum tells at once
