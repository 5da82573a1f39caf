"""What a user may ask for, and the layers it is put together from."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gossamer.config.layers import parse_overrides, resolve, stored
    from gossamer.config.schema import RunConfig

__all__ = [
    "RunConfig",
    "algorithm",
    "auto",
    "baselines",
    "checks",
    "keys",
    "layers",
    "methods",
    "parse_overrides",
    "recipes",
    "reference",
    "resolve",
    "schema",
    "stored",
]

_HOMES = {
    "RunConfig": "schema",
    "parse_overrides": "layers",
    "resolve": "layers",
    "stored": "layers",
}


def __getattr__(name: str) -> Any:
    """Loaded at first use: the schema knows every kind, and so brings torch along; a list of recipes needs none."""
    if name in _HOMES:
        return getattr(import_module(f"gossamer.config.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"gossamer.config.{name}")
    raise AttributeError(f"module 'gossamer.config' has no attribute {name!r}")
