"""A record whose gradient has no finite norm cannot be clipped, so it is left out of the sum.

Inputs of 1e20 overflow float32's squares, and one NaN would make the whole sum NaN: no noise hides that. Leaving the
record out bounds what it does to the sum, by 0.
"""

from __future__ import annotations

import torch
from torch import Tensor


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


def all_finite(values: Tensor) -> bool:
    if values.device.type == "meta":  # shapes only, nothing to look at
        return True
    return bool(values.sum().isfinite()) or bool(values.isfinite().all())  # a finite sum tells at once
