"""A table of numbers, one per place: a record reads one place, so its gradient points along one axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from gossamer.errors import UserError
from gossamer.models.table import models

if TYPE_CHECKING:
    from torch import nn


@models.register("lookup")
@dataclass(frozen=True, kw_only=True)
class Lookup:
    """A number per place, for data.kind = "dirac"; gradients of different places are orthogonal."""

    rows: Annotated[int, Field(ge=2, description="places of the table, 0 … rows − 1")]

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        if input_shape != ():
            raise UserError(
                "model.kind = 'lookup' reads one place per record, as data.kind = 'dirac' has them, and the records "
                f"have shape {tuple(input_shape)}; use 'softmax' or 'mlp'"
            )
        return nn.Embedding(self.rows, outputs)
