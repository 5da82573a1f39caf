"""The papers' tables as data: what is printed, where, and which run stands for each cell. See docs/compare.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gossamer.errors import UserError

__all__ = ["names", "read"]

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    return sorted(str(path.relative_to(_FOLDER).with_suffix("")) for path in _FOLDER.rglob("*.toml"))


def read(name_or_path: str) -> dict[str, Any]:
    """A table by name, or a definition of the user's by path."""
    from gossamer.config.layers import read_toml

    if name_or_path in names():
        return read_toml(_FOLDER / f"{name_or_path}.toml")
    if name_or_path.endswith(".toml"):
        return read_toml(Path(name_or_path))
    raise UserError(f"{name_or_path!r} is not a table I know; the tables are {', '.join(names())}.")
