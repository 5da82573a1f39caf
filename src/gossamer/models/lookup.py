"""A table of numbers, one per place: a record reads one place, so its gradient points along one axis."""

from typing import TYPE_CHECKING

from gossamer.errors import UserError

if TYPE_CHECKING:
    from torch import nn


def lookup(input_shape: tuple[int, ...], outputs: int, *, rows: int) -> "nn.Module":
    """Records are places 0 … rows − 1 (data.kind = "dirac"); gradients of different places are orthogonal."""
    from torch import nn

    if rows < 2:
        raise UserError(f"model.rows = {rows} must be at least 2")
    if input_shape != ():
        raise UserError(
            "model.kind = 'lookup' reads one place per record, as data.kind = 'dirac' has them, and the records have "
            f"shape {tuple(input_shape)}; use 'softmax' or 'mlp'"
        )
    return nn.Embedding(rows, outputs)
