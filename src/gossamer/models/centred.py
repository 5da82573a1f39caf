"""A network behind the subtraction of a mean that is one of its parameters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_TINY = 1e-12


def centre_records(x: Tensor, centre: Tensor) -> Tensor:
    """(x − c) / ‖x − c‖ over the last axis: on the sphere again, so that all of the clip goes to what differs."""
    moved = x - centre
    return moved.div_(torch.linalg.vector_norm(moved, dim=-1, keepdim=True).clamp_min_(_TINY))


class Centred(nn.Module):
    """head((x − c) / ‖x − c‖). The parameter c comes first, of the size of a record."""

    def __init__(self, head: nn.Module, size: int) -> None:
        super().__init__()
        self.centre = nn.Parameter(torch.zeros(size))
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(centre_records(x.flatten(1), self.centre))
        return out
