"""A network that the user brings along."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gossamer.errors import UserError
from gossamer.models.table import models

if TYPE_CHECKING:
    from torch import nn


@models.register("own")
@dataclass(frozen=True, kw_only=True)
class Own:
    """A torch module of your own: gossamer.run(..., module=net)."""

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        raise UserError(
            "model.kind = 'own' needs the module itself: gossamer.run(..., module=net) from Python."
        )
