"""The papers' tables as data: what is printed, where, and which run stands for each cell. See docs/compare.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.options.nearest import ending
from gossamer.options.toml import read_toml

__all__ = ["names", "read", "titles"]

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    return sorted(str(path.relative_to(_FOLDER).with_suffix("")) for path in _FOLDER.rglob("*.toml"))


def read(name_or_path: str) -> dict[str, Any]:
    """A table by name, or a definition of the user's by path."""
    if name_or_path in names():
        return read_toml(_FOLDER / f"{name_or_path}.toml")
    if name_or_path.endswith(".toml"):
        return read_toml(Path(name_or_path))
    raise UserError(
        f"{name_or_path!r} is not a table I know; the tables are {', '.join(names())}"
        f"{ending(name_or_path, names())}"
    )


def titles() -> dict[str, str]:
    """Name → title with its paper, for a list: read off the files, without the kinds that a run would need."""
    found = {}
    for name in names():
        table = read_toml(_FOLDER / f"{name}.toml")
        paper = f" ({table['paper']}, {table['grid'][0]['source'].split(',')[0]})" if "paper" in table else ""
        found[name] = f"{table['title']}{paper}"
    return found
