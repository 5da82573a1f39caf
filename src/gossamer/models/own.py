"""A network of the user's own, which no name here can make."""

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
    """A module of your own, handed over in Python: gossamer.run(..., module=net)."""

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        raise UserError(
            "model.kind = 'own' stands for a module that is handed over: gossamer.run(..., module=net); "
            "or name a kind, for example 'softmax'."
        )
