"""Every kind of network. A new one is one class in one of these files, or in a file of its own and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gossamer.models import cnn, linear, lookup, own, resnet
from gossamer.models.table import Model, models

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Model", "build", "cnn", "linear", "lookup", "models", "own", "resnet"]


def build(kind: str, *, input_shape: tuple[int, ...], outputs: int, **options: Any) -> nn.Module:
    """The network of that kind with these options of the table [model]."""
    return models.parse({"kind": kind, **options}).make(tuple(input_shape), outputs)
