"""What a user may ask for, and the layers it is put together from."""

from gossamer.config import recipes
from gossamer.config.layers import parse_overrides, read_toml, resolve, stored
from gossamer.config.schema import RunConfig

__all__ = [
    "RunConfig",
    "baselines",
    "checks",
    "layers",
    "parse_overrides",
    "read_toml",
    "recipes",
    "reference",
    "resolve",
    "schema",
    "stored",
]
