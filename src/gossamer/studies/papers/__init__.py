"""The papers' tables as data, by name. Light enough for shell completion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gossamer.config.recipes import read_toml
from gossamer.errors import UserError, ending

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    return sorted(path.relative_to(_FOLDER).with_suffix("").as_posix() for path in _FOLDER.rglob("*.toml"))


def titles() -> dict[str, str]:
    """Name → title, paper and place."""
    listed = {}
    for name in names():
        table = read(name)
        place = table.get("source") or table["grid"][0]["source"]
        listed[name] = f"{table['title']} ({table['paper']}, {place.split(',')[0]})"
    return listed


def read(name: str) -> dict[str, Any]:
    """A table by its name or the path of a file; `like` names another one whose keys and rules it takes over."""
    if name not in names() and not name.endswith(".toml"):
        known = ", ".join(names())
        raise UserError(f"{name!r} is not a known table; the tables are {known}{ending(name, names())}")
    table = read_toml(Path(name) if name.endswith(".toml") else _FOLDER / f"{name}.toml")
    if "like" not in table:
        return table
    other = read(table.pop("like"))
    return {**other, **table, "rule": [*other.get("rule", []), *table.get("rule", [])]}
